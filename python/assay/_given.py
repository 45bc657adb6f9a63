"""What a caller judges, in any of its forms, as planes under a line."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from . import _stored
from ._arrays import SOURCES, Array, array_of, numpy
from ._errors import AssayError, LineError, NotJudged, PlaneError
from ._lines import Line, Plane, Words, flat, line, line_text, words_of
from ._ops import seeds, x_array
from ._quantized import Planes

_DRAWN = ("fill", "seed", "at")
_ONE = "*"   # a single array: the only output plane of its line


def _spec_of(text: str) -> str:
    """The format and keys of a line, without its op, sizes and source, and without how x was drawn."""
    words = words_of(text)
    return " ".join([*words.format, *(f"{k}={v}" for k, v in words.keys.items() if k.rpartition(".")[2] not in _DRAWN)])


@dataclass
class Outputs:
    """Output planes by name, and the spec that they were made by."""

    planes: dict[str, Array]
    spec: str
    words: Words
    known_rng: bool = False   # the line says the random state, or needs none said
    notes: list[str] = field(default_factory=list)

    @staticmethod
    def of(value: Any, spec: str | None, *, x: Any = None, copy: bool | None = None, given: Mapping[str, Any] | None = None) -> Outputs:
        """Takes a mapping of planes, a pair (codes, scales), what quantize returned, a quantized tensor of TransformerEngine or torchao, a
        weight of ModelOpt or compressed-tensors, or a single array. Raises PlaneError, LineError."""
        if isinstance(value, Outputs):
            return value
        if isinstance(value, Planes):
            return Outputs._of_planes(value, spec, copy)
        kinds: Any = []
        if numpy() is not None:   # the readers of libraries' tensors need it
            from . import pack
            kinds = pack.kKinds
        if any(all(any(hasattr(value, a) for a in names) for names in attributes) for _, attributes, _ in kinds):
            return Outputs._of_known(value, spec, x, given or {})
        stored = _stored.found_in(value)
        if stored is not None:
            return Outputs._of_stored(*stored, spec, copy)
        if isinstance(value, Mapping):
            if not value:
                raise PlaneError("expected a mapping of planes such as {'row.data': codes, 'row.scale_inv': scales}, found an empty one", "outputs")
            planes = {str(n): array_of(a, str(n), copy) for n, a in value.items() if n != "x"}
        elif isinstance(value, (tuple, list)):
            planes = Outputs._of_pair(value, spec, copy)
        elif value is None or isinstance(value, (bool, str)):
            raise PlaneError("expected a mapping of planes such as {'row.data': codes, 'row.scale_inv': scales}, a pair (codes, scales), or a quantized tensor, "
                             f"found {type(value).__name__}", "outputs", "planes", type(value).__name__)
        else:
            planes = {_ONE: array_of(value, "outputs", copy)}
        text = guessed(planes) if spec is None else spec
        return Outputs(planes, _spec_of(text), words_of(text))

    @staticmethod
    def _of_stored(codes: Any, scales: Any, whose: str, spec: str | None, copy: bool | None) -> Outputs:
        """By what ModelOpt and compressed-tensors call the parts of a weight; a spec with a format wins over what the dtypes tell."""
        planes, told = _stored.planes_of(codes, scales, whose, copy)
        if spec is not None and words_of(spec).format:
            told = spec
        elif spec is not None:
            told += " " + _keys_of(spec)
        notes = [f"{whose} keeps no amax of the tensor: it is not judged"] if told.startswith("nvfp4") else []
        return Outputs(planes, _spec_of(told), words_of(told), notes=notes)

    @staticmethod
    def _of_planes(value: Planes, spec: str | None, copy: bool | None) -> Outputs:
        planes = {n: array_of(a, n, copy) for n, a in value.items()}
        if spec is not None:
            return Outputs(planes, _spec_of(spec), words_of(spec))
        text = value.line
        canonical = words_of(value._line.canonical).keys
        if value._line.draws and "rng" not in words_of(text).keys and "rng" in canonical:
            text += f" rng={canonical['rng']}"
        return Outputs(planes, _spec_of(text), words_of(text), True)

    @staticmethod
    def _of_pair(value: Sequence[Any], spec: str | None, copy: bool | None) -> dict[str, Array]:
        if len(value) != 2:
            raise PlaneError(f"expected a pair (codes, scales), found {len(value)} values; name the planes in a mapping", "outputs")
        keys = words_of(spec or "").keys
        side = "col" if keys.get("dir") == "col" else "row"
        gemm = "scale_gemm" if "gemm" in (keys.get("scales"), keys.get(f"{side}.scales")) else "scale_inv"
        return {f"{side}.data": array_of(value[0], f"{side}.data", copy), f"{side}.{gemm}": array_of(value[1], f"{side}.{gemm}", copy)}

    @staticmethod
    def _of_known(value: Any, spec: str | None, x: Any, given: Mapping[str, Any]) -> Outputs:
        """What has the attributes of a quantized tensor, but other things in them, is an error of this package too."""
        try:
            return Outputs._of_tensor(value, spec, x, given)
        except AssayError:
            raise
        except (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError, ArithmeticError) as error:
            raise PlaneError(f"expected a quantized tensor, for its attributes are those of one, found {type(value).__name__} with other contents: {error}",
                             "outputs") from error

    @staticmethod
    def _of_tensor(value: Any, spec: str | None, x: Any, given: Mapping[str, Any]) -> Outputs:
        """By the dumper's readers, which know the tensor by the names of its attributes."""
        from . import pack
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)   # codes that cannot be judged without rng= are left out: noted below
            nominal = any(hasattr(value, n) for n in ("dtype", "_dtype", "orig_dtype", "_orig_dtype"))
            case = pack.Pack()   # which copies what it is given: x is left out where the tensor knows its dtype
            name = case.add(value, x=None if nominal else x, module="outputs", **given)
            if name is not None and nominal and x is not None and words_of(case.lines[name]).source != x_array(x)[1]:
                case = pack.Pack()   # the line follows the dtype of x
                name = case.add(value, x=x, module="outputs", **given)
        if name is None:
            raise PlaneError("expected a tensor that was written, found noop=1, under which nothing is written", "outputs")
        planes = {n.rpartition("/")[2]: Array(a.dtype, tuple(a.shape), a.data, "torch", a.name, len(a.data)) for n, a in case.tensors.items()}
        planes.pop("x", None)
        text = case.lines[name]
        words = words_of(text + (" " + _keys_of(spec) if spec else ""))
        notes = ["the codes were left out, for stochastic rounding cannot be judged without rng=(seed, offset)"] \
            if "sr" in (words.keys.get("round"), words.keys.get("row.round"), words.keys.get("col.round")) and given.get("rng") is None else []
        found = Outputs(planes, _spec_of(text + (" " + _keys_of(spec) if spec else "")), words, bool(notes), notes)
        return found

    def direction(self) -> str:
        """dir= of the line: the directions whose planes are here."""
        row, col = (any(n.startswith(d) for n in self.planes) for d in ("row.", "col."))
        return "both" if row and col else "col" if col else "row"

    def shape(self, direction: str) -> tuple[int, int]:
        """The shape of the tensor, as far as the codes of a direction tell it."""
        data = self.planes[f"{direction}.data"]
        rows, cols = flat(data.shape, f"{direction}.data")
        form = self.words.format[0].partition("/") if self.words.format else ("", "", "")
        name = (form[2] or form[0]) if direction == "col" else form[0]
        if name in ("nvfp4", "mxfp4") and data.name != "float4_e2m1fn":
            cols *= 2
        if name == "mxfp6" and "packed" in (self.words.keys.get("packing"), self.words.keys.get(f"{direction}.packing")):
            cols = cols * 8 // 6
        transposed = direction == "col" and name != "mxfp8" and name != "identity"
        return (cols, rows) if transposed else (rows, cols)


