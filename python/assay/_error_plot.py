"""Where a format itself loses, and where a kernel does: errors of the reference's values and of those that came, beside one another."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import Any, Mapping, Sequence

from . import _html, _pictures
from ._arrays import array_of, numpy
from ._errors import PlaneError
from ._given import Case
from ._judge import _case


@dataclass
class ErrorPlot:
    """Errors of one direction, against x. The format's is that of the reference's codes; the kernel's is what the outputs add to it.

    line, direction       what was judged
    format_db, outputs_db the signal-to-noise ratios of the reference and of the outputs, in dB (inf without any error)
    kernel_db             the ratio of x to what the outputs differ from the reference by (inf where they are equal)
    binades               for each power of two of |x|: {"exponent", "elements", "format", "kernel"}, both as root mean squares relative to x
    worst                 the elements whose outputs differ from the reference's value most, relative to x: {"row", "col", "x", "reference", "outputs"}
    left_out              elements that are not finite in x or on a side
    """

    line: str
    direction: str
    format_db: float
    outputs_db: float
    kernel_db: float
    binades: list[dict[str, Any]]
    worst: list[dict[str, Any]]
    left_out: int
    notes: list[str] = field(default_factory=list)
    maps: dict[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        rows = [f"errors   {self.line}", f"  {self.direction}s     format {_db(self.format_db)}, outputs {_db(self.outputs_db)}, kernel {_db(self.kernel_db)}",
                "  |x|            elements      format      kernel"]
        rows += [f"  2^{b['exponent']:<10} {b['elements']:>10,}  {100 * b['format']:>9.4f} %  {100 * b['kernel']:>8.4f} %" for b in self.binades]
        rows += [f"  worst    ({w['row']}, {w['col']})  x {w['x']:g}  reference {w['reference']:g}  outputs {w['outputs']:g}" for w in self.worst]
        rows += [f"  left out {self.left_out} elements that are not finite"] if self.left_out else []
        return "\n".join([*rows, *(f"  note     {n}" for n in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {"line": self.line, "direction": self.direction, "format_db": self.format_db, "outputs_db": self.outputs_db, "kernel_db": self.kernel_db,
                "binades": self.binades, "worst": self.worst, "left_out": self.left_out, "notes": self.notes}

    def _repr_html_(self) -> str:
        words = (f'<p>errors of <code>{escape(self.line)}</code>, {escape(self.direction)}s: the format loses {_db(self.format_db)}, '
                 + ('<span class="good">the kernel nothing more</span>' if math.isinf(self.kernel_db) else f'<span class="bad">the kernel {_db(self.kernel_db)}</span>')
                 + f' (signal to noise; the outputs have {_db(self.outputs_db)})</p>')
        rows = [(f"2^{b['exponent']}", [min(b["kernel"], 1.0), min(b["format"], 1.0)], f"{100 * b['kernel']:.3g} % / {100 * b['format']:.3g} %") for b in self.binades]
        chart = "<h2>Error relative to x, by the magnitude of x</h2>" + _pictures.bars(rows, ["kernel", "format"], "relative error by the magnitude of x")
        drawn = "".join(f"<div><h2>{escape(title)}</h2>{_pictures.tile_map(self.maps[key], title, 360)}</div>"
                        for key, title in (("format", "Where the format loses"), ("kernel", "Where the kernel loses")) if key in self.maps)
        legend = _pictures.legend(["none", "below 0.1 %", "below 1 %", "below 5 %", "below 20 %", "more"])
        said = f'<p class="eyebrow">root mean square of a tile\'s errors over that of its x; a tile is {self.maps.get("tile", "")} elements</p>'
        table = "".join(f'<tr class=differs><td>({w["row"]}, {w["col"]})</td><td>{w["x"]:g}</td><td>{w["reference"]:g}</td><td>{w["outputs"]:g}</td></tr>' for w in self.worst)
        table = ("<h2>The elements that the kernel moves most</h2><table><thead><tr><th>element</th><th>x</th><th>reference</th><th>outputs</th></tr></thead>"
                 f"<tbody>{table}</tbody></table>") if table else ""
        notes = "".join(f'<p class="eyebrow">{escape(n)}</p>' for n in self.notes)
        notes += f'<p class="eyebrow">{self.left_out} elements are left out: not finite</p>' if self.left_out else ""
        return _html.frame(words, chart, (f"<div class=side-by-side>{drawn}</div>{legend}{said}" if drawn else ""), table, notes)


def _db(ratio: float) -> str:
    return "no error" if math.isinf(ratio) else f"{ratio:.1f} dB"


def plot_error(x: Any, outputs: Any, spec: str | None = None, *, dir: str | None = None, **keys: Any) -> ErrorPlot:
    """Compares x with the values of the reference's codes and with those of the outputs, and draws both in a notebook.

    x, outputs, spec, keys   as of check; a quantize alone
    dir   row or col (default: the rows, where they are given)

    Planes that are not given are the reference's. Needs NumPy. Raises LineError, PlaneError, UnsupportedEncoding, NotJudged.
    """
    np = numpy()
    if np is None:
        raise PlaneError("expected NumPy for plot_error, found it is not installed; type  python3 -m pip install numpy")
    case = _case(x, outputs, spec, keys)
    if case.line.op != "quantize" or "x" not in case.planes:
        raise PlaneError(f"expected a quantize and its x, found '{case.line.text}'", "x")
    direction = dir or ("row" if "row.data" in case.planes else "col")
    if f"{direction}.data" not in case.planes:
        raise PlaneError(f"expected {direction}.data, found {', '.join(case.planes)}; give the codes, or another dir=", f"{direction}.data")
    values, reference, came, notes = _values(case, direction)
    return _compared(case.line.text, direction, values, reference, came, notes)


def _values(case: Case, direction: str) -> tuple[Any, Any, Any, list[str]]:
    """x, the reference's values and those of the outputs, as float64 [rows, columns]."""
    from ._ops import computed, dequantize
    from ._quantized import Quantized
    np = numpy()
    inputs = {p.name: case.planes[p.name] for p in case.line.inputs if p.name in case.planes}
    wanted: Mapping[str, Any] = computed(case.text, inputs, "numpy", kind=Quantized)
    planes = {n: case.planes.get(n, array_of(a, n)) for n, a in wanted.items()}
    missing = [n for n in wanted if n.startswith(direction + ".") and n not in case.planes]
    shape, source = case.line.shape, case.line.source
    text = case.text.partition(" ")[2]
    spec = " ".join(w for w in text.split() if w != source and w != f"{shape[0]}x{shape[1]}")
    turned = lambda q: np.asarray(dequantize(q, spec, dir=direction, shape=shape, source=source, out="numpy")).astype(np.float64).reshape(shape)
    x = _as_float(case.planes["x"], source).reshape(shape)
    return x, turned(dict(wanted)), turned(planes), [f"{', '.join(missing)}: not given, so the reference's"] if missing else []


