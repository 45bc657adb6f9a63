#!/usr/bin/env python3
"""How long `assay check` takes on large dumps, right and wrong ones, and how much memory it holds beside them: a table in Markdown.

    benchmarks/check_speed.py build/cpu/bin/assay                                   # 64 Mi elements of MXFP8, some ten seconds
    benchmarks/check_speed.py build/cpu/bin/assay --mebi 1024 --exact               # 3.3 GB
    benchmarks/check_speed.py build/cpu/bin/assay --mebi 256 --formats mxfp8 mxfp8:col fp8_delayed fp8_current fp8_block nvfp4

A dump is bf16, drawn from a normal distribution, in rows of 32768 elements, in one direction, with the default choices of its format (`fp8_delayed`: scale=16). The program records its first 128
rows, and the others repeat these, which changes no scale. `one` has a wrong code near the end, `codes` two in every 32 elements, `all codes` and `scales` have the lowest
bit of each turned. Each dump is read once, so that it lies in the page cache, and judged `--repeats` times by `assay check --no-cause`.

The table has the least wall time, the least processor time of all processes, and the most memory that they held together in one more run, without what they map of
files: anonymous and shared memory by /proc/PID/smaps_rollup, looked at every few milliseconds. A verdict other than the expected one fails.

Exit status 0: all verdicts are as expected; 1: one is not, or the program failed; 2: bad usage. The dumps lie in a folder of their own, which is removed at the end.
"""
import argparse
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

kRows, kCols = 128, 32768        # of what is recorded: scales of MX are padded to 128 rows
kMebi = 1 << 20
kEvery = 32                      # `codes`: so many elements have two wrong codes
kWrong = ("none", "one", "codes", "all codes", "scales")
kFormats = ("mxfp8", "mxfp4", "fp8_delayed", "fp8_current", "fp8_block", "nvfp4")
kKeys = {"fp8_delayed": " scale=16"}   # codes of a trained scale; of scale=1 most blocks hold a subnormal code, which the reference judges
kPoll = 0.002                    # seconds between two looks at the memory


class Failed(Exception):
    """What went wrong, as one sentence for the user."""


def recorded(program, line):
    """The planes that the program makes of a line: {name: (dtype, shape, bytes)}."""
    with tempfile.TemporaryDirectory(prefix="assay-check-speed-") as folder:
        path = pathlib.Path(folder) / "base.safetensors"
        done = subprocess.run([program, "record", line, "--subject", "host", "--all-bytes", "-o", path], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"assay record '{line}': exit status {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}")
        data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    planes = {}
    for name, tensor in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            first, end = (8 + size + offset for offset in tensor["data_offsets"])
            planes[name.split("/")[1]] = (tensor["dtype"], tensor["shape"], data[first:end])
    return planes


def turned(data, mask):
    """The bytes with the bits of a mask of one or more bytes turned, over and over."""
    whole = mask * (len(data) // len(mask))
    return (int.from_bytes(data, "little") ^ int.from_bytes(whole, "little")).to_bytes(len(data), "little")


def pieces(shape, data, times):
    """A plane of `times` as many rows of x, as (bytes, how often): they stand below one another, but in a plane whose columns are the rows of x."""
    if shape == [1, 1]:
        return [(data, 1)]
    if shape[1] != kRows:
        return [(data, times)]
    length = len(data) // shape[0]
    return [(data[at:at + length], times) for at in range(0, len(data), length)]


class Dump:
    """A file with one case. Its planes can be written anew in place."""

    def __init__(self, path, line, planes, times):
        self.path, self.planes, self.times = path, planes, times
        header, at = {"__metadata__": {"assay.line.a": line}}, 0
        for name, (dtype, shape, data) in planes.items():
            long = times if shape != [1, 1] else 1
            grown = [shape[0], shape[1] * long] if shape[1] == kRows else [shape[0] * long, shape[1]]
            header[f"a/{name}"] = {"dtype": dtype, "shape": grown, "data_offsets": [at, at + len(data) * long]}
            at += len(data) * long
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.start = 8 + len(text)
        self.offsets = {name: self.start + header[f"a/{name}"]["data_offsets"][0] for name in planes}
        self.ends = {name: self.start + header[f"a/{name}"]["data_offsets"][1] for name in planes}
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
        for name in planes:
            self.write(name)

    def write(self, name, mask=None):
        """A plane as it was recorded, or with bits turned."""
        _, shape, data = self.planes[name]
        with self.path.open("r+b") as file:
            file.seek(self.offsets[name])
            for piece, times in pieces(shape, turned(data, mask) if mask else data, self.times):
                for _ in range(times):
                    file.write(piece)

    def turn_one(self, name):
        """One byte near the end of a plane."""
        with self.path.open("r+b") as file:
            file.seek(self.ends[name] - 1000)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))

    def spoil(self, wrong, direction, packed):
        """Makes the dump wrong; the name of the plane that was changed."""
        name = f"{direction}.scale_inv" if wrong == "scales" else f"{direction}.data"
        if wrong == "one":
            self.turn_one(name)
        elif wrong == "codes":
            length = kEvery // (2 if packed else 1)
            self.write(name, bytes(1 if at in (1, length - 2) else 0 for at in range(length)))
        else:
            word = {"F32": b"\1\0\0\0"}.get(self.planes[name][0], b"\x11" if packed and wrong == "all codes" else b"\1")
            self.write(name, word)
        return name


