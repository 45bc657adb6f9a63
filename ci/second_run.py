"""Adds up what the interpreter of PTX and a GPU made of the same launches (fast/silicon).

A program of the preset `gpu` repeats every launch of the interpreter on the GPU where the environment names a folder, ASSAY_SECOND_RUN, and leaves
there one file of JSON lines for each process, and the texts of launches that were not equal.
"""
import collections
import json
import re

from tally import Tally

# What the PTX ISA leaves open, so that two machines may differ: results with a bound alone, the order of floating-point atomics, clocks and places.
kLeftOpen = re.compile(r"\.approx|\bdiv\.full|\b(?:atom|red)\b[^;]*\.add[^;]*\.(?:f16|bf16|f32|f64)|%(?:clock|globaltimer|smid|warpid|nsmid|gridid)|activemask")
# A text in which ptxas may fuse a product with a sum, because neither names a rounding. Whether it did is for a reader to say.
kFloat = r"(?:f16|bf16|f16x2|bf16x2|f32|f32x2|f64)"
kFused = re.compile(rf"\bmul(?:\.ftz)?(?:\.sat)?\.{kFloat}\b[\s\S]*\b(?:add|sub)(?:\.ftz)?(?:\.sat)?\.{kFloat}\b")
kDiffersOpen, kDiffersFused = "differs where the ISA leaves the bits open", "differs where ptxas may fuse a product"


def rows_of(folder):
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # the process ended while it wrote
                yield {"outcome": "cut short", "text": "", "entry": path.name}


def text_of(folder, name):
    path = folder / f"{name}.ptx"
    return path.read_text(errors="replace") if name and path.is_file() else ""


def added_up(folder):
    """Outcomes by how often, and one row for each text and outcome that is not `equal`."""
    counts, kept = collections.Counter(), {}
    for row in rows_of(folder):
        outcome = row["outcome"]
        if outcome == "differs" and kLeftOpen.search(text_of(folder, row["text"])):
            outcome = kDiffersOpen
        elif outcome == "differs" and kFused.search(text_of(folder, row["text"])):
            outcome = kDiffersFused
        counts[outcome] += 1
        if outcome != "equal":
            first = kept.setdefault((row["text"], outcome, row["entry"]), {**row, "outcome": outcome, "times": 0})
            first["times"] += 1
    return counts, list(kept.values())


def judged(folder, file):
    """Writes the rows to a file, texts included, prints the counts, and returns the tally: a launch that differs or ends has failed, and one that the
    driver refused is skipped."""
    counts, kept = added_up(folder)
    for row in kept:
        row["ptx"] = text_of(folder, row["text"])[:20000]
    file.write_text(json.dumps({"launches": dict(counts), "not_equal": kept}, indent=1) + "\n")
    for outcome, times in counts.most_common():
        print(f"  {times:6d} launches: {outcome}")
    skipped = counts["refused"] + counts["not launched"] + counts[kDiffersOpen] + counts[kDiffersFused]
    return Tally(counts["equal"], sum(counts.values()) - counts["equal"] - skipped, skipped)
