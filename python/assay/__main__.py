"""The console command `assay`: the program that came with the package, and the commands `watch` and `report` of the package itself."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys

_OWN = """The Python package adds:
  watch                       Judge packs as they come, beside a training job.
  report                      Merge the verdicts of several nodes.
"""


def main() -> int:
    words = sys.argv[1:]
    if words[:1] in (["watch"], ["report"]):
        from ._watch_command import main as run
        return run(words[0], words[1:])
    program = pathlib.Path(__file__).resolve().parent / "bin/assay"
    if not program.is_file():
        print(f"assay: expected the program at {program}, found none; install the package again: python3 -m pip install .", file=sys.stderr)
        return 2
    # The program calls a function of --python in this interpreter.
    os.environ.setdefault("ASSAY_PYTHON", sys.executable)
    if words in ([], ["--help"], ["-h"]):
        status = subprocess.run([program, *words]).returncode
        print(_OWN, end="")
        return status
    os.execv(program, ["assay", *words])
    return 0


if __name__ == "__main__":
    sys.exit(main())
