#!/usr/bin/env python3
"""A folded build behaves, for each of its edits, as the source with that edit alone does (ci/mutant_fold.py): compiled and run, on sample.inc.

The last line is `N passed, N failed, N skipped`, of edits that compile alone, and the program without edits.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

kHere = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(kHere.parents[2] / "ci"))
import mutant_fold  # noqa: E402
from tally import Tally, finish  # noqa: E402

kRules = [(r"\+=", "-="), (r" \+ ", " - "), (r" - ", " + "), (r" < ", " <= "), (r" == ", " != "), (r"\b[1-9]\b", "7"), (r" \? ", " != 0 ? "), (r"return; *$", ";")]
kLeft = {"constexpr int kLimit = 7;", "explicit Sum(int start) : total(start - 1) {}", "explicit Sum(int start) : total(start + 7) {}"}   # outside of functions


def edits(source):
    out = []
    for n, line in enumerate(source.splitlines(), 1):
        for pattern, new in kRules if not re.match(r"//|#|static_assert", line) else ():
            for found in re.finditer(pattern, line):
                text = line[:found.start()] + new + line[found.end():]
                if text != line:
                    out.append((len(out) + 1, n, text))
    return out


def ran(folder, text, number=0):
    """What the program prints; None where it does not compile, "hangs" where it does not end."""
    source, program = folder / "program.cpp", folder / "program"
    if text is not None:
        source.write_text(text)
        if subprocess.run(["c++", "-std=c++20", "-O0", "-w", f"-I{folder}", source, "-o", program], stderr=subprocess.DEVNULL).returncode != 0:
            return None
    try:
        done = subprocess.run([program], env={"ASSAY_MUTANT": str(number)}, stdout=subprocess.PIPE, text=True, timeout=20)
        return done.stdout if done.returncode == 0 else done.returncode
    except subprocess.TimeoutExpired:
        return "hangs"


def main():
    source, tally = (kHere / "sample.inc").read_text(), Tally()
    all_edits, alone = edits(source), {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "assay_mutants.h").write_text(mutant_fold.kHeader.replace("@COUNT@", str(len(all_edits))))
        for number, line, text in all_edits:
            lines = source.splitlines()
            lines[line - 1] = text
            alone[number] = ran(folder, "\n".join(lines) + "\n")
        good = [e for e in all_edits if alone[e[0]] is not None]
        plain = ran(folder, source)
        fold = mutant_fold.Fold(source, good)
        left = {text.strip() for number, _, text in good if number in fold.left}
        if left != kLeft:
            print(f"not folded: {sorted(left)}\nexpected: {sorted(kLeft)}")
            tally.failed += 1
        none = ran(folder, fold.text)
        tally += Tally(passed=none == plain, failed=none != plain)
        for number, line, text in good:
            if number in fold.left:
                continue
            folded = ran(folder, None, number)
            tally += Tally(passed=folded == alone[number], failed=folded != alone[number])
            if folded != alone[number]:
                print(f"sample.inc:{line}: {text.strip()}: alone {alone[number]!r}, folded {folded!r}")
        if len({str(v) for v in alone.values()}) < len(good) // 2:
            print("the edits of the sample hardly differ: nothing is shown")
            tally.failed += 1
    finish(tally)


if __name__ == "__main__":
    main()
