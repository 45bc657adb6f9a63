"""Pictures of verdicts for notebooks: one element without script that loads nothing, light and dark."""
from __future__ import annotations

from html import escape
from typing import Any

from . import _pictures

kMostBytes = 200_000   # of one picture

# The colours and the layout of the report page (`assay explain --html`), below one class so that they touch nothing else of a notebook.
_STYLE = """
.assay{@LIGHT@;color:var(--ink);font:14px/1.5 system-ui,sans-serif;max-width:66rem}
.assay h1,.assay h2{font-size:1.15rem;margin:.6rem 0}.assay table{border-collapse:collapse;background:none}.assay td,.assay th{text-align:left;padding:.15rem .8rem .15rem 0;border-bottom:1px solid var(--rule)}
.assay td.n,.assay th.n{text-align:right}.assay code,.assay pre{font:12.5px/1.45 ui-monospace,monospace;background:none;color:inherit}.assay pre{white-space:pre-wrap;margin:.4rem 0}
.assay .bad{color:var(--bad);font-weight:650}.assay .good{color:var(--good);font-weight:650}.assay tr.differs>*{background:var(--bad-ground)}
.assay .eyebrow,.assay .facts dt{color:var(--quiet);font-size:.9rem}.assay .facts{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:.8rem 2rem}.assay .facts dd{margin:0}
.assay .stages{list-style:none;padding:0;display:grid;grid-template-columns:repeat(9,minmax(0,1fr));gap:.4rem}.assay .stages li{background:var(--raised);border-top:3px solid var(--rule);padding:.4rem;font-size:.85rem;overflow-wrap:anywhere}
.assay .stages span{display:block}.assay .stages .differs{border-top-color:var(--bad);background:var(--bad-ground)}.assay .stages .follows{border-top-style:dashed}
.assay .map{margin:0;display:inline-grid;grid-template-columns:auto minmax(0,auto);gap:.2rem .5rem;font-size:.82rem;color:var(--quiet)}.assay .map .ends{display:flex;justify-content:space-between}.assay .map .tall{flex-direction:column}
.assay .map svg{max-width:100%;height:auto;display:block}.assay .map .corner{grid-column:1}.assay .legend{list-style:none;display:flex;gap:.3rem .8rem;padding:0;font-size:.82rem}.assay .legend svg{width:.95rem;height:.95rem}
.assay .h0{fill:var(--h0)}.assay .h1{fill:var(--h1)}.assay .h2{fill:var(--h2)}.assay .h3{fill:var(--h3)}.assay .h4{fill:var(--h4)}.assay .h5{fill:var(--h5)}
.assay .s0{fill:var(--h3)}.assay .s1{fill:var(--strong)}.assay svg text{font:12px ui-monospace,monospace;fill:var(--ink)}.assay svg .quiet{fill:var(--quiet)}
.assay svg .bad{fill:var(--bad);font-weight:650}.assay svg .good{fill:var(--good)}.assay .box{fill:var(--raised);stroke:var(--rule)}.assay .bad-box{fill:var(--bad-ground);stroke:var(--bad)}
.assay .arrow,.assay .axis{fill:none;stroke:var(--strong);stroke-width:1.2}.assay .bad-line{stroke:var(--bad)}.assay .good-line{stroke:var(--good)}.assay .ink-line{stroke:var(--ink)}
.assay .bad-dot{fill:var(--bad)}.assay .good-dot{fill:var(--good)}.assay .ink-dot{fill:var(--ink)}.assay .key{display:flex;flex-wrap:wrap;gap:.2rem .9rem;color:var(--quiet);font-size:.82rem;margin:.3rem 0}
.assay .side-by-side{display:flex;flex-wrap:wrap;gap:.5rem 2.5rem}.assay .side-by-side>div{min-width:0}
""".replace("\n", "")
_LIGHT = ("--ink:#1d1d1b;--quiet:#5f605c;--rule:#d9d9d2;--strong:#a9aaa2;--raised:#f4f4f0;--bad:#a3261a;--bad-ground:#fbe9e4;--warn:#8a5a00;--good:#2b6b35;"
          "--h0:#e9e9e4;--h1:#f5d3b5;--h2:#eba674;--h3:#d76f40;--h4:#ad391c;--h5:#5f1207")
