#!/usr/bin/env python3
"""What quantize and check cost through Python, beside the same work in the program.

    python3 benchmarks/python_cost.py [--rows 4096] [--cols 4096] [--repeats 5] [--program build/cpu/bin/assay]

The figures are the CPU's time of the process, of the best of several runs on one thread, so that other work on the machine counts little. The program's
part is measured in the same process, in the module's own functions: the call of the module that assay.quantize or assay.check ends in. What Python adds
is the rest: reading the arguments, making the line, making arrays and a verdict. The last rows time `assay check` of the same planes as a pack, with its
start and its reading of the file.
"""
import argparse
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


def best(function, module_function, repeats):
    """(all of the call, the module's part of it) in seconds, of the run in which Python took least."""
    found = []
    for _ in range(repeats):
        with Timed(module_function) as inner:
            start = time.process_time()
            function()
            whole = time.process_time() - start
        found.append((whole - inner.seconds, whole, inner.seconds))
    return min(found)[1:]


def children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rows", 4096), ("cols", 4096), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--program", default=str(pathlib.Path(assay.__file__).parent / "bin/assay"))
    args = parser.parse_args()
    x = assay.fill((args.rows, args.cols), "normal", 1)
    for spec in ("mxfp8", "nvfp4"):
        made = assay.quantize(x, spec, threads=1)
        for name, function, inner in (("quantize", lambda: assay.quantize(x, spec, threads=1), "run"),
                                      ("check", lambda: assay.check(x, made, spec, threads=1), "check")):
            whole, module = best(function, inner, args.repeats)
            print(f"{name:<9} {spec:<6} {args.rows}x{args.cols}   {1e3 * whole:9.1f} ms, of which Python {1e3 * (whole - module):6.2f} ms "
                  f"({100 * (whole - module) / module:+.2f} % of the module's {1e3 * module:.1f} ms)")
        if not os.path.exists(args.program):
            continue
        with tempfile.TemporaryDirectory() as folder:
            pack = assay.Pack()
            pack.add_planes(made.line, {"x": x, **{n: np.asarray(made[n]) for n in made}}, module="m")
            path = pack.write(os.path.join(folder, "case.safetensors"))
            times = []
            for _ in range(args.repeats):
                start = children()
                subprocess.run([args.program, "check", path], check=True, stdout=subprocess.DEVNULL)
                times.append(children() - start)
            print(f"program   {spec:<6} {args.rows}x{args.cols}   {1e3 * min(times):9.1f} ms: assay check of the same planes as a pack")


if __name__ == "__main__":
    main()
