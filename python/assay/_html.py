"""Pictures of verdicts for notebooks: one element without script that loads nothing, light and dark."""
from __future__ import annotations

from html import escape
from typing import Any

# The colours and the layout of the report page (`assay explain --html`), below one class so that they touch nothing else of a notebook.
_STYLE = """
.assay{--ink:#1d1d1b;--quiet:#5f605c;--rule:#d9d9d2;--strong:#a9aaa2;--raised:#f4f4f0;--bad:#a3261a;--bad-ground:#fbe9e4;--warn:#8a5a00;--good:#2b6b35;
color:var(--ink);font:14px/1.5 system-ui,sans-serif;max-width:66rem}
@media(prefers-color-scheme:dark){.assay{--ink:#e8e8e3;--quiet:#a5a69f;--rule:#3b3c39;--strong:#6b6c66;--raised:#242523;--bad:#ff9a88;--bad-ground:#3c211c;--warn:#e8b860;--good:#8fce98}}
.assay h1,.assay h2{font-size:1.15rem;margin:.6rem 0}.assay table{border-collapse:collapse;background:none}.assay td,.assay th{text-align:left;padding:.15rem .8rem .15rem 0;border-bottom:1px solid var(--rule)}
.assay td.n,.assay th.n{text-align:right}.assay code,.assay pre{font:12.5px/1.45 ui-monospace,monospace;background:none;color:inherit}.assay pre{white-space:pre-wrap;margin:.4rem 0}
.assay .bad{color:var(--bad);font-weight:650}.assay .good{color:var(--good);font-weight:650}.assay tr.differs>*{background:var(--bad-ground)}
.assay .eyebrow,.assay .facts dt{color:var(--quiet);font-size:.9rem}.assay .facts{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:.8rem 2rem}.assay .facts dd{margin:0}
.assay .stages{list-style:none;padding:0;display:grid;grid-template-columns:repeat(9,minmax(0,1fr));gap:.4rem}.assay .stages li{background:var(--raised);border-top:3px solid var(--rule);padding:.4rem;font-size:.85rem;overflow-wrap:anywhere}
.assay .stages span{display:block}.assay .stages .differs{border-top-color:var(--bad);background:var(--bad-ground)}.assay .stages .follows{border-top-style:dashed}
.assay .map{margin:0;display:inline-grid;grid-template-columns:auto minmax(0,auto);gap:.2rem .5rem;font-size:.82rem;color:var(--quiet)}.assay .map .ends{display:flex;justify-content:space-between}.assay .map .tall{flex-direction:column}
.assay .map svg{max-width:100%;height:auto;display:block}.assay .map .corner{grid-column:1}.assay .legend{list-style:none;display:flex;gap:.3rem .8rem;padding:0;font-size:.82rem}.assay .legend svg{width:.95rem;height:.95rem}
.assay .h0{fill:#e9e9e4}.assay .h1{fill:#f5d3b5}.assay .h2{fill:#eba674}.assay .h3{fill:#d76f40}.assay .h4{fill:#ad391c}.assay .h5{fill:#5f1207}
@media(prefers-color-scheme:dark){.assay .h0{fill:#2b2c2a}.assay .h1{fill:#5a3320}.assay .h2{fill:#944d28}.assay .h3{fill:#cb6e38}.assay .h4{fill:#f0a36b}.assay .h5{fill:#ffe3c6}}
""".replace("\n", "")


def frame(body: str) -> str:
    return f'<div class="assay"><style>{_STYLE}</style>{body}</div>'


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
    return frame(f"<p>{head} <code>{escape(v.line)}</code></p>{table}{said}")


def diagnosis(d: Any) -> str:
    return frame(d.html + heat_map(d.facts.get("heat")))


def heat_map(heat: Any) -> str:
    """How the differences of the first plane lie in the tensor: one path for each of six levels, at most 64 by 64 tiles."""
    if not heat:
        return ""
    levels: list[list[str]] = [[] for _ in range(6)]
    cols = heat["cols"]
    for i, (differ, of) in enumerate(zip(heat["differ"], heat["of"])):
        share = differ / of if of else 0.0
        level = 0 if differ == 0 else min(5, 1 + int(share * 5))
        levels[level].append(f"M{i % cols} {i // cols}h1v1h-1z")
    paths = "".join(f'<path class="h{n}" d="{"".join(tiles)}"/>' for n, tiles in enumerate(levels) if tiles)
    side = max(4, min(14, 640 // max(cols, 1)))
    legend = ", ".join(["none", "up to 20 %", "40 %", "60 %", "80 %", "all"])
    return (f'<h2>Where <code>{escape(heat["plane"])}</code> differs</h2><svg viewBox="0 0 {cols} {heat["rows"]}" width="{cols * side}" '
            f'height="{heat["rows"] * side}" shape-rendering="crispEdges" role="img" aria-label="share of elements that differ in each tile">{paths}</svg>'
            f'<p class="eyebrow">a tile is {heat["tile_rows"]} x {heat["tile_cols"]} elements; from light to dark: {legend}</p>')


def trace(t: Any) -> str:
    cell = lambda c: f"<code>{escape(c['hex'])}</code> {escape(c['value'])}" if c else "–"
    rows = "".join(f'<tr{" class=differs" if s.differs else ""}><td>{escape(s.clause)}</td><td>{escape(s.what)}</td><td>{cell(s.reference)}</td>'
                   f'<td>{cell(s.outputs)}</td></tr>' for s in [*t.steps, *t.outputs])
    return frame(f"<p>element ({t.row}, {t.col}), {escape(t.direction)}, of <code>{escape(t.line)}</code></p><table><thead><tr><th>clause</th><th>step</th>"
                 f"<th>reference</th><th>outputs</th></tr></thead><tbody>{rows}</tbody></table>")
