#!/usr/bin/env python3
"""A folded build behaves, for each of its edits, as the source with that edit alone does (ci/fold.py): compiled and run, on sample.inc.

The last line is `N passed, N failed, N skipped`, of edits that compile alone, and the program without edits.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

kHere = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(kHere.parents[2] / "ci"))
import fold  # noqa: E402
from tally import Tally, finish  # noqa: E402

kRules = [(r"\+=", "-="), (r" \+ ", " - "), (r" - ", " + "), (r" < ", " <= "), (r" == ", " != "), (r"\b[1-9]\b", "7"), (r" \? ", " != 0 ? "), (r"return; *$", ";")]
kLeft = {"constexpr int kLimit = 7;", "explicit Sum(int start) : total(start - 1) {}", "explicit Sum(int start) : total(start + 7) {}"}   # outside of functions


def edits(source):
    """Each edit of a line alone, and pairs of edits of different lines, as lists of (line, its text)."""
    single = []
    for n, line in enumerate(source.splitlines(), 1):
        for pattern, new in kRules if not re.match(r"//|#|static_assert", line) else ():
            for found in re.finditer(pattern, line):
                text = line[:found.start()] + new + line[found.end():]
                if text != line:
                    single.append((n, text))
    pairs = [[a, b] for a, b in zip(single, single[2:]) if a[0] != b[0]]
    return dict(enumerate([[one] for one in single] + pairs, 1))


def edited(source, lines_edited):
    lines = source.splitlines()
    for line, text in lines_edited:
        lines[line - 1] = text
    return "\n".join(lines) + "\n"


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
    all_edits = edits(source)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / fold.kHeaderName).write_text(fold.kHeader.replace("@COUNT@", str(len(all_edits))))
        alone = {number: ran(folder, edited(source, lines)) for number, lines in all_edits.items()}
        good = {number: lines for number, lines in all_edits.items() if alone[number] is not None}
        plain = ran(folder, source)
        folded = fold.Fold(source, {number: [fold.edit_of_line(source, *line) for line in lines] for number, lines in good.items()})
        left = {text.strip() for number in folded.left if len(good[number]) == 1 for _, text in good[number]}
        if left != kLeft or any(not kLeft & {text.strip() for _, text in good[number]} for number in folded.left):
            print(f"not folded: {sorted(left)}\nexpected: {sorted(kLeft)}, and pairs with one of them")
            tally.failed += 1
        none = ran(folder, folded.text)
        tally += Tally(passed=none == plain, failed=none != plain)
        for number, lines in good.items():
            if number in folded.left:
                continue
            printed = ran(folder, None, number)
            tally += Tally(passed=printed == alone[number], failed=printed != alone[number])
            if printed != alone[number]:
                print(f"sample.inc: {lines}: alone {alone[number]!r}, folded {printed!r}")
        if len({str(v) for v in alone.values()}) < len(good) // 2:
            print("the edits of the sample hardly differ: nothing is shown")
            tally.failed += 1
    finish(tally)


if __name__ == "__main__":
    main()
