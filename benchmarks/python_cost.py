#!/usr/bin/env python3
"""What quantize and check cost through Python, beside the same work in the program.

    python3 benchmarks/python_cost.py [--rows 4096] [--cols 4096] [--repeats 5] [--program build/cpu/bin/assay]

Each repeat runs Python and the program in turn, on one thread, so that what else the machine does falls on both. The program's own times are

- of quantize, under exact=True: what `assay bench` says that the reference took for the line, without its start and its verdict;
- of check: the CPU's time of `assay check` of the same planes as a pack, with its start and its reading of the file.

Python's are those of the call, in seconds of the same clock. The best of each counts. "of which Python" is what the call spends outside of the module's
own function, measured in the process: reading the arguments, making the line, making arrays and a verdict.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import time

import numpy as np

import assay
from assay import _assay


class Timed:
    """The time that one function of the module took."""

    def __init__(self, name):
        self.name, self.original, self.seconds = name, getattr(_assay, name), 0.0

    def __enter__(self):
        setattr(_assay, self.name, self)
        return self

    def __call__(self, *arguments):
        start = time.process_time()
        try:
            return self.original(*arguments)
        finally:
            self.seconds += time.process_time() - start

    def __exit__(self, *_):
        setattr(_assay, self.name, self.original)


def called(function, module_function):
    """(wall, CPU, the CPU's time outside of the module's function) of one call, in seconds."""
    with Timed(module_function) as inner:
        wall, start = time.perf_counter(), time.process_time()
        function()
        cpu = time.process_time() - start
        return time.perf_counter() - wall, cpu, cpu - inner.seconds


def benched(program, line, folder):
    """Seconds that the program's reference takes for a line, as `assay bench` has it."""
    results = os.path.join(folder, "bench.json")
    subprocess.run([program, "bench", line, "--subject", "reference", "--env", "threads=1", "--repetitions", "1", "--min-time", "0.001", "--output", results],
                   check=True, stdout=subprocess.DEVNULL)
    case, = json.loads(pathlib.Path(results).read_text())["results"]
    return case["seconds"]["min"]


def checked(program, pack):
    """The CPU's seconds of `assay check` of a pack."""
    def children():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    start = children()
    subprocess.run([program, "check", pack], check=True, stdout=subprocess.DEVNULL)
    return children() - start


def told(name, spec, python, python_own, program):
    print(f"{name:<9} {spec:<6} Python {1e3 * python:8.1f} ms, program {1e3 * program:8.1f} ms ({100 * (python / program - 1):+.2f} %); "
          f"of which Python {1e3 * python_own:.2f} ms ({100 * python_own / python:.2f} %)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rows", 4096), ("cols", 4096), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--program", default=str(pathlib.Path(assay.__file__).parent / "bin/assay"))
    args = parser.parse_args()
    x = assay.fill((args.rows, args.cols), "normal", 1)
    for spec in ("mxfp8", "nvfp4"):
        made = assay.quantize(x, spec, threads=1)
        with tempfile.TemporaryDirectory() as folder:
            pack = assay.Pack()
            pack.add_planes(made.line, {"x": x, **{n: np.asarray(made[n]) for n in made}}, module="m")
            path = pack.write(os.path.join(folder, "case.safetensors"))
            quantize, check, bench, program = [], [], [], []
            for _ in range(args.repeats):
                quantize.append(called(lambda: assay.quantize(x, spec, threads=1, exact=True), "run"))
                bench.append(benched(args.program, f"{made.line} fill=normal seed=1", folder))
                check.append(called(lambda: assay.check(x, made, spec, threads=1), "check"))
                program.append(checked(args.program, path))
        told("quantize", spec, min(wall for wall, _, _ in quantize), min(own for _, _, own in quantize), min(bench))
        told("check", spec, min(cpu for _, cpu, _ in check), min(own for _, _, own in check), min(program))


if __name__ == "__main__":
    main()