_DARK = ("--ink:#e8e8e3;--quiet:#a5a69f;--rule:#3b3c39;--strong:#6b6c66;--raised:#242523;--bad:#ff9a88;--bad-ground:#3c211c;--warn:#e8b860;--good:#8fce98;"
         "--h0:#2b2c2a;--h1:#5a3320;--h2:#944d28;--h3:#cb6e38;--h4:#f0a36b;--h5:#ffe3c6")
# The reader's system decides, and a notebook that says its own theme (Jupyter, VS Code) has the last word.
_THEMES = (f"@media(prefers-color-scheme:dark){{.assay{{{_DARK}}}}}[data-jp-theme-light=false] .assay,.vscode-dark .assay{{{_DARK}}}"
           f"[data-jp-theme-light=true] .assay,.vscode-light .assay{{{_LIGHT}}}")


_ALL = _STYLE.replace("@LIGHT@", _LIGHT) + _THEMES


def frame(*parts: str) -> str:
    """Parts below one another, the first the most important: what would make the picture larger than kMostBytes is left out from the end."""
    kept, left = list(parts), 0
    while True:
        said = "" if not left else f'<p class="eyebrow">{left} more pictures are left out: together they are larger than {kMostBytes // 1000} kB</p>'
        whole = f'<div class="assay"><style>{_ALL}</style>{"".join(kept)}{said}</div>'
        if len(whole.encode()) <= kMostBytes:
            return whole
        if len(kept) <= 1:   # even the first does not fit
            return f'<div class="assay"><style>{_ALL}</style><p>This picture would be larger than {kMostBytes // 1000} kB; print() shows the text.</p></div>'
        kept.pop()
        left += 1


def screen(text: str, good: bool) -> str:
    head, _, rest = text.partition("\n")
    return frame(f'<pre><span class="{"good" if good else "bad"}">{escape(head)}</span>\n{escape(rest)}</pre>')


def verdict(v: Any) -> str:
    rows = "".join(
        f'<tr{"" if p.ok else " class=differs"}><th><code>{escape(n)}</code></th><td>{escape(p.encoding)}</td><td class=n>{p.differ:,} of {p.of:,}</td>'
        f'<td>{escape(p.where)}</td><td><code>{escape(p.got_value)}</code></td><td><code>{escape(p.want_value)}</code></td></tr>'
        for n, p in v.planes.items())
    head = '<span class="good">equal</span>' if v.ok else '<span class="bad">different</span>'
    table = ('<table><thead><tr><th>plane</th><th>encoding</th><th class=n>differ</th><th>first</th><th>outputs</th><th>reference</th></tr></thead>'
             f'<tbody>{rows}</tbody></table>')
    said = "".join(f"<p>{escape(t)}</p>" for t in [v.cause or (v.first.hint if v.first else ""), *v.notes] if t)
    return frame(f"<p>{head} <code>{escape(v.line)}</code></p>{table}{said}", *plane_pictures(v))