def _keys_of(spec: str) -> str:
    return " ".join(f"{k}={v}" for k, v in words_of(spec).keys.items())


def guessed(planes: Mapping[str, Array]) -> str:
    """The spec that dtypes alone tell. Raises LineError where they tell none."""
    side = "row" if any(n.startswith("row.") for n in planes) else "col"
    data = planes.get(f"{side}.data")
    name = next((n for n in (f"{side}.scale_inv", f"{side}.scale_gemm") if n in planes), None)
    if data is not None and name is not None:
        scale = planes[name]
        layout = " scales=gemm" if name.endswith("gemm") else ""
        element = {"F8_E4M3": "e4m3", "F8_E5M2": "e5m2"}.get(data.word)
        if element and scale.word == "F8_E8M0":
            return f"mxfp8 element={element}{layout}"
        if element and scale.word == "F32" and scale.count == 1:
            return f"fp8_current element={element}"
        if data.word == "U8" and scale.word == "F8_E4M3":
            return "nvfp4" + layout
        if data.name in ("float4_e2m1fn", "float4_e2m1fn_x2") and scale.word == "F8_E8M0":
            return "mxfp4" + layout
        if data.name in ("float6_e2m3fn", "float6_e3m2fn") and scale.word == "F8_E8M0":
            return f"mxfp6 element={data.name[7:11]}{layout}"
    found = ", ".join(f"{n} {a.name}" for n, a in planes.items())
    raise LineError(f"expected spec=, found none, and these planes do not determine it: {found}", 0, "pass a format and its keys, such as spec='mxfp8'")


