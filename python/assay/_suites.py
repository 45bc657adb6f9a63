"""Suites, lists of lines; and vectors, third-party bytes that lines must give."""
from __future__ import annotations

import functools
import pathlib
from dataclasses import dataclass
from typing import Any

from . import _assay
from ._arrays import WIDTHS, Array, bytes_of_codes, codes_of_bytes
from ._errors import PlaneError
from ._lines import answered, line
from ._ops import run

kData = pathlib.Path(__file__).resolve().parent / "share/assay/fixtures"


def suite(name: str) -> list[str]:
    """The lines of a suite, by name ("smoke", "ci") or by the path of a .cases file."""
    own = kData / "suites" / f"{name}.cases"
    return list(answered(_assay.suite(str(own) if own.is_file() else name))["lines"])


@dataclass(frozen=True)
class Vector:
    """What one plane of a line must equal, by the account of a third party."""

    file: str
    tensor: str
    line: str
    plane: str                  # "row.data[2]" of a split's member
    at: tuple[int, ...]         # the elements that `want` is about; none: all
    padded: bool                # whether want has the plane's padding
    given: dict[str, Array]
    want: bytes

    def check(self) -> bool:
        """Runs the line and compares its bytes with those that were recorded. Raises AssayError where the line cannot run."""
        name, _, member = self.plane.partition("[")
        made = _made(self.line, tuple((n, a.word, a.shape, bytes(a.view)) for n, a in self.given.items()))
        plane = line(self.line).plane(name)
        if plane.gemm and not self.padded and plane.logical != plane.padded:
            raise PlaneError("expected the wanted bytes to include their padding in the GEMM layout, found bytes without padding", self.plane)
        data, offset, logical, padded = made[name], 0, plane.logical, plane.padded
        if member:
            offset, logical, padded = plane.members[int(member[:-1])]
        width = {"f32": 4, "u32": 4, "bf16": 2, "f16": 2}.get(plane.encoding, 1)
        if plane.packed:
            data = bytes(codes_of_bytes(data, plane.code_bits))
        data = data[offset * width:(offset + padded[0] * padded[1]) * width]
        if self.padded:
            packed = bytes_of_codes(data, plane.code_bits) if plane.packed else data
            return packed == self.want
        if self.at:
            return b"".join(data[n * width:(n + 1) * width] for n in self.at) == self.want
        rows = [data[r * padded[1] * width:(r * padded[1] + logical[1]) * width] for r in range(logical[0])]
        return b"".join(rows) == self.want


@functools.lru_cache(maxsize=1)   # several vectors in a row are of one line
def _made(text: str, given: tuple[tuple[str, str, tuple[int, ...], bytes], ...]) -> dict[str, bytes]:
    planes = run(text, {name: Array(word, shape, data, "numpy", word) for name, word, shape, data in given})
    return {n: _bytes(a) for n, a in planes.items()}


def _bytes(array: Any) -> bytes:
    from ._arrays import array_of
    return array_of(array, "plane").tobytes()


def vectors(folder: str) -> list[Vector]:
    """The vectors of a folder with an index.json, but those of the training layer and those whose sources disagree."""
    held = _assay.vectors(str(folder))
    if isinstance(held, str):
        answered(held)
    out = []
    for i, v in enumerate(answered(held.facts())["vectors"]):
        given = {p["name"]: Array(p["dtype"] if p["dtype"] in WIDTHS else "U8", tuple(p["shape"]), held.bytes(i, k + 1), "numpy", p["dtype"])
                 for k, p in enumerate(v["given"])}
        out.append(Vector(v["file"], v["tensor"], v["line"], v["plane"], tuple(v["at"]), v["padded"], given, bytes(held.bytes(i, 0))))
    return out
