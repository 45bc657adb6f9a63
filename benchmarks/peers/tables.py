#!/usr/bin/env python3
"""The table and the chart of a results file: tables.py RESULTS.json md|svg, on the standard output."""
import io
import json
import pathlib
import sys


def named(row):
    return f"{row['library']} {row['how']}".strip()


def bits_text(row):
    """What the bytes are, in words: a time is read only with this beside it."""
    bits = row["bits"]
    if bits["equal"]:
        return "equal"
    differ = ", ".join(f"{name} {count} of {of}" for name, (count, of) in bits["differ"].items()) or "another shape"
    told = f"`flavour={bits['equals']}`" if bits["equals"] else f"**none of ours; expected {bits['expected'] or 'the defaults'}**"
    return f"{told}; from the defaults: {differ}"


def case_title(case):
    rows, cols = case["shape"]
    return f"{case['format']}, {rows}x{cols} {case['source']}"


def case_text(case):
    """A case as lines for a terminal."""
    out = [f"{case_title(case)}, threads={case['threads']}, copy {1e3 * case['copy']['seconds']['min']:.3f} ms, load {case['load']}"]
    for row in case["rows"]:
        if "absent" in row:
            out.append(f"  {named(row):<44} {'FAILED: ' if row.get('failed') else ''}{row['absent'][:110]}")
        else:
            out.append(f"  {named(row):<44} {1e3 * row['seconds']['min']:>10.3f} ms   {bits_text(row)}")
    return "\n".join(out)


def unexpected(document):
    """What fails a run, as sentences."""
    out = []
    for case in document["cases"]:
        for row in case["rows"]:
            where = f"{case_title(case)}, threads={case['threads']}: {named(row)}"
            if row.get("failed"):
                out.append(f"{where} failed: {row['absent']}")
            elif "bits" in row and not row["bits"]["as_expected"]:
                out.append(f"{where}: {bits_text(row)}")
    return out


def by_case(document):
    """{(format, shape, source): {threads: case}} in the order of the file."""
    out = {}
    for case in document["cases"]:
        out.setdefault((case["format"], tuple(case["shape"]), case["source"]), {})[case["threads"]] = case
    return out


def milliseconds(seconds):
    return f"{1e3 * seconds:.3f}" if seconds < 0.01 else f"{1e3 * seconds:.1f}"


def cell(row):
    """Times of a row under one number of threads: minimum, median, processor, ratio to the copy."""
    if row is None or "absent" in row:
        return "–"
    processor = milliseconds(row["processor_seconds"]["min"]) if "processor_seconds" in row else "–"
    ratio = f", {row['ratio_to_copy']:.1f} x copy" if "ratio_to_copy" in row else ""
    return f"{milliseconds(row['seconds']['min'])} / {milliseconds(row['seconds']['median'])} / {processor}{ratio}"


def found(case, library, how):
    rows = [row for row in case["rows"] if row["library"] == library and how in row["how"] and "bits" in row]
    return rows[0] if rows else None


def compiled_of(case):
    """torch.compile's row of the same bytes; else, where none has them, its first row."""
    rows = [row for row in case["rows"] if row["library"] in ("torch", "torchao") and "compiled" in row["how"] and "bits" in row]
    return next((row for row in rows if row["bits"]["equal"]), rows[0] if rows else None)


def ratio_lines(document, threads):
    """How many times as long as assay.quantize torch.compile takes."""
    out = ["| tensor | " + " | ".join(f"{n} thread{'s' if n > 1 else ''}: wall, processor" for n in threads) + " | bits of torch | Assay by |", "| --- |" + " --- |" * (len(threads) + 2)]
    for cases in by_case(document).values():
        cells, by, bits = [], None, "–"
        for n in threads:
            ours, theirs = (found(cases[n], "assay", "assay."), compiled_of(cases[n])) if n in cases else (None, None)
            if not ours or not theirs:
                cells.append("–")
                continue
            by, bits = ours.get("made_by"), bits_text(theirs)
            wall, work = ((theirs[clock]["min"] / max(ours[clock]["min"], 1e-9)) for clock in ("seconds", "processor_seconds"))
            alone = compiled_of(cases[min(cases)])
            waits = alone and n > min(cases) and theirs["processor_seconds"]["min"] > 2 * alone["processor_seconds"]["min"]
            cells.append(f"{wall:.1f}, {work:.1f}{' (waiting)' if waits else ''}")
        out.append(f"| {case_title(next(iter(cases.values())))} | " + " | ".join(cells) + f" | {bits} | {by or '–'} |")
    return out


def assay_text(document):
    """Which Assay it was; nothing in files that do not say so."""
    facts = document.get("assay")
    return f"Assay {facts['version']} of commit {facts['commit']}, vectorised method of sources {facts['simd_sources'] or 'that it does not name'}. " if facts else ""


