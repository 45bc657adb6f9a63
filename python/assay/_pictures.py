"""Drawings as inline SVG, for notebooks: heat maps, bars, a chain of boxes, a number line. Nothing loads anything, nothing runs."""
from __future__ import annotations

from html import escape
from typing import Any, Sequence

kLevels = ("none", "up to 20 %", "40 %", "60 %", "80 %", "all")


def svg(width: float, height: float, body: str, label: str) -> str:
    return (f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" aria-label="{escape(label, quote=True)}" '
            f'style="max-width:100%;height:auto">{body}</svg>')


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(words)}</text>'


def tile_map(levels: Sequence[Sequence[int]], label: str, most_width: int = 640) -> str:
    """One square for each tile in one of six colours: one path a colour, so that 64 x 64 tiles stay below 70 kB."""
    rows, cols = len(levels), max((len(r) for r in levels), default=0)
    if not rows or not cols:
        return ""
    paths: list[list[str]] = [[] for _ in range(6)]
    for y, row in enumerate(levels):
        at = 0
        while at < cols:   # runs of one colour are one rectangle
            end = at
            while end < cols and row[end] == row[at]:
                end += 1
            paths[row[at]].append(f"M{at} {y}h{end - at}v1h-{end - at}z")
            at = end
    drawn = "".join(f'<path class="h{n}" d="{"".join(tiles)}"/>' for n, tiles in enumerate(paths) if tiles)
    side = max(4, min(14, most_width // cols, 448 // rows))
    return (f'<svg viewBox="0 0 {cols} {rows}" width="{cols * side}" height="{rows * side}" shape-rendering="crispEdges" role="img" '
            f'aria-label="{escape(label, quote=True)}" style="max-width:100%;height:auto">{drawn}</svg>')


def legend(words: Sequence[str]) -> str:
    boxes = "".join(f'<span><svg viewBox="0 0 1 1" width="12" height="12"><path class="h{n}" d="M0 0h1v1h-1z"/></svg> {escape(w)}</span>'
                    for n, w in enumerate(words))
    return f'<p class="key">{boxes}</p>'


def bars(rows: Sequence[tuple[str, Sequence[float], str]], series: Sequence[str], label: str, width: int = 470) -> str:
    """Horizontal bars: (name, a value for each series, the words at their end). The longest bar fills the width."""
    if not rows:
        return ""
    longest = max((v for _, values, _ in rows for v in values), default=0) or 1
    left = 12 + 7 * max(len(name) for name, _, _ in rows)
    right = 12 + 7 * max(len(words) for _, _, words in rows)
    room, high = max(60, width - left - right), 8 * len(series) + 8
    drawn = []
    for n, (name, values, words) in enumerate(rows):
        y = n * high
        drawn.append(text(left - 6, y + high / 2 + 4, name, "quiet", "end"))
        drawn += [f'<rect class="s{i}" x="{left}" y="{y + 4 + 8 * i}" width="{max(room * v / longest, 1 if v else 0):.1f}" height="7"/>' for i, v in enumerate(values)]
        drawn.append(text(left + room * max(values) / longest + 6, y + high / 2 + 4, words, "quiet"))
    key = ""
    if len(series) > 1:
        key = '<p class="key">' + "".join(f'<span><svg viewBox="0 0 1 1" width="12" height="12"><path class="s{i}" d="M0 0h1v1h-1z"/></svg> {escape(s)}</span>'
                                          for i, s in enumerate(series)) + "</p>"
    return key + svg(left + room + right, len(rows) * high + 4, "".join(drawn), label)


def chain(steps: Sequence[dict[str, Any]]) -> str:
    """Boxes from left to right, in lines of four: what each step is, its value, its bits; one that differs is red and says both values."""
    wide, high, gap, across = 168, 88, 22, 4
    drawn = []
    for n, step in enumerate(steps):
        x, y = n % across * (wide + gap), n // across * (high + 26)
        bad = step["differs"]
        drawn.append(f'<rect class="{"box bad-box" if bad else "box"}" x="{x + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" rx="4"/>')
        drawn.append(text(x + 8, y + 16, _cut(step["clause"] or "output", 20), "quiet"))
        drawn += [text(x + 8, y + 31 + 13 * i, part) for i, part in enumerate(_folded(step["what"], 20))]
        drawn += [text(x + 8, y + 60 + 17 * i, _cut(words, 20), kind) for i, (words, kind) in enumerate(step["values"][:2])]
        if n + 1 < len(steps):
            if (n + 1) % across:
                drawn.append(f'<path class="arrow" d="M{x + wide + 2} {y + high / 2:g}h{gap - 6}m-5 -4l5 4l-5 4"/>')
            else:
                drawn.append(f'<path class="arrow" d="M{x + wide / 2:g} {y + high + 2}v11H{wide / 2:g}v9m-4 -5l4 5l4 -5"/>')
    lines = -(-len(steps) // across)
    return svg(min(len(steps), across) * (wide + gap) - gap, lines * (high + 26) - 22, "".join(drawn), "the element's chain of roundings")


def number_line(low: float, high: float, marks: Sequence[tuple[float, str, str]], label: str) -> str:
    """Marks (value, words, class) between two neighbouring codes: the value that is rounded, and where each side went."""
    if not high > low:
        return ""
    at = lambda v: 90 + 460 * min(max((v - low) / (high - low), -0.15), 1.15)
    drawn = ['<path class="axis" d="M20 72H620"/>']
    middle = at((low + high) / 2)
    drawn.append(f'<path class="axis" stroke-dasharray="2 3" d="M{middle:g} 60v24"/>' + text(middle, 98, "halfway", "quiet", "middle"))
    for value in (low, high):
        drawn.append(f'<path class="axis" d="M{at(value):g} 64v16"/>' + text(at(value), 98, f"{value:g}", "quiet", "middle"))
    for n, (value, words, kind) in enumerate(marks):
        y = 14 + 15 * (n % 3)
        drawn.append(f'<path class="{kind}-line" d="M{at(value):g} {y + 4}V70"/><circle class="{kind}-dot" cx="{at(value):g}" cy="72" r="4"/>'
                     + text(at(value), y, words, kind, "middle"))
    return svg(640, 106, "".join(drawn), label)


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _folded(words: str, most: int) -> list[str]:
    rows: list[str] = []
    for word in words.split():
        if rows and len(rows[-1]) + 1 + len(word) <= most:
            rows[-1] += " " + word
        else:
            rows.append(word)
    return [_cut(r, most) for r in (rows if len(rows) <= 2 else [rows[0], " ".join(rows[1:])])]
