"""Planes as integers that NumPy counts: codes at their logical places, the order of codes, and where two planes differ."""
from __future__ import annotations

from typing import Any, Mapping

from ._arrays import Array, numpy
from ._lines import Line, Plane

# Where the exponent of an encoding lies, and how wide it is.
_EXPONENTS = {"e4m3": (3, 4), "e5m2": (2, 5), "e2m1": (1, 2), "e8m0": (0, 8), "f32": (23, 8), "bf16": (7, 8), "f16": (10, 5), "e2m3": (3, 2), "e3m2": (2, 3)}
_BIASES = {"e4m3": 7, "e5m2": 15, "e2m1": 1, "e8m0": 127, "f32": 127, "bf16": 127, "f16": 15, "e2m3": 1, "e3m2": 3}
_WIDTHS = {"e4m3": 8, "e5m2": 8, "e2m1": 4, "f32": 32, "bf16": 16, "f16": 16, "e2m3": 6, "e3m2": 6}


def codes_of(array: Array, plane: Plane) -> Any:
    """The codes of a plane as int64 [rows, columns], without padding; None where its bytes have another order (members, GEMM layout) or
    NumPy is not installed."""
    np = numpy()
    if np is None or plane.members or plane.gemm or array.count == 0:
        return None
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}
    raw = np.frombuffer(array.tobytes(), np.uint8)
    (rows, cols), (all_rows, all_cols) = plane.logical, plane.padded
    if plane.encoding == "e2m1" and array.count in (rows * -(-cols // 2), all_rows * -(-all_cols // 2)):
        width = -(-cols // 2) if array.count == rows * -(-cols // 2) else -(-all_cols // 2)
        raw = np.stack([raw & 15, raw >> 4], -1).reshape(-1, 2 * width)
    else:
        codes = raw.view(kind[raw.size // array.count])
        if codes.size == all_rows * all_cols:
            raw = codes.reshape(all_rows, all_cols)
        elif codes.size == rows * cols:
            raw = codes.reshape(rows, cols)
        else:
            return None
    return raw[:rows, :cols].astype(np.int64)


def in_order(codes: Any, encoding: str) -> Any:
    """Codes as integers whose difference is how many codes lie between them: negative numbers count down from zero."""
    np = numpy()
    width = _WIDTHS.get(encoding)
    if width is None:
        return codes
    magnitude = codes & ((1 << (width - 1)) - 1)
    return np.where(codes >> (width - 1), -magnitude, magnitude)


def exponents(codes: Any, encoding: str) -> Any:
    """The exponent that each code has, unbiased; the lowest stands for subnormals and zero as well."""
    shift, width = _EXPONENTS[encoding]
    return ((codes >> shift) & ((1 << width) - 1)) - _BIASES[encoding]


def has_exponent(encoding: str) -> bool:
    return encoding in _EXPONENTS


def tiles(values: Any, most: int = 64) -> tuple[Any, tuple[int, int]]:
    """Sums over tiles so that at most `most` x `most` of them cover the plane, and the size of a tile."""
    np = numpy()
    rows, cols = values.shape
    high, wide = max(1, -(-rows // most)), max(1, -(-cols // most))
    padded = np.zeros((-(-rows // high) * high, -(-cols // wide) * wide), values.dtype)
    padded[:rows, :cols] = values
    return padded.reshape(padded.shape[0] // high, high, padded.shape[1] // wide, wide).sum((1, 3)), (high, wide)


def both_sides(found: Line, given: Mapping[str, Array], name: str) -> tuple[Any, Any] | None:
    """The codes of one plane that came, and those of the reference, which runs again."""
    from ._ops import computed
    inputs = {p.name: given[p.name] for p in found.inputs if p.name in given}
    plane = found.plane(name)
    from ._arrays import array_of
    want = codes_of(array_of(computed(found.text, inputs, "numpy")[name], name), plane)
    got = codes_of(given[name], plane)
    return None if got is None or want is None else (got, want)
