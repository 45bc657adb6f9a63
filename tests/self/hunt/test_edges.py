#!/usr/bin/env python3
"""Whether libFuzzer sees into a plugin, by either compiler: a line must have more features on the example plugin when that counts its edges or its blocks than when it
counts nothing, and as many once more. And what is no plugin is refused in words.

Needs clang-14 (ci/setup --fuzz). The last line is `N passed, N failed, N skipped`; 1 skipped where there is no clang.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

kRoot = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(kRoot / "ci"))
from tally import Tally, build, finish  # noqa: E402

kLine = "quantize mxfp8 33x70 bf16 dir=row"
kLeast = 30   # features of the plugin's own
kWaits = 2   # features of the judge's waits, which follow from the clock
kCompilers = {
    "clang": ["clang-14", "-fsanitize=fuzzer-no-link,address"],
    "gcc": ["gcc", "-fsanitize-coverage=trace-pc,trace-cmp"],
}
kSources = ["-shared", "-fPIC", "-O1", "-ffp-contract=off", "-I", kRoot, kRoot / "examples/plugin/example_plugin.c", "-lm"]


def said(edges, plugin, folder):
    """What assay_edges says of the one line on that plugin."""
    lines = folder / "lines"
    shutil.rmtree(lines, ignore_errors=True)
    lines.mkdir()
    (lines / "line").write_text(kLine)
    command = [edges, "--subject=plugin", f"--plugin={plugin}", "--most=4096", "-seed=1", "-runs=1", f"-artifact_prefix={folder}/", lines]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=600).stdout


def features(text):
    found = re.search(r"INITED cov: \d+ ft: (\d+)", text)
    if not found:
        print(text[-2000:])
    return int(found[1]) if found else 0


def main():
    if not shutil.which("clang++-14"):
        print("skipped: no clang-14 on this machine; type:  ci/setup --fuzz")
        finish(Tally(skipped=1))
    program = build("fuzz", "assay_edges")
    if program is None:
        finish(Tally(failed=1))
    edges, tally = program.parent / "assay_edges", Tally()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for name, (compiler, *flags) in kCompilers.items():
            counts = []
            for words in [], flags, flags:
                plugin = folder / f"{name}.so"
                subprocess.run([compiler, *words, *kSources, "-o", plugin], check=True)
                counts.append(features(said(edges, plugin, folder)))
            without, counting, again = counts
            good = without > 0 and counting >= without + kLeast and abs(again - counting) <= kWaits
            tally += Tally(passed=good, failed=not good)
            print(f"{name:<6} {without} features where the plugin counts nothing, {counting} and {again} where it counts", flush=True)
        text = said(edges, folder / "lines/line", folder)
        good = "assay_edges: " in text and "libFuzzer" not in text
        tally += Tally(passed=good, failed=not good)
        print(f"{'none':<6} {text.strip()}")
    finish(tally)


if __name__ == "__main__":
    main()
