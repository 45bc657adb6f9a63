"""A page of docs/ that a script generates from what the built program answers: written, or held to what it would be (ci/check --generated)."""
import argparse
import difflib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def write_or_check(script, doc, page, make):
    """The command line `ci/<script> [--check] program`: `make(program)` is the text of docs/<page>; --check exits 1 where it is another."""
    parser = argparse.ArgumentParser(prog=f"ci/{script}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help=f"compare docs/{page} instead of writing it")
    parser.add_argument("program")
    args = parser.parse_args()
    path, text = ROOT / "docs" / page, make(pathlib.Path(args.program).resolve())
    old = path.read_text() if path.is_file() else ""
    if not args.check:
        path.write_text(text)
    elif old != text:
        print("\n".join(list(difflib.unified_diff(old.splitlines(), text.splitlines(), f"docs/{page}", "generated", lineterm="", n=0))[:20]))
        sys.exit(f"docs/{page} is not up to date: ci/{script} build/cpu/bin/assay writes it")
