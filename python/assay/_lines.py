"""From `spec`, x and keyword arguments to a line, and what the library says of a line."""
from __future__ import annotations

import difflib
import functools
import json
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from . import _assay
from ._arrays import f32_bits
from ._errors import LineError, PlaneError, raise_answer

KEPT_LINES = 2048   # that are not read again, some KiB each
OPS = ("cast", "quantize", "dequantize", "update", "swizzle", "scale_chain", "hadamard", "split", "philox", "gemm", "adam", "scale_state", "attention")
_FLOATS = ("amax", "scale", "prior_amax", "eps", "noop", "alpha", "beta")
CODE_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}
_ENCODINGS = ("f32", "bf16", "f16", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "e8m0", "u8", "u32")
_SOURCES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "f32": "f32", "bf16": "bf16", "f16": "f16"}


class Spec(str):
    """The words of a line behind its op: Spec("mxfp8", element="e5m2", scales="gemm") is "mxfp8 element=e5m2 scales=gemm"."""

    def __new__(cls, words: str = "mxfp8", **keys: Any) -> Spec:
        return super().__new__(cls, " ".join([words, *(f"{k}={value_text(k, v)}" for k, v in keys.items() if v is not None)]))


@dataclass(frozen=True)
class Plane:
    """One plane of a line: its name, encoding and geometry (docs/packs.md)."""

    name: str
    input: bool
    encoding: str
    dtype: str                  # safetensors' word
    logical: tuple[int, int]    # meaningful elements
    padded: tuple[int, int]     # elements that its bytes hold
    bytes: int
    packed: bool                # codes of fewer than 8 bits one after another, the first in the lowest bits (N6.8)
    transposed: bool
    gemm: bool                  # in the tile order of the GEMM layout
    direction: str              # row, col or empty
    members: tuple[tuple[int, tuple[int, int], tuple[int, int]], ...]   # of a grouped plane: offset, logical, padded

    @property
    def stored(self) -> tuple[int, int]:
        """The shape of its array: that of `padded`, of packed codes in bytes."""
        return (self.padded[0], self.padded[1] * self.code_bits // 8) if self.packed else self.padded

    @property
    def code_bits(self) -> int:
        """The bits of one code: 4 or 6 of the encodings that can be packed."""
        return CODE_BITS.get(self.encoding, 8)


@dataclass(frozen=True)
class Line:
    """What a line says, resolved: its short and its canonical text, its tensor, and its planes."""

    text: str
    canonical: str
    op: str
    shape: tuple[int, int]
    source: str
    draws: bool   # rounds stochastically
    planes: tuple[Plane, ...]

    def plane(self, name: str) -> Plane:
        """The geometry of the plane of that name. Raises PlaneError for one that the line does not have."""
        for plane in self.planes:
            if plane.name == name:
                return plane
        known = [p.name for p in self.planes]
        near = difflib.get_close_matches(name, known, 1)
        raise PlaneError(f"expected a plane of '{self.text}', found '{name}' " + (f"(did you mean '{near[0]}'?)" if near else f"(they are {', '.join(known)})"),
                         name, " ".join(known), name)

    @property
    def inputs(self) -> tuple[Plane, ...]:
        """The planes that are read, in the order of the line."""
        return tuple(p for p in self.planes if p.input)

    @property
    def outputs(self) -> tuple[Plane, ...]:
        """The planes that are written, in causal order."""
        return tuple(p for p in self.planes if not p.input)


def answered(text: str) -> dict[str, Any]:
    """The module's answer; what it complains about is raised."""
    answer: dict[str, Any] = json.loads(text)
    if "error" in answer:
        raise_answer(answer["error"])
    return answer


@functools.lru_cache(maxsize=KEPT_LINES)
def line(text: str) -> Line:
    """Reads the text of a line. Raises LineError with the column and the nearest valid word."""
    if "\0" in text:
        raise LineError("expected text without NUL characters, found one", text.index("\0") + 1)
    facts = answered(_assay.line(text))
    planes = tuple(Plane(**{**p, "logical": tuple(p["logical"]), "padded": tuple(p["padded"]), "members": tuple((m["offset"], tuple(m["logical"]), tuple(m["padded"])) for m in p["members"])})
                   for p in facts["planes"])
    return Line(facts["line"], facts["canonical"], facts["op"], (facts["rows"], facts["cols"]), facts["source"], facts["draws"], planes)


@functools.lru_cache(maxsize=1)
def keys() -> dict[str, Mapping[str, Any]]:
    """The keys of a line by name: {"directional", "values", "summary", "ops"}. A name that two rows have gets the ops of both."""
    table: dict[str, dict[str, Any]] = {}
    for row in json.loads(_assay.keys())["keys"]:
        seen = table.setdefault(row["name"], {**row, "ops": []})
        seen["ops"] = seen["ops"] + row["ops"]
    return dict(table)


def value_text(key: str, value: Any) -> str:
    """A keyword argument as a line writes it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (tuple, list)):
        return ",".join(value_text(key, v) for v in value)
    stem = key.rpartition(".")[2]
    if stem in _FLOATS and not isinstance(value, str):
        return f32_bits(value, key)
    text = str(value)
    if text.split() != [text]:
        raise LineError(f"{key}: expected one word, found '{text}'")
    return text


def dtype_word(dtype: Any) -> str:
    """bf16 of "bfloat16", torch.bfloat16, numpy.dtype or "bf16"."""
    name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).removeprefix("torch.")
    if name not in _SOURCES:
        raise LineError(f"expected a dtype float32, bfloat16 or float16, found {name}")
    return _SOURCES[name]


def flat(shape: Sequence[int], what: str = "x") -> tuple[int, int]:
    """[product of the leading sizes, last size]."""
    if len(shape) < 1:
        raise PlaneError("expected at least one dimension, found a scalar; reshape it to (1, 1)", what, "an array", "a scalar")
    rows = 1
    for n in shape[:-1]:
        rows *= n
    return rows, shape[-1]


@dataclass
class Words:
    """A spec taken apart; what it leaves open is None."""

    op: str | None
    format: list[str]              # the words before the sizes
    shape: tuple[int, int] | None
    sizes: str                     # as written
    source: str | None
    keys: dict[str, str]


def words_of(spec: str) -> Words:
    """Takes a spec apart. Raises LineError for words that are neither format nor sizes nor key=value."""
    if not isinstance(spec, str):
        raise LineError(f"expected spec to be the words of a line, such as 'mxfp8 element=e5m2', found {type(spec).__name__}")
    words, found = spec.split(), Words(None, [], None, "", None, {})
    if words and words[0] in OPS:
        found.op = words.pop(0)
    for word in words:
        name, sign, value = word.partition("=")
        sizes = word.split("x")
        if sign and not (found.op == "gemm" and name in ("a", "b") and not found.sizes):
            if found.keys.get(name, value) != value:
                raise LineError(f"expected the key '{name}' once, found {name}={found.keys[name]} and {word}", spec.index(word) + 1)
            found.keys[name] = value
        elif len(sizes) > 1 and all(s.isdigit() for s in sizes):
            found.sizes, found.shape = word, (int(sizes[0]), int(sizes[1]))
        elif word in _ENCODINGS and found.shape is not None and found.source is None:
            found.source = word
        elif found.shape is None and not found.keys:
            found.format.append(word)
        else:
            raise LineError(f"expected key=value, found '{word}'", spec.index(word) + 1, "a spec is a format and keys, such as 'mxfp8 element=e5m2'")
    return found


def line_text(op: str, spec: str, shape: tuple[int, int], source: str, settings: Mapping[str, Any]) -> str:
    """The line of `spec` for a tensor of this shape and source. Keys of `settings` that are not None win over those of the spec; what
    spec says of op, sizes and source must be what x is. Raises LineError."""
    words = words_of(spec)
    if not spec.strip() and op in ("quantize", "split", "cast", "dequantize"):
        raise LineError("expected spec to begin with a format, found an empty one", 1, "such as 'e4m3'" if op == "cast" else "such as 'mxfp8' or 'nvfp4'")
    if words.op not in (None, op):
        raise LineError(f"expected the op {op}, found {words.op}", 1, f"leave the op out, or call assay.{words.op}")
    if words.shape not in (None, shape):
        raise LineError(f"expected {shape[0]}x{shape[1]}, the shape of x, found {words.sizes}", spec.index(words.sizes) + 1, "leave the sizes out")
    if words.source not in (None, source):
        raise LineError(f"expected {source}, the dtype of x, found {words.source}", spec.index(str(words.source)) + 1, "leave the dtype out")
    keys = {**words.keys, **{k: value_text(k, v) for k, v in settings.items() if v is not None}}
    return " ".join([op, *words.format, f"{shape[0]}x{shape[1]}", source, *(f"{k}={v}" for k, v in keys.items())])


def line_of_settings(words: Iterable[str], settings: Mapping[str, Any]) -> str:
    return " ".join([*words, *(f"{k}={value_text(k, v)}" for k, v in settings.items() if v is not None)])