def plane_pictures(v: Any) -> list[str]:
    """Of the first plane that differs: where its differences lie, how far apart codes are, and which exponents came."""
    name = v.first.plane if v.first else ""
    if v.case is None or name not in v.planes or v.planes[name].of <= 1:
        return []
    from ._codes import both_sides, exponents, has_exponent, in_order, tiles
    sides = both_sides(v.case.line, v.case.planes, name)
    if sides is None:
        return []
    got, want = sides
    encoding, differs = v.planes[name].encoding, got != want
    if int(differs.sum()) != v.planes[name].differ:
        return ['<p class="eyebrow">No picture: the arrays that were judged have changed since, or differ in the padding alone.</p>']
    share, (high, wide) = tiles(differs.astype("int64"))
    of, _ = tiles((differs | True).astype("int64"))
    heat = {"plane": name, "rows": share.shape[0], "cols": share.shape[1], "tile_rows": high, "tile_cols": wide,
            "differ": share.reshape(-1).tolist(), "of": of.reshape(-1).tolist()}
    parts = [heat_map(heat)]
    apart = (in_order(got, encoding) - in_order(want, encoding))[differs].tolist()
    parts.append(f"<h2>How far apart the codes of <code>{escape(name)}</code> are</h2>" + _pictures.bars(_apart(apart), ["elements"], "codes apart"))
    if has_exponent(encoding):
        parts.append(f"<h2>Exponents of <code>{escape(name)}</code></h2>"
                     + _pictures.bars(_counted(exponents(got, encoding), exponents(want, encoding)), ["outputs", "reference"], "exponents"))
    return [f'<div class="side-by-side"><div>{parts[0]}</div><div>{"".join(parts[1:])}</div></div>']


_APART = [("-8 and below", None, -8), ("-7 .. -4", -7, -4), ("-3 .. -2", -3, -2), ("-1", -1, -1), ("0, other bits", 0, 0), ("+1", 1, 1), ("+2 .. +3", 2, 3), ("+4 .. +7", 4, 7),
          ("+8 and above", 8, None)]


def _apart(distances: list[int]) -> list[tuple[str, list[float], str]]:
    rows = []
    for words, low, high in _APART:
        n = sum(1 for d in distances if (low is None or d >= low) and (high is None or d <= high))
        if n or words in ("-1", "+1"):
            rows.append((words, [float(n)], f"{n:,}"))
    return rows