def _as_float(array: Any, source: str) -> Any:
    np = numpy()
    raw = np.frombuffer(array.tobytes(), np.uint8)
    if source == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return raw.view(np.float16 if source == "f16" else np.float32).astype(np.float64)


def _compared(text: str, direction: str, x: Any, reference: Any, came: Any, notes: list[str]) -> ErrorPlot:
    np = numpy()
    good = np.isfinite(x) & np.isfinite(reference) & np.isfinite(came)
    x0, format_error, kernel_error = (np.where(good, v, 0.0) for v in (x, np.where(good, reference, 0) - np.where(good, x, 0), np.where(good, came, 0) - np.where(good, reference, 0)))
    size, total = np.abs(x0), float((x0 * x0).sum())
    ratio = lambda e: math.inf if not float((e * e).sum()) or not total else 10 * math.log10(total / float((e * e).sum()))
    binades, seen = [], size > 0
    exponent = np.where(seen, np.frexp(np.where(seen, size, 1.0))[1] - 1, -10_000)
    for e in _shown(np.unique(exponent[seen]).tolist()):
        among = (exponent == e) & seen
        binades.append({"exponent": int(e), "elements": int(among.sum()), **{n: float(np.sqrt(((v[among] / x0[among]) ** 2).mean())) for n, v in (("format", format_error), ("kernel", kernel_error))}})
    relative = np.where(seen, np.abs(kernel_error) / np.where(seen, size, 1.0), 0.0)
    order = np.argsort(relative, axis=None, kind="stable")[::-1][:5]
    worst = [{"row": int(r), "col": int(c), "x": float(x[r, c]), "reference": float(reference[r, c]), "outputs": float(came[r, c])}
             for r, c in (np.unravel_index(int(n), x.shape) for n in order) if relative[r, c] > 0]
    maps = _maps(x0, {"format": format_error, "kernel": kernel_error}) if x.size else {}
    return ErrorPlot(text, direction, ratio(format_error), ratio(format_error + kernel_error), ratio(kernel_error), binades, worst,
                     int(good.size - good.sum()), notes, maps)


def _shown(exponents: Sequence[int], most: int = 24) -> list[int]:
    """The binades from the largest down: those far below it carry no energy."""
    return sorted(exponents)[-most:]


def _maps(x: Any, errors: Mapping[str, Any]) -> dict[str, Any]:
    from ._codes import tiles
    np = numpy()
    energy, (high, wide) = tiles(x * x)
    maps: dict[str, Any] = {"tile": f"{high} x {wide}"}
    for name, error in errors.items():
        lost, _ = tiles(error * error)
        share = np.sqrt(np.where(energy > 0, lost / np.where(energy > 0, energy, 1.0), np.where(lost > 0, np.inf, 0.0)))
        maps[name] = (np.searchsorted([1e-3, 1e-2, 5e-2, 0.2], share, "right") + 1).clip(1, 5).astype(int)
        maps[name] = np.where(lost > 0, maps[name], 0).tolist()
    return maps
