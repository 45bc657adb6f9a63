"""What the witnesses in Python share: packs of the planes that they computed, which `assay check` judges on the reference."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

# An encoding's name in a safetensors file, and the letter of struct for a code of it.
kEncodings = {"bf16": ("BF16", "H"), "f16": ("F16", "H"), "e4m3": ("F8_E4M3", "B"), "e5m2": ("F8_E5M2", "B"), "f32": ("F32", "I"), "u8": ("U8", "B"), "u32": ("U32", "I")}


def write(path, line, planes):
    """A safetensors file with a line and its planes: {name: (encoding, codes)}."""
    head, data = {"__metadata__": {"assay.line.case": line}}, b""
    for name, (encoding, codes) in planes.items():
        dtype, letter = kEncodings[encoding]
        raw = struct.pack(f"<{len(codes)}{letter}", *codes)
        head[f"case/{name}"] = {"dtype": dtype, "shape": [len(codes)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def check(program, path):
    done = subprocess.run([program, "check", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def judge(cases, broken_plane):
    """Judges (line, planes, name) by the program that the command line names, and ends the process with the result. Each case's copy with one wrong bit in
    `broken_plane` must fail: a check that cannot fail shows nothing."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {pathlib.Path(sys.argv[0]).name} <program>")
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "case.safetensors"
        for line, planes, name in cases:
            write(path, line, planes)
            status, text = check(sys.argv[1], path)
            encoding, codes = planes[broken_plane]
            write(path, line, {**planes, broken_plane: (encoding, [codes[0] ^ 1, *codes[1:]])})
            broken, _ = check(sys.argv[1], path)
            if status == 0 and broken == 1:
                passed += 1
                continue
            failed += 1
            print(f"{name}\n{line}\n  exit {status}, and {broken} of the copy with one wrong bit\n{text}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)
