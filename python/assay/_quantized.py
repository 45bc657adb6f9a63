"""Planes that the library made, under the names of their line."""
from __future__ import annotations

import difflib
from typing import Any, Callable, Iterator, Mapping

from ._arrays import array_of
from ._errors import NoSuchPlane, PlaneError
from ._lines import Line, line


class Planes(Mapping[str, Any]):
    """Arrays by the names of their planes ("y", "row.data"), and the line that they belong to. `made_by` says what computed them: "reference", or
    "simd AVX2" and the like, the vectorised method with the instructions that it used."""

    def __init__(self, text: Line, arrays: Mapping[str, Any], library: str = "numpy", copied_bytes: int = 0, made_by: str = "reference"):
        self._line, self._arrays, self.library, self.copied_bytes, self.made_by = text, dict(arrays), library, copied_bytes, made_by

    @property
    def line(self) -> str:
        """What made them, to be repeated with `assay run` or judged with `assay.check`."""
        return self._line.text

    def plane(self, name: str) -> Any:
        """The geometry of the plane of that name (assay.Plane): encoding, logical and padded shape, layout."""
        return self._line.plane(name)

    def logical(self, name: str) -> Any:
        """The plane of that name without its padding. Packed codes keep whole bytes. Raises PlaneError for the GEMM layout, where padding lies in between."""
        plane, array = self._line.plane(name), self[name]
        if plane.gemm and plane.logical != plane.padded:
            raise PlaneError("expected a row-major plane, found the GEMM layout; quantize with scales=compact", name)
        rows, cols = plane.logical
        return array[:rows, : -(-cols * plane.code_bits // 8) if plane.packed and array.shape[1] != cols else cols]

    def __getitem__(self, name: str) -> Any:
        try:
            return self._arrays[name]
        except KeyError:
            near = difflib.get_close_matches(str(name), self._arrays, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"they are {', '.join(self._arrays)}"
            raise NoSuchPlane(f"expected a plane of '{self.line}', found '{name}' ({hint})", str(name), " ".join(self._arrays), str(name)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __eq__(self, other: object) -> bool:
        """Whether the other has the same line and, bit for bit, the same planes."""
        if not isinstance(other, Planes):
            return NotImplemented
        same = lambda name: array_of(self[name], name).tobytes() == array_of(other[name], name).tobytes()
        return self.line == other.line and self.keys() == other.keys() and all(map(same, self))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        planes = ", ".join(f"{n} {p.encoding} {list(p.padded)}" for n in self for p in [self._line.plane(n)])
        return f"<{type(self).__name__} '{self.line}': {planes}>"


class Side:
    """The planes of one direction by the ends of their names: .data, .scale_inv or .scale_gemm, .amax, .scale."""

    def __init__(self, planes: Planes, direction: str):
        self._planes, self._direction = planes, direction

    def __getattr__(self, stem: str) -> Any:
        if stem.startswith("_"):
            raise AttributeError(stem)
        name = f"{self._direction}.{stem}"
        if name not in self._planes:
            raise AttributeError(f"expected one of {', '.join(self._planes)}, found {name}; quantize with dir=both, or another format")
        return self._planes[name]

    def __bool__(self) -> bool:
        return any(n.startswith(self._direction + ".") for n in self._planes)

    def __repr__(self) -> str:
        return f"<{self._direction} of {self._planes!r}>"


class Quantized(Planes):
    """What quantize and split return: q["row.data"], or q.row.data."""

    _dequantize: Callable[..., Any]

    @property
    def row(self) -> Side:
        """The planes of the rows by the ends of their names: q.row.data, q.row.scale_inv."""
        return Side(self, "row")

    @property
    def col(self) -> Side:
        """The planes of the columns by the ends of their names: q.col.data, q.col.scale_inv."""
        return Side(self, "col")

    def dequantize(self, dtype: Any = "f32", dir: str | None = None) -> Any:
        """The values that the codes and scales of one direction stand for (default: of the rows, where there are any)."""
        from ._ops import dequantize
        return dequantize(self, dtype=dtype, dir=dir)


def line_facts(text: str) -> Line:
    return line(text)