@dataclass
class Case:
    """A line and the planes under it, as the module takes them."""

    line: Line
    text: str
    planes: dict[str, Array]
    library: str
    notes: list[str]

    @property
    def given(self) -> list[tuple[str, Any, str, list[int]]]:
        return [a.given(name) for name, a in self.planes.items()]

    @property
    def copied_bytes(self) -> int:
        return sum(a.copied for a in self.planes.values())

    @staticmethod
    def of(x: Any, outputs: Any, spec: str | None, *, rng: Sequence[int] | None = None, amax: Any = None, scale: Any = None, x_dtype: Any = None,
           copy: bool | None = None, keys: Mapping[str, Any] | None = None) -> Case:
        given = {"rng": rng, "amax": amax, "scale": scale}
        found = Outputs.of(outputs, spec, x=None if isinstance(x, Mapping) else x, copy=copy, given=given)
        op = found.words.op or "quantize"
        settings = {"rng": None if rng is None else seeds(rng), "amax": None if isinstance(amax, str) else amax, "scale": scale, **(keys or {})}
        planes: dict[str, Array] = {}
        if x is None or isinstance(x, Mapping):
            planes.update({str(n): array_of(a, str(n), copy) for n, a in (x or {}).items()})
            text = _written_line(op, found, planes)
        else:
            array, source = x_array(x, x_dtype, copy)
            planes["x"] = array
            if op in ("quantize", "split") and "dir" not in found.words.keys:
                settings["dir"] = found.direction()
            text = line_text(op, found.spec, flat(array.shape), source, settings)
        known = line(text)
        if known.draws and not found.known_rng and "rng" not in words_of(text).keys:
            raise NotJudged("expected the random state of stochastic rounding, found none; pass rng=(seed, offset) as the kernel had them", "rng")
        names = [p.name for p in known.outputs]
        for name, a in found.planes.items():
            if name == _ONE and len(names) != 1:
                raise PlaneError(f"expected a mapping of planes, found one array; the planes of '{known.text}' are {', '.join(names)}", "outputs")
            planes[names[0] if name == _ONE else name] = a
        notes = [*found.notes, *(text for p in known.outputs if p.name in planes for text in _other_shape(p, planes[p.name]))]
        library = planes["x"].library if "x" in planes else next((a.library for a in planes.values()), "numpy")
        return Case(known, text, planes, library, notes)


def _other_shape(plane: Plane, array: Array) -> list[str]:
    """What to say of a matrix that has the elements of its plane, but neither its shape nor that without padding: a transposed one, for instance."""
    if plane.members or plane.gemm or len(array.shape) != 2 or 1 in array.shape:
        return []
    packed = (plane.logical[0], -(-plane.logical[1] * plane.code_bits // 8))
    if array.shape in (plane.stored, plane.padded, plane.logical, packed):
        return []
    rows, cols = packed if plane.packed else plane.logical
    return [f"{plane.name}: expected the shape [{rows}, {cols}], found [{array.shape[0]}, {array.shape[1]}]; its elements were read row by row"]


def _written_line(op: str, found: Outputs, planes: Mapping[str, Array]) -> str:
    """The line of a case without x: spec has to say the sizes, or the codes do."""
    words = found.words
    keys = dict(words.keys)
    if op in ("quantize", "split") and "dir" not in keys:
        keys["dir"] = found.direction()
    if op == "attention" and not words.sizes:
        from ._attention import attention_line
        layout = keys.get("layout", "bshd")
        tensors = {n: a for n, a in planes.items() if n in ("q", "k", "v", "kv", "qkv")}
        first = next((a for a in tensors.values()), None)
        nominal = words.source or SOURCES.get(first.word if first else "", "bf16")
        more: dict[str, object] = {"backward": 1} if "do" in planes and "backward" not in keys else {}
        if first and first.word in ("F8_E4M3", "F8_E5M2"):   # N20.17
            more["codes"] = first.word[3:].lower()
        return attention_line(found.spec, tensors, nominal, more, layout)
    if words.sizes:
        sizes = words.sizes
    else:
        side = next((d for d in ("row", "col") if f"{d}.data" in found.planes), None)
        if side is None:
            raise LineError("expected a whole line, such as 'dequantize mxfp8 64x256 bf16', found a spec without sizes and no x to take them from")
        sizes = "{}x{}".format(*found.shape(side))
    source = [words.source or "bf16"] if op != "gemm" or words.source else []
    return " ".join([op, *words.format, sizes, *source, *(f"{k}={v}" for k, v in keys.items() if k not in _DRAWN)])


def x_words() -> str:
    return ", ".join(SOURCES.values())


def size_of(shape: Sequence[int]) -> int:
    return math.prod(shape)
