"""The dumper's reading of a line against the program's: what `assay check` would refuse is refused when it is dumped, and nothing else is. The program is the wheel's own."""
import json
import os
import pathlib
import random
import re
import struct
import subprocess

import numpy as np
import pytest

import assay
from assay._dump_checks import check_case
from assay._dump_lines import LineFacts
from assay._dump_planes import kPlanesOfOp
from assay._dump_rules import fault_of
from assay.pack import Array, Pack, PackError

kProgram = pathlib.Path(assay.__file__).parent / "bin/assay"
needs_program = pytest.mark.skipif(not kProgram.is_file(), reason="the package has no program beside it")
kSuites = ("smoke", "pairs", "regressions", "gemm", "ci")
kOdd = ["", "abc", "float", "-1", "-0", "007", "+1", "1_0", "1.5", ".5", "1.", "1e", "1e300", "1e-300", "1e-45", "7e-46", "3.4028235677973366e38", "3.4028236e38", "inf", "-Infinity", "nan",
        "nan(x)", "0x3F800000", "0X3F800000", "0x3f8", "0x123456789", "0xFFFF", "0x10000", "65535", "65536", "131072", "2147483648", "2147483649", "4294967296",
        "18446744073709551615", "18446744073709551616", "1e99999999999999999999", "9" * 5000, "1,2", "1,2,3", "0,0,0", "-0,0,0", "7,0,131072", "1,-1", "-1,-1", "full", "any", "none", "4,8", "32,0,64", "32x64,16x128", "literal:", "literal:3f80",
        "pack:x#y@z", "zeros:1", "linear/input", "linear/weight/fc1", "grouped_linear/grad_output", "linear", "dpa/qkv", "linear/", "ocp", "te", "vllm.group", "deepgemm", "triton.up", "modelopt.nvfp4",
        "\u0661", "\u00e9", "row", "col", "both", "sr", "0", "1"]