def _counted(got: Any, want: Any, most: int = 24) -> list[tuple[str, list[float], str]]:
    """How many elements of each side have each exponent; where there are more than `most`, several share a bar."""
    low, high = int(min(got.min(), want.min())), int(max(got.max(), want.max()))
    step = -(-(high - low + 1) // most)
    rows = []
    for start in range(low, high + 1, step):
        ours, theirs = (int(((s >= start) & (s < start + step)).sum()) for s in (got, want))
        if ours or theirs:
            rows.append((f"2^{start}" if step == 1 else f"2^{start}..2^{min(start + step - 1, high)}", [float(ours), float(theirs)], f"{ours:,} / {theirs:,}"))
    return rows


def diagnosis(d: Any) -> str:
    return frame(d.html, heat_map(d.facts.get("heat")), *histograms(d.facts))


_HISTOGRAMS = [("code_distance", "codes apart"), ("exponent", "by the magnitude of the reference's value"), ("tie_distance", "by the distance of x from a tie, in codes")]


def histograms(facts: Any) -> list[str]:
    """What the diagnosis counted of each plane that differs, as bars."""
    parts = []
    for plane in facts.get("planes", []):
        drawn = []
        for key, words in _HISTOGRAMS:
            rows = [(b["bucket"], [float(b["differ"])], f"{b['differ']:,}" + (f" of {b['of']:,}" if "of" in b else "")) for b in plane.get(key, [])]
            if rows:
                drawn.append(f"<div><p class=eyebrow>{words}</p>{_pictures.bars(rows, ['elements'], words, 400)}</div>")
        if drawn:
            parts.append(f"<h2>Differences of <code>{escape(plane['plane'])}</code></h2><div class=side-by-side>{''.join(drawn)}</div>")
    return parts


def heat_map(heat: Any) -> str:
    """How the differences of the first plane lie in the tensor: at most 64 by 64 tiles in six colours."""
    if not heat or not heat["cols"]:
        return ""
    cols = heat["cols"]
    shares = [(d / of if of else 0.0) for d, of in zip(heat["differ"], heat["of"])]
    levels = [0 if not s else min(5, 1 + int(s * 5)) for s in shares]
    rows = [levels[i:i + cols] for i in range(0, len(levels), cols)]
    return (f'<h2>Where <code>{escape(heat["plane"])}</code> differs</h2>{_pictures.tile_map(rows, "share of elements that differ in each tile")}'
            f'{_pictures.legend(_pictures.kLevels)}<p class="eyebrow">a tile is {heat["tile_rows"]} x {heat["tile_cols"]} elements</p>')


def trace(t: Any) -> str:
    cell = lambda c: f"<code>{escape(c['hex'])}</code> {escape(c['value'])}" if c else "–"
    rows = "".join(f'<tr{" class=differs" if s.differs else ""}><td>{escape(s.clause)}</td><td>{escape(s.what)}</td><td>{cell(s.reference)}</td>'
                   f'<td>{cell(s.outputs)}</td></tr>' for s in [*t.steps, *t.outputs])
    return frame(f"<p>element ({t.row}, {t.col}), {escape(t.direction)}, of <code>{escape(t.line)}</code></p>" + _pictures.chain([_box(s) for s in [*t.steps, *t.outputs]]),
                 _last_rounding(t), f"<table><thead><tr><th>clause</th><th>step</th><th>reference</th><th>outputs</th></tr></thead><tbody>{rows}</tbody></table>")


def _box(s: Any) -> dict[str, Any]:
    """One step of the chain: where both sides agree, its value and its bits; else both values."""
    if s.differs and s.reference and s.outputs:
        values = [(s.outputs["value"] + " came", "bad"), (s.reference["value"] + " reference", "good")]
    else:
        known = s.reference or s.outputs or {"value": "–", "hex": "", "encoding": ""}
        values = [(known["value"], ""), (f"{known['hex']} {known['encoding']}", "quiet")]
    return {"clause": s.clause, "what": s.what, "values": values, "differs": s.differs}


def _last_rounding(t: Any) -> str:
    """The number that is rounded between its neighbouring codes, where the trace has both and they are finite."""
    rounded = next((i for i, s in reversed(list(enumerate(t.steps))) if s.clause.startswith("N2") and s.reference), None)
    if not rounded:
        return ""
    before, code = t.steps[rounded - 1].reference, t.steps[rounded].reference
    near = _neighbours(before, code)
    if near is None:
        return ""
    value, low, high = near
    marks = [(value, f"{value:g}", "ink"), (float(code["value"]), "reference", "good")]
    came = next((s.outputs for s in t.outputs if s.differs and s.outputs and s.outputs["encoding"] == code["encoding"] and ".data" in s.what), None)
    if came:
        try:
            marks.append((float(came["value"]), f"outputs {came['value']}", "bad"))
        except ValueError:
            pass
    return f"<p class=eyebrow>The last rounding, to {escape(code['encoding'])}</p>" + _pictures.number_line(low, high, marks, "the last rounding")


def _neighbours(before: Any, code: Any) -> tuple[float, float, float] | None:
    """The value, and the two codes between which it lies."""
    from ._arrays import ml_dtypes, numpy
    np, ml = numpy(), ml_dtypes()
    name = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m1": "float4_e2m1fn"}.get(code["encoding"])
    if np is None or name is None or not hasattr(ml, name) or not before or before["encoding"] != "f32":
        return None
    value = float(np.array(before["code"], np.uint32).view(np.float32))
    count = 16 if name == "float4_e2m1fn" else 256
    known = np.arange(count, dtype=np.uint8).view(getattr(ml, name)).astype(np.float64)
    known = np.unique(known[np.isfinite(known)])
    if not np.isfinite(value) or not known[0] < value < known[-1]:
        return None
    at = int(np.searchsorted(known, value, "right"))
    return value, float(known[at - 1]), float(known[min(at, len(known) - 1)])
