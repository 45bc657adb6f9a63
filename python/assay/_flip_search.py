"""One case of a pack beside its reference, and the reference again with a bit of x flipped: which blocks then come out as they came."""
from __future__ import annotations

import itertools
import time
from typing import Any, Iterable, Mapping

from ._arrays import Array, array_of, numpy
from ._codes import codes_of
from ._errors import AssayError
from ._lines import Line, line, words_of
from ._ops import computed
from ._quantized import Quantized

_BLOCKS = {"mxfp8": 32, "mxfp6": 32, "mxfp4": 32, "nvfp4": 16, "fp8_block": 128}
Place = tuple[int, int]


class Side:
    """One direction: codes that came and codes of the reference, as int64 planes, and the blocks of x that its scales stand for.

    block  rows and columns of x under one scale; (1, 1) where one scale serves the whole tensor
    scale  the name of the plane of its scales; None where it has none, or they lie in an order of their own (the GEMM layout)
    whole  the planes that the whole tensor has in common: amax, and the scale of the formats with one scale
    """

    def __init__(self, name: str, found: Line, got: Mapping[str, Any], want: Mapping[str, Any]):
        self.name, self.data = name, f"{name}.data"
        self.got, self.want = got, want
        canonical = words_of(found.canonical)
        form = canonical.format[0].partition("/")
        self.format = (form[2] or form[0]) if name == "col" else form[0]
        self.shape, self.transposed = found.shape, found.plane(self.data).transposed
        keys = canonical.keys
        self.rotated = keys.get(f"{name}.rht", keys.get("rht", "0")) != "0"
        size = _BLOCKS.get(self.format, 1)
        square = keys.get(f"{name}.block", keys.get("block", "1x")).partition("x")[0] != "1"
        self.block = (size, size) if square else (1, size) if name == "row" else (size, 1)
        mine = [n for n in got if n.startswith(f"{name}.") and n != self.data]
        self.whole = [n for n in mine if got[n].shape == (1, 1) and (size == 1 or n.endswith(".amax"))]
        self.scale = next((n for n in mine if n.endswith(".scale_inv") and n not in self.whole), None)

    def element(self, place: Place) -> Place:
        """The element of x whose code lies at a place of the plane."""
        return place[::-1] if self.transposed else place

    def block_of(self, element: Place) -> Place:
        return element[0] // self.block[0], element[1] // self.block[1]

    def _layout(self) -> tuple[bool, int, int]:
        """How the plane of scales lies: whether columns come first, and how many rows and columns of x one of its rows and columns stands for."""
        assert self.scale is not None
        shape = self.got[self.scale].shape
        turned_first = self.format == "fp8_block" and self.name == "row" or self.format not in ("fp8_block", "mxfp8") and self.name == "col"
        for turned in (turned_first, not turned_first):
            for high, wide in itertools.product(dict.fromkeys((self.block[0], 1)), dict.fromkeys((self.block[1], 1))):
                if shape == ((-(-self.shape[1] // wide), -(-self.shape[0] // high)) if turned else (-(-self.shape[0] // high), -(-self.shape[1] // wide))):
                    return turned, high, wide
        raise AssayError(f"expected {self.scale} to have a scale for each block of {self.block[0]}x{self.block[1]} elements, found {list(shape)}")

    def block_of_scale(self, place: Place) -> Place:
        """The block that a scale belongs to; square blocks of some formats keep a scale for each row."""
        turned, high, wide = self._layout()
        r, c = place[::-1] if turned else place
        return r * high // self.block[0], c * wide // self.block[1]

    def blocks_apart(self, planes: Mapping[str, Any]) -> dict[Place, tuple[list[Place], list[Place]]]:
        """The blocks in which the planes that came are not `planes`: the places of their codes and of their scales."""
        np = numpy()
        out: dict[Place, tuple[list[Place], list[Place]]] = {}
        for r, c in np.argwhere(self.got[self.data] != planes[self.data]).tolist():
            out.setdefault(self.block_of(self.element((r, c))), ([], []))[0].append((r, c))
        if self.scale is not None:
            for r, c in np.argwhere(self.got[self.scale] != planes[self.scale]).tolist():
                out.setdefault(self.block_of_scale((r, c)), ([], []))[1].append((r, c))
        return out

    def scales_of_elements(self) -> Any:
        """The reference's scale of each element of x, or None where one scale serves all or their order is unknown."""
        np = numpy()
        if self.scale is None:
            return None
        turned, high, wide = self._layout()
        plane = self.want[self.scale].T if turned else self.want[self.scale]
        return np.repeat(np.repeat(plane, high, 0), wide, 1)[:self.shape[0], :self.shape[1]]


class Search:
    """A case with its x, its reference, and a limit of time. Raises AssayError for a case that cannot be searched."""

    def __init__(self, case: Any, seconds: float):
        np = numpy()
        self.ends = time.monotonic() + seconds
        self.line, self.words = line(case.line), words_of(case.line)
        self.given, outputs = case._split()
        if self.line.op != "quantize" or "x" not in self.given or not self.given["x"].count:
            raise AssayError("expected a quantize of a tensor that the pack holds, found none")
        self.made = made = computed(self.line.text, self.given, "numpy", kind=Quantized)
        self._values: dict[str, Any] = {}
        self.got: dict[str, Any] = {}
        self.want: dict[str, Any] = {}
        for plane in self.line.outputs:
            if plane.name in outputs:
                self.got[plane.name] = _codes(outputs[plane.name], plane)
                self.want[plane.name] = _codes(array_of(made[plane.name], plane.name), plane)
                if self.got[plane.name].shape != self.want[plane.name].shape:
                    raise AssayError(f"expected {plane.name} of {list(self.want[plane.name].shape)} bytes, found {list(self.got[plane.name].shape)}")
        self.encodings = {p.name: p.encoding for p in self.line.outputs}
        self.width = 32 if self.line.source == "f32" else 16
        self.x = np.frombuffer(self.given["x"].tobytes(), np.uint32 if self.width == 32 else np.uint16).reshape(self.line.shape)
        self.sides = [Side(d, self.line, self.got, self.want) for d in ("row", "col") if f"{d}.data" in self.got]
        canonical = words_of(self.line.canonical).keys
        # Without these, the codes of a block follow from its own elements and what the whole tensor has in common.
        self.local = canonical.get("col_source", "original") == "original" and "/" not in self.words.format[0] and canonical.get("row_scaled", "0") == "0"

    def late(self) -> bool:
        return time.monotonic() > self.ends

    def values(self, bits: Any) -> Any:
        """Bits of x as float32."""
        np = numpy()
        if self.line.source == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return bits.view(np.float16).astype(np.float32) if self.line.source == "f16" else bits.view(np.float32)

    def values_of(self, direction: str) -> Any:
        """What the reference's codes and scales of a direction stand for, as float32 in the shape of x."""
        if direction not in self._values:
            self._values[direction] = self.made.dequantize("f32", direction)
        return self._values[direction]

    def _run(self, x: Any, keys: Mapping[str, str], given: Mapping[str, Array]) -> dict[str, Any]:
        np = numpy()
        words = {**{k: v for k, v in self.words.keys.items() if k not in ("fill", "seed", "at")}, **keys}
        text = " ".join(["quantize", *self.words.format, self.words.sizes, self.line.source, *(f"{k}={v}" for k, v in words.items())])
        source = Array(self.given["x"].word, self.line.shape, np.ascontiguousarray(x).view(np.uint8).reshape(-1), "numpy", self.given["x"].name)
        made, known = computed(text, {**self.given, **given, "x": source}, "numpy"), line(text)
        return {n: _codes(array_of(made[n], n), known.plane(n)) for n in self.got if n in made}

    def _fixed_amax(self, side: Side) -> dict[str, str]:
        """The key that keeps the tensor's amax as it is while x changes, where the format has one and computes it."""
        name = f"{side.name}.amax"
        if self.words.keys.get("amax", "computed") != "computed" or name not in {p.name for p in self.line.outputs} or side.rotated:
            return {}
        return {"amax": f"0x{int(self.values(self.x & (0x7FFFFFFF if self.width == 32 else 0x7FFF)).max().view('uint32')):08X}"}

    def with_flips(self, flips: Iterable[tuple[Place, int]], fixed: Side | None = None) -> dict[str, Any]:
        """The reference's planes where these bits of x are flipped; `fixed`: the tensor's amax stays what it was."""
        x = numpy().array(self.x)
        for place, bit in flips:
            x[place] ^= x.dtype.type(1 << bit)
        return self._run(x, self._fixed_amax(fixed) if fixed is not None else {}, {})

    def under_scales(self, side: Side) -> Any:
        """The codes that the reference makes under the scales that came, or None where no line says that."""
        np = numpy()
        if side.scale is None or any(p.members for p in self.line.planes):
            return None
        encoding, codes = self.encodings[side.scale], side.got[side.scale]
        data = codes.astype({"f32": np.uint32}.get(encoding, np.uint8))
        word = {"f32": "F32", "e8m0": "F8_E8M0", "e4m3": "F8_E4M3"}.get(encoding)
        keys = {"dir": side.name, "scale_from": "scale", **({"scale_order": "decode_first"} if side.format == "fp8_block" else {}), **self._fixed_amax(side)}
        if word is None or side.rotated:
            return None
        given = {f"{side.name}.given.scale_inv": Array(word, data.shape, np.ascontiguousarray(data).view(np.uint8).reshape(-1), "numpy", encoding)}
        try:
            return self._run(self.x, keys, given)[side.data]
        except AssayError:   # this format, or these keys, have no such line
            return None


def _codes(array: Array, plane: Any) -> Any:
    """The codes of a plane; of one in an order of its own the bytes, as one row."""
    np = numpy()
    found = codes_of(array, plane)
    return np.frombuffer(array.tobytes(), np.uint8).reshape(1, -1).astype(np.int64) if found is None else found
