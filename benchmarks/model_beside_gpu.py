#!/usr/bin/env python3
"""What `assay model` says beside what `assay bench` measured on that GPU: a table in Markdown.

    benchmarks/model_beside_gpu.py bench.json build/cuda/bin/assay --arch h100

Each time is the least of the samples with a cold L2. The last line says how many predictions lie within 15 % of the measurement. Exit status 0: every
line was modelled; 1: the program could not model one.
"""
import argparse
import json
import pathlib
import subprocess
import sys

kWithin = .15


def measured(path):
    """Seconds by line."""
    return {row["line"]: row for row in json.loads(path.read_text())["results"] if row["subject"] == "gpu" and row["temperature"] == "cold"}


def modelled(program, line, arch, nvdisasm):
    tool = ["--nvdisasm", nvdisasm] if nvdisasm else []
    done = subprocess.run([program, "model", line, "--arch", arch, "--json", *tool], capture_output=True, text=True)
    if not done.stdout:
        print(f"{line}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def arguments(description, measured_by, what):
    """The command line: what a GPU measured, and what modelled() needs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(measured_by, type=pathlib.Path, help=what)
    parser.add_argument("program", type=pathlib.Path, help="the program of the preset cuda")
    parser.add_argument("--arch", default="h100", choices=("h100", "h200", "b200"))
    parser.add_argument("--nvdisasm", help="without it machine instructions are not counted")
    return parser.parse_args()


def main():
    args = arguments(__doc__, "bench", "what `assay bench --subject gpu -o` wrote")
    print("| line | measured, us | predicted, us | off | limit |\n| --- | --- | --- | --- | --- |")
    within = rows = 0
    for line, row in measured(args.bench).items():
        model = modelled(args.program, line, args.arch, args.nvdisasm)
        if model is None:
            return 1
        seconds, predicted = row["seconds"]["min"], model["seconds"]
        off = predicted / seconds - 1
        rows += 1
        within += abs(off) <= kWithin
        print(f"| `{line}` | {seconds * 1e6:.1f} | {predicted * 1e6:.1f} | {off * 100:+.0f} % | {model['limit']} |", flush=True)
    print(f"\n{within} of {rows} within {kWithin * 100:.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