def children(pid):
    """A process and all below it."""
    found = [pid]
    for one in found:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                found += map(int, pathlib.Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except OSError:
            pass   # it has ended
    return found


def held(pid):
    """Bytes of memory that a process and all below it hold, without what files they map."""
    total = 0
    for one in children(pid):
        try:
            text = pathlib.Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(kib) << 10 for kib in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", text, re.MULTILINE))
    return total


def judged(command, fails, watch):
    """(wall seconds, processor seconds, the most memory held) of one run; the last is 0 where nobody watches."""
    start, most = time.perf_counter(), 0
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        ended = 0
        while watch and not ended:
            most = max(most, held(child.pid))
            time.sleep(kPoll)
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
        if not ended:
            _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if child.returncode != (1 if fails else 0):
        raise Failed(f"{' '.join(map(str, command))}: exit status {child.returncode}, expected {1 if fails else 0}: {text.strip()[-300:]}")
    return wall, usage.ru_utime + usage.ru_stime, most


def measured(command, fails, repeats):
    runs = [judged(command, fails, False) for _ in range(repeats)]
    wall, processor = (min(column) for column in list(zip(*runs))[:2])
    return f"{wall:.2f} s | {processor:.2f} s | {judged(command, fails, True)[2] / kMebi:.0f} MiB"


def table(args, kind, folder):
    """The rows of one format and direction, as they come."""
    name, _, direction = kind.partition(":")
    direction = direction or "row"
    keys = f"bf16 dir={direction}{kKeys.get(name, '')}"
    times = args.mebi * kMebi // (kRows * kCols)
    planes = {"x": recorded(args.program, f"quantize identity {kRows}x{kCols} bf16 dir=row")["row.data"],
              **recorded(args.program, f"quantize {name} {kRows}x{kCols} {keys}")}
    packed = name in ("mxfp4", "nvfp4")
    dump = Dump(folder / "dump.safetensors", f"quantize {name} {kRows * times}x{kCols} {keys}", planes, times)
    command = [args.program, "check", "--no-cause", "--jobs", str(args.jobs), dump.path]
    for wrong in args.wrong:
        if wrong == "scales" and planes[f"{direction}.scale_inv"][1] == [1, 1]:
            continue   # one scale for the tensor
        changed = dump.spoil(wrong, direction, packed) if wrong != "none" else None
        subprocess.run(["cat", dump.path], stdout=subprocess.DEVNULL, check=True)
        row = f"| `{name}`{', columns' if direction == 'col' else ''} | {args.mebi} Mi | {wrong} | {dump.path.stat().st_size / 1e9:.1f} GB | {measured(command, changed, args.repeats)}"
        if args.exact:
            row += f" | {measured([*command, '--exact'], changed, 1)}"
        print(row + " |", flush=True)
        if changed:
            dump.write(changed)
    dump.path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=lambda text: pathlib.Path(text).absolute(), help="the program assay")
    parser.add_argument("--mebi", type=int, default=64, metavar="N", help="so many Mi elements, a multiple of 4 (default: 64)")
    parser.add_argument("--formats", nargs="+", default=["mxfp8"], metavar="NAME", help=f"of {', '.join(kFormats)}; mxfp8:col for columns (default: mxfp8)")
    parser.add_argument("--wrong", nargs="+", default=kWrong, choices=kWrong, help="what is wrong (default: each)")
    parser.add_argument("--exact", action="store_true", help="once more with the reference alone, one run each")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the least counts (default: 3)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes (default: number of cores)")
    parser.add_argument("--folder", type=pathlib.Path, help="where the dumps lie meanwhile, on a disk: the pages of a file in memory count as memory (default: the folder of temporary files)")
    args = parser.parse_args()
    known = {*kFormats, "mxfp8:col"}
    if args.mebi < 4 or args.mebi % 4 or args.repeats < 1 or not known.issuperset(args.formats):
        parser.error("--mebi takes a multiple of 4, --repeats a number from 1 on, --formats " + ", ".join(sorted(known)))
    print("| format | elements | wrong | file | wall | processor | memory |" + (" `--exact`: wall | processor | memory |" if args.exact else ""))
    print("| --- " * (10 if args.exact else 7) + "|", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="assay-check-speed-", dir=args.folder) as folder:
            for kind in args.formats:
                table(args, kind, pathlib.Path(folder))
    except (Failed, OSError) as error:
        print(f"check_speed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