def markdown(document):
    machine, threads = document["machine"], sorted({case["threads"] for case in document["cases"]})
    loads = [case["load"] for case in document["cases"]]
    out = ["# Other libraries on the same tensors", "",
           "Written by `benchmarks/peers/run --venv DIR` ([how](../README.md#other-libraries)). Do not edit.", "",
           f"Machine: {machine.get('model') or machine['processor']}, {machine['cores']} virtual cores that other work shares, {', '.join(machine.get('vectors', []))}; load average {min(loads)} to {max(loads)} during the run. "
           f"{document['rounds']} rounds, all in turn. {assay_text(document)}Versions: {', '.join(f'{n} {v}' for n, v in document['versions'].items())}.", "",
           "Every cell is `minimum / median / processor time of all threads (minimum)`, in milliseconds, and the minimum as a multiple of a copy of as many bytes, by torch on as many threads. "
           "The copy writes over memory that it has; a quantizer makes new planes. The first column of bits says what the bytes are: equal to the reference's defaults, or those of a flavour "
           "([flavours.md](../../docs/flavours.md)), with the codes that differ from the defaults: that time is one for other bits.", "",
           "## torch.compile against assay.quantize", "",
           "How many times as long as Assay the compiled torchao (or cast of torch) takes, where it can by a call that gives the same bytes: minima of wall time, and of processor time. "
           "(waiting): on several threads it takes more than twice the processor time that it takes on one. OpenMP's threads wait for one another in a loop; where the load is above the number of cores, "
           "that is a wait for other work's time slices, and no speed.", "", *ratio_lines(document, threads), ""]
    for key, cases in by_case(document).items():
        first = next(iter(cases.values()))
        out += [f"## {case_title(first)}", "", f"`{first['line']} {first['shape'][0]}x{first['shape'][1]} {first['source']} fill=normal seed=1`; copy: "
                + ", ".join(f"{milliseconds(c['copy']['seconds']['min'])} ms ({n} thread{'s' if n > 1 else ''})" for n, c in cases.items()) + ".", "",
                "| library | bits | " + " | ".join(f"{n} thread{'s' if n > 1 else ''}" for n in cases) + " |", "| --- | --- |" + " --- |" * len(cases)]
        names = list(dict.fromkeys(named(row) for case in cases.values() for row in case["rows"]))
        rows = {name: {n: next((r for r in case["rows"] if named(r) == name), None) for n, case in cases.items()} for name in names}
        best = lambda name: min((r["seconds"]["min"] for r in rows[name].values() if r and "seconds" in r), default=float("inf"))
        for name in sorted(names, key=best):
            timed = [r for r in rows[name].values() if r and "bits" in r]
            texts = list(dict.fromkeys(bits_text(r) for r in timed))
            by = next((f" ({r['made_by']})" for r in timed if r.get("made_by")), "")
            told = " / ".join(texts) if timed else next(r["absent"] for r in rows[name].values() if r)
            told = told if timed else f"does not run: {told}"
            out.append(f"| {name}{by} | {told.replace('|', chr(92) + '|')} | " + " | ".join(cell(r) for r in rows[name].values()) + " |")
        out.append("")
    return "\n".join(out)


def svg(document):
    """Bars of the largest tensors on one thread: time as a multiple of the copy; colour says what the bytes are."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "assay", "font.size": 8})
    import matplotlib.pyplot as plt
    largest = max(case["shape"][0] * case["shape"][1] for case in document["cases"])
    least = min(case["threads"] for case in document["cases"])
    cases = [c for c in document["cases"] if c["shape"][0] * c["shape"][1] == largest and c["threads"] == least and c["source"] == document["cases"][0]["source"]]
    counts = [sum("ratio_to_copy" in r for r in c["rows"]) for c in cases]
    figure, axes = plt.subplots(len(cases), 1, figsize=(8, 0.5 * len(cases) + 0.19 * sum(counts)), sharex=True, squeeze=False, gridspec_kw={"height_ratios": counts})
    colours = {"ours": "#1b7837", "equal": "#5aae61", "flavour": "#fdb863", "wrong": "#b2182b"}
    for axis, case in zip(axes[:, 0], cases):
        rows = sorted((r for r in case["rows"] if "ratio_to_copy" in r), key=lambda r: -r["ratio_to_copy"])
        kinds = ["wrong" if not r["bits"]["equals"] else "flavour" if not r["bits"]["equal"] else "ours" if r["library"] == "assay" else "equal" for r in rows]
        axis.barh([named(r) for r in rows], [r["ratio_to_copy"] for r in rows], color=[colours[k] for k in kinds])
        for i, (row, kind) in enumerate(zip(rows, kinds)):
            axis.text(row["ratio_to_copy"], i, f" {row['ratio_to_copy']:.1f}{'' if kind in ('ours', 'equal') else ' other bits: ' + (row['bits']['equals'] or 'unexpected')}", va="center", fontsize=6)
        axis.set_xscale("log")
        axis.set_title(case_title(case), loc="left", fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel(f"time as a multiple of a copy of the same bytes, {least} thread; green: the reference's bytes (dark: Assay), orange: a flavour's, red: unexpected")
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": "benchmarks/peers/tables.py"}, bbox_inches="tight")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ("md", "svg"):
        sys.exit(__doc__)
    print({"md": markdown, "svg": svg}[sys.argv[2]](json.loads(pathlib.Path(sys.argv[1]).read_text())))