kShapes = ["64x128", "32x32", "1x1", "0x5", "5x0", "33x70", "16x16", "64x2", "8x4", "30x48", "48x96", "64x64x64", "1x80", "4x4", "-0x5", "64x", "x64", "64X64", "65537x65537", "3000000000x1", "+4x4", "4x4x"]
kFormats = ["identity", "fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "nvfp4", "mxfp6", "mxfp4"]
kEncodings = ["f32", "bf16", "f16", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "e8m0", "u8", "u32"]
kPlaces = ["row.", "col.", "a.", "b.", "c.", "qkv.", "s.", "o.", "do.", "dp.", "dqkv.", "x."]


def program(*words):
    done = subprocess.run([kProgram, *map(str, words)], capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def refused_by_check(lines, folder):
    """What the program says of each line that it cannot read, else None; it reads the lines out of a pack, as `assay check` does."""
    head = json.dumps({"__metadata__": {"assay.pack": "1", **{f"assay.line.{n:06}": line for n, line in enumerate(lines)}}}).encode()
    head += b" " * (-len(head) % 8)
    (folder / "lines.safetensors").write_bytes(struct.pack("<Q", len(head)) + head)
    program("check", "--no-cause", folder / "lines.safetensors", "--json", folder / "told.json")
    cases = json.loads((folder / "told.json").read_text())["cases"]
    assert [c["line"] for c in cases] == lines
    said = [c["breach"]["message"] for c in cases]
    return [s if s.startswith("its line is invalid") else None for s in said]


def refused_by_dumper(line):
    try:
        facts = LineFacts(line, "m")
        return fault_of(facts)
    except PackError as error:
        return str(error)


def table_of_keys():
    """{op: [(key, values)]} as the program tells them."""
    out = {}
    for row in re.finditer(r"^(\w+) +(\S.*)\n +ops: (.*)$", program("list", "--keys"), re.M):
        for op in row[3].split():
            out.setdefault(op, []).append((row[1], row[2].split()[0].split("|")))
    return out


class Lines:
    """Lines of the suites, lines drawn from the table of keys, and either with a few words changed."""

    def __init__(self, seed):
        self.rng, self.keys = random.Random(seed), table_of_keys()
        listed = [line for suite in kSuites for line in program("list", suite).splitlines() if line.split()[0] in self.keys]
        self.suites = [line for line in listed if not re.search(r"\d{4,}x|x\d{4,}", line)]

    def word(self, op):
        key, values = self.rng.choice(self.keys.get(op) or self.keys["quantize"])
        return f"{key}={self.rng.choice(values) if self.rng.random() < 0.75 else self.rng.choice(kOdd)}"

    def drawn(self):
        rng, op = self.rng, self.rng.choice([*self.keys, "quantize", "quantize", "split", "gemm", "attention"])
        form = rng.choice(kFormats) + (f"/{rng.choice(kFormats)}" if rng.random() < 0.15 else "")
        if op == "gemm":
            head = f"gemm a={rng.choice(kFormats)} b={rng.choice(kFormats)} {rng.choice(['16x32x64', '33x18x96'])}" + rng.choice(["", " f32", " bf16", " f16"])
        else:
            head = f"{op} {rng.choice(kEncodings) if op in ('cast', 'adam', 'scale_state', 'philox') else form} {rng.choice(kShapes[:13])} {rng.choice(kEncodings[:3] if rng.random() < 0.8 else kEncodings)}"
        words = [self.word(op) for _ in range(rng.choice([0, 1, 1, 2, 3, 4]))]
        return " ".join([head, *(rng.choice(kPlaces[:2] if op != "gemm" else kPlaces[2:5]) + w if rng.random() < 0.2 else w for w in words)])

    def mutated(self, line):
        rng, words = self.rng, line.split(" ")
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            at = rng.randrange(len(words))
            kind = rng.randrange(10)
            if kind == 0 and len(words) > 1:
                words.pop(at)
            elif kind == 1:
                words.insert(at, words[rng.randrange(len(words))])
            elif kind == 2:
                words[at] = rng.choice([*kShapes, *kFormats, *kEncodings, *self.keys])
            elif kind in (3, 4, 5):
                words.append(self.word(words[0]))
            elif kind == 6 and "=" in words[at]:
                words[at] = words[at].partition("=")[0] + "=" + rng.choice(kOdd)
            elif kind == 7 and "=" in words[at]:
                words[at] = rng.choice(kPlaces) + words[at]
            elif kind == 8 and words[at]:
                where = rng.randrange(len(words[at]))
                words[at] = words[at][:where] + rng.choice("xX=.-_0159 \tz/|,") + words[at][where + rng.randint(0, 1):]
            elif kind == 9 and len(words) > 1:
                words[1] = rng.choice(kFormats) + rng.choice(["", "", f"/{rng.choice(kFormats)}"])
        return " ".join(words)

    def some(self, count):
        for _ in range(count):
            line = self.rng.choice(self.suites) if self.rng.random() < 0.5 else self.drawn()
            yield line if self.rng.random() < 0.25 else self.mutated(line)


@needs_program
def test_the_dumper_refuses_the_lines_that_check_refuses(tmp_path):
    """ASSAY_LINES=<count> draws more of them, ASSAY_SEED=<number> others."""
    lines = list(Lines(int(os.environ.get("ASSAY_SEED", "1"))).some(int(os.environ.get("ASSAY_LINES", "6000"))))
    wrong, refused = [], 0
    for line, theirs in zip(lines, refused_by_check(lines, tmp_path)):
        ours = refused_by_dumper(line)
        refused += theirs is not None
        if (ours is None) != (theirs is None):
            wrong.append(f"{line[:200]!r}: the dumper {'takes it' if ours is None else f'says: {ours[:300]}'}; check {'takes it' if theirs is None else f'says: {theirs[:200]}'}")
    assert not wrong, f"{len(wrong)} of {len(lines)} lines:\n" + "\n".join(wrong[:40])
    assert len(lines) / 5 < refused < 4 * len(lines) / 5, "either kind is there"


@needs_program
def test_what_the_dumper_takes_is_judged(tmp_path):
    """Drawn lines that the dumper takes, each with all of its planes: `assay check` judges every one of them."""
    pack, lines = Pack(), Lines(7)
    kinds = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "u32": np.uint32}
    while len(pack.lines) < 250:
        line = next(lines.some(1))
        if refused_by_dumper(line) is not None:
            continue
        facts = LineFacts(line, "m")
        planes = {name: plane for of in kPlanesOfOp[facts.op](facts) for name, plane in of.items()}
        if sum(max(counts) for _, counts in planes.values()) > 200_000:
            continue
        pack.add_planes(line, {name: np.ones(max(counts), kinds.get(encoding, np.uint8)) for name, (encoding, counts) in planes.items() if not name.endswith("given.amax")},
                        module=f"m{len(pack.lines)}")
    program("check", "--no-cause", pack.write(tmp_path / "ones.safetensors"), "--json", tmp_path / "told.json")
    cases = json.loads((tmp_path / "told.json").read_text())["cases"]
    messages = {c["case"]: c.get("breach", {}).get("message", "") for c in cases}
    wrong = [(c["line"], messages[c["case"]], c["missing"], c["notes"]) for c in cases
             if (messages[c["case"]] and "(N6.4)" not in messages[c["case"]]) or c["missing"] or any("is not a plane" in note for note in c["notes"])]
    assert not wrong, "\n".join(map(str, wrong))
    assert len(cases) == 250


def one(value="quantize mxfp8 64x96 bf16 dir=row"):
    return check_case(value, {"row.data": Array(np.zeros((64, 96), np.uint8), "row.data")}, "m")


@pytest.mark.parametrize("more, said", [
    ("element=e4m3 element=e5m2", "expected each key once, found 'element' twice"),
    ("seed=abc", r"seed: expected 0\.\.2\^64-1, found 'abc'"),
    ("fill=foo", "fill: expected normal|edges.*, found 'foo'"),
    ("fill=literal:", "fill: expected"),
    ("rht=1", "rht: expected a key that applies here, found 'rht=1'; it is of nvfp4"),
    ("row_scaled=1", "row_scaled: .*; it is of fp8_delayed, fp8_current, nvfp4"),
    ("eps=1e-4", "eps: .*; it is of fp8_current, fp8_block"),
    ("col.element=e5m2", "col.element: expected a key that applies here"),
    ("flavour=vllm.nvfp4", "expected a format of flavour=vllm.nvfp4 .nvfp4., found mxfp8"),
    ("arch=sm90", "arch: .*; it needs flavour=te"),
    ("element=zzz row.element=e5m2", "element: expected one of e4m3|e5m2, found 'zzz'"),   # a value that the place replaces is still one
    ("element=e2m1 row.element=e5m2", "element: expected one of e4m3|e5m2, found 'e2m1'"),
    ("block=1x16", "block: expected one of 1x32|32x32, found '1x16'"),
    ("element=e4m3\nseed=1", r"expected one line of printable characters, found '\\n'"),
    ("row.seed=1", "expected 'seed' without 'row.', for it is not a key of one direction"),
    ("recipe=mxfp8", "expected the role of the tensor beside it"),
    ("role=linear/inputs", "role: expected <module>/<tensor>"),
    ("role=linear/input factory=mxfp8_factory", "expected no factory= in a pack"),
    ("rubbish", "expected key=value, found 'rubbish'"),
    ("eps", "expected key=value, found 'eps'")])
def test_refusals_say_what_to_write(more, said):
    one()
    with pytest.raises(PackError, match=said):
        one(f"quantize mxfp8 64x96 bf16 dir=row {more}")


@pytest.mark.parametrize("line, said", [
    (None, "expected a line as a str, found NoneType"), (b"quantize mxfp8 64x96 bf16", "expected a line as a str, found bytes"), ("", "expected a line such as"),
    ("quantize nvfp4 64x96 bf16 dir=row rht=1", "rht: .*; it is of columns"), ("quantize nvfp4 64x96 bf16 draw=te_fb", "draw: .*; it needs round=sr"),
    ("quantize nvfp4 64x96 bf16 row_scaled=1 amax=2", "amax: .*; it needs row_scaled other than 1"), ("quantize nvfp4 60x96 bf16 dir=col rht=1", "expected a multiple of 16 rows with rht=1, found 60"),
    ("dequantize mxfp8 64x96 bf16 dir=both", "dir: expected row or col for dequantize"), ("split mxfp8 64x96 bf16 groups=32,33", "expected the members to make 64x96, found 65x96"),
    ("cast e8m0 4x4 f32 round=rne", "expected round=rp or rz to e8m0"), ("quantize auto 4x4 bf16 role=linear/input factory=mxfp8_factory", "expected a format, found 'auto'")])
def test_impossible_lines(line, said):
    with pytest.raises(PackError, match=said):
        one(line)


def test_role_and_recipe_say_the_planes():
    """A weight of the recipe block has tiles of 128x128, so that its scales are as many."""
    line = "quantize fp8_block 256x256 bf16 dir=row role=linear/weight recipe=block"
    assert kPlanesOfOp["quantize"](LineFacts(line, "m"))[1]["row.scale_inv"] == ("f32", {4, 8})
    assert kPlanesOfOp["quantize"](LineFacts(line.replace("weight", "input"), "m"))[1]["row.scale_inv"] == ("f32", {512})
