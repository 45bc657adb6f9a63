"""The console command `assay`: the program that came with the package."""
from __future__ import annotations

import os
import pathlib
import sys


def main() -> int:
    program = pathlib.Path(__file__).resolve().parent / "bin/assay"
    if not program.is_file():
        print(f"assay: expected the program at {program}, found none; install the package again: python3 -m pip install .", file=sys.stderr)
        return 2
    os.execv(program, ["assay", *sys.argv[1:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
