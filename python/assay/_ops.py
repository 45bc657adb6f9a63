"""The ops of the line as functions: each gives the bytes that the reference writes, which are those of the program. Those of the common quantizers and casts
are made by the vectorised method, which writes the same bytes faster (docs/independence.md)."""
from __future__ import annotations

import atexit
import functools
from typing import Any, Callable, Mapping, Sequence

from . import _assay
from ._arrays import SOURCES, WORDS, Array, array_of, handed, library_for, output_array, threads_of, unpack_codes
from ._errors import AssayError, LineError, PlaneError, UnsupportedEncoding
from ._lines import KEPT_LINES, Line, answered, dtype_word, flat, keys, line, line_text, words_of
from ._prepared import Prepared, is_plain
from ._quantized import Planes, Quantized

# Keys that say how a tensor was drawn or what stood beside it, not how it was quantized.
_OF_THE_TENSOR = ("fill", "seed", "at", "noop", "rng", "dir")


_X_DTYPES = "float32, bfloat16 or float16"


def x_array(x: Any, x_dtype: Any = None, copy: bool | None = None, device_copy: bool = False, what: str = "x") -> tuple[Array, str]:
    """x as the module reads it, and what a line calls its encoding."""
    try:
        array = array_of(x, what, copy, device_copy)
    except UnsupportedEncoding as error:   # a plane may have more dtypes than x
        raise UnsupportedEncoding(what, _X_DTYPES, error.found, error.hint) from None
    if x_dtype is not None:
        source = dtype_word(x_dtype)
        word = source.upper()
        if array.word != word and (array.word not in ("U16", "I16", "U32", "I32") or (array.word[1:] != "32") != (source != "f32")):
            raise PlaneError(f"expected x_dtype to be the dtype of x or that of its bits, found {x_dtype} for {array.name}", what, source, array.name)
        return Array(word, array.shape, array.view, array.library, array.name, array.copied), source
    if array.word not in SOURCES:
        hint = 'pass x_dtype="bf16" where it holds the bits of one' if array.word == "U16" else "convert it first, for instance to float32"
        raise UnsupportedEncoding(what, _X_DTYPES, array.name, hint)
    return array, SOURCES[array.word]


def computed(text: str, given: Mapping[str, Array], library: str, *, unpacked: bool = False, threads: int = 0, kind: type[Planes] = Planes,
             exact: bool = True) -> Any:
    """Runs a line on the given input planes and returns its outputs as arrays of a library. Unless `exact`, the vectorised method may make them."""
    found, arrays, outputs = line(text), {}, []
    for plane in found.outputs:
        target, finish = output_array(library, plane.encoding, plane.bytes, plane.stored)
        arrays[plane.name] = (plane, finish)
        outputs.append((plane.name, handed(target)))
    answer = answered(_assay.run(text, [a.given(name) for name, a in given.items()], outputs, threads_of(threads), bool(exact)))
    made = {}
    for name, (plane, finish) in arrays.items():
        array = finish()
        made[name] = unpack_codes(array, plane.logical[1], plane.code_bits) if unpacked and plane.packed else array
    return kind(found, made, library, sum(a.copied for a in given.values()), answer["by"])


def _extra(given: Mapping[str, Any] | None) -> dict[str, Array]:
    return {name: array_of(value, name) for name, value in (given or {}).items()}


def _direction(spec: str, dir: str) -> str | None:
    """The key dir= of a line: the argument, unless it is the default and the spec has its own."""
    if dir not in ("row", "col", "both"):
        raise LineError(f"expected dir= to be row, col or both, found '{dir}'")
    written = words_of(spec).keys.get("dir")
    if written not in (None, dir) and dir != "row":
        raise LineError(f"expected one direction, found dir={written} in the spec and dir={dir} beside it")
    return None if written else dir


@functools.lru_cache(maxsize=KEPT_LINES)
def _plain_text(op: str, spec: str, dir: str | None, shape: tuple[int, ...], source: str) -> str:
    """The line of an op without further arguments. Kept, because making it takes as long as quantizing a small tensor."""
    return line_text(op, spec, flat(shape), source, {} if dir is None else {"dir": _direction(spec, dir)})


@functools.lru_cache(maxsize=KEPT_LINES)
def _kept(op: str, spec: str, dir: str | None, shape: tuple[int, ...], dtype: Any) -> Prepared | None:
    """What _plain_text and Prepared.of find; None also where an error lies ahead, which the general way tells."""
    try:
        return Prepared.of(_plain_text(op, spec, dir, shape, SOURCES[WORDS[str(dtype).removeprefix("torch.")]]))
    except (AssayError, KeyError):
        return None


_prepared: Callable[..., Prepared | None] = _kept


@atexit.register
def _end() -> None:
    """nanobind warns of lines that outlive it. Whatever quantizes after this goes the general way."""
    global _prepared
    _prepared = lambda *_: None
    _kept.cache_clear()


def _at_once(op: str, spec: Any, dir: Any, x: Any, out: Any, threads: int) -> tuple[Line, dict[str, Any], str] | None:
    """The line of a plain PyTorch tensor, its planes and what made them, if the vectorised method has the line and nothing about the call is special."""
    if out not in ("like", "torch") or not is_plain(x) or not isinstance(spec, str) or not isinstance(dir, (str, type(None))):
        return None
    prepared = _prepared(op, spec, dir, x.shape, x.dtype)
    made = prepared(x, threads) if prepared else None
    return (prepared.found, *made) if prepared and made else None


def quantize(x: Any, spec: str = "mxfp8", *, dir: str = "row", flavour: str | None = None, rng: Sequence[int] | None = None,
             amax: float | None = None, scale: float | None = None, out: str = "like", unpacked: bool = False, x_dtype: Any = None,
             given: Mapping[str, Any] | None = None, threads: int = 0, copy: bool | None = None, device_copy: bool = False,
             exact: bool = False, **keys: Any) -> Quantized:
    """Quantizes x as the reference does; the bytes are those of `assay record`.

    spec      a format and keys of a line: "mxfp8", "nvfp4 round=sr", "mxfp8/nvfp4 dir=both" (docs/architecture.md, `assay list --keys`)
    dir       row, col or both: the directions that are produced
    flavour   whose choices are the defaults: te, or a name that `assay flavours` lists
    rng       (seed, offset[, member]) of stochastic rounding
    amax      the tensor's amax, where it is given and not computed; scale: the given scale of delayed scaling
    out       the library of the arrays: that of x (like), numpy, torch or jax
    unpacked  packed codes in a byte each; otherwise as they are stored, the first in the lowest bits
    x_dtype   what the elements are, where x holds their bits: "bf16" for uint16
    given     more input planes of the line, by name: {"row.given.scale_inv": scales} under scale_from=scale
    threads   0: the cores of this machine
    copy      False: BufferError where x would have to be copied; device_copy: x may be on a device and larger than 1 GiB
    exact     the reference itself makes the planes. Else those of MXFP8, FP8 and NVFP4 without other keys are made by the vectorised method, whose bytes
              are the reference's; `.made_by` says which of the two it was

    Returns a mapping of plane names to arrays: q["row.data"], q["row.scale_inv"], q.row.data. Raises LineError, PlaneError,
    UnsupportedEncoding, BufferError.
    """
    threads = threads_of(threads)
    plain = flavour is None and rng is None and amax is None and scale is None and not keys and isinstance(spec, str) and isinstance(dir, str)
    if plain and given is None and x_dtype is None and not unpacked and not exact and (made := _at_once("quantize", spec, dir, x, out, threads)):
        return Quantized(made[0], made[1], "torch", 0, made[2])
    source_array, source = x_array(x, x_dtype, copy, device_copy)
    if plain:
        text = _plain_text("quantize", spec, dir, source_array.shape, source)
    else:
        settings = {"dir": _direction(spec, dir), "flavour": flavour, "rng": None if rng is None else seeds(rng), "amax": amax, "scale": scale, **keys}
        text = line_text("quantize", spec, flat(source_array.shape), source, settings)
    return computed(text, {"x": source_array, **_extra(given)}, library_for(out, source_array.library), unpacked=unpacked, threads=threads,
                    kind=Quantized, exact=exact)


def seeds(rng: Sequence[int]) -> tuple[int, int, int]:
    """(seed, offset, member) of two or three integers."""
    try:
        numbers = [int(n) for n in rng]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (2, 3):
        raise LineError(f"expected rng= to be (seed, offset) or (seed, offset, member), found {rng!r}")
    return numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 0


def cast(x: Any, to: str = "e4m3", *, out: str = "like", x_dtype: Any = None, given: Mapping[str, Any] | None = None, threads: int = 0,
         copy: bool | None = None, exact: bool = False, **keys: Any) -> Any:
    """Converts every element of x to another encoding: cast(x, "e4m3", round="rz", overflow="nosat"). Returns an array; 4- and 6-bit codes
    take a byte each. exact: as of quantize."""
    threads = threads_of(threads)
    if not keys and given is None and x_dtype is None and not exact and (at_once := _at_once("cast", to, None, x, out, threads)):
        made, shape = at_once[1]["y"], x.shape
    else:
        array, source = x_array(x, x_dtype, copy)
        plain = isinstance(to, str) and not keys
        text = _plain_text("cast", to, None, array.shape, source) if plain else line_text("cast", to, flat(array.shape), source, keys)
        made, shape = computed(text, {"x": array, **_extra(given)}, library_for(out, array.library), threads=threads, exact=exact)["y"], array.shape
    return made.reshape(shape) if hasattr(made, "reshape") and tuple(made.shape) != shape else made


def split(x: Any, spec: str = "mxfp8", groups: Sequence[int] | None = None, *, dir: str = "row", rng: Sequence[int] | None = None,
          out: str = "like", unpacked: bool = False, x_dtype: Any = None, threads: int = 0, copy: bool | None = None, **keys: Any) -> Quantized:
    """Quantizes every member of a grouped tensor: groups are the rows of each, one after the other in x. One plane of each kind serves all."""
    array, source = x_array(x, x_dtype, copy)
    settings = {"dir": _direction(spec, dir), "groups": None if groups is None else [int(n) for n in groups],
                "rng": None if rng is None else seeds(rng), **keys}
    text = line_text("split", spec, flat(array.shape), source, settings)
    return computed(text, {"x": array}, library_for(out, array.library), unpacked=unpacked, threads=threads, kind=Quantized)


def hadamard(x: Any, *, out: str = "like", x_dtype: Any = None, threads: int = 0, **keys: Any) -> Planes:
    """Rotates every 16 rows of each column of x (bfloat16) and takes the amax: {"y": [cols, rows], "amax"}, as NVFP4 columns begin (N11)."""
    array, source = x_array(x, x_dtype)
    words = words_of(str(keys.pop("spec", "nvfp4")))
    text = line_text("hadamard", " ".join(words.format), flat(array.shape), source, {**words.keys, **keys})
    return computed(text, {"x": array}, library_for(out, array.library), threads=threads)  # type: ignore[no-any-return]


def swizzle(scales: Any, spec: str = "mxfp8", *, shape: Sequence[int], dir: str = "row", inverse: bool = False, out: str = "like",
            threads: int = 0, **keys: Any) -> Any:
    """The scales of a tensor of `shape`, from row-major to the GEMM layout, or back with inverse=True. Scales have the padded shape of their plane."""
    array = array_of(scales, "scales")
    source = {"nvfp4": "e4m3", "fp8_block": "f32"}.get(words_of(spec).format[0] if words_of(spec).format else "", "e8m0")
    text = line_text("swizzle", spec, flat(tuple(shape)), source, {"dir": _direction(spec, dir), "inverse": inverse or None, **keys})
    name = f"{dir}.{'scale_gemm' if inverse else 'scale_inv'}"
    made = computed(text, {name: array}, library_for(out, array.library), threads=threads)
    return next(iter(made.values()))


def kept_keys(text: str, op: str, direction: str | None = None) -> dict[str, str]:
    """The keys of a quantize line that another op has too, those of one direction written for itself."""
    table, kept = keys(), {}
    for name, value in words_of(text).keys.items():
        side, _, stem = name.rpartition(".")
        if side not in ("", direction) and direction is not None:
            continue
        if stem in table and op in table[stem]["ops"] and stem not in _OF_THE_TENSOR:
            kept[stem if direction else name] = value
    return kept


def format_of(text: str, direction: str) -> str:
    """The format of one direction of a line: "nvfp4" of the columns of "mxfp8/nvfp4"."""
    formats = words_of(text).format
    if not formats:
        raise LineError("expected a spec that begins with a format, such as 'mxfp8', found none")
    row, _, col = formats[0].partition("/")
    return col if col and direction == "col" else row


def dequantize(q: Any, spec: str | None = None, *, dtype: Any = "f32", dir: str | None = None, shape: Sequence[int] | None = None,
               source: Any = "bf16", out: str = "like", threads: int = 0, **keys: Any) -> Any:
    """The values of quantized planes: of what quantize returned, of a mapping of planes, a pair (codes, scales), or a quantized tensor.

    spec   as of quantize; what quantize returned knows its own
    dtype  of the result: f32, bf16 or f16
    dir    row or col (default: the rows, where there are any)
    shape  of the tensor, where codes do not tell it (an odd number of 4-bit codes in a row)
    source the dtype of the tensor that q was made from, where nothing tells it

    Returns an array [rows, columns]. Raises LineError, PlaneError.
    """
    from ._given import Outputs
    outputs = Outputs.of(q, spec)
    direction = dir or ("row" if any(n.startswith("row.") for n in outputs.planes) else "col")
    if direction not in ("row", "col"):
        raise LineError(f"expected dir= to be row or col, found '{direction}'")
    given = {n: a for n, a in outputs.planes.items() if n.startswith(direction + ".") and not n.endswith(".scale")}
    if f"{direction}.data" not in given:
        raise PlaneError(f"expected {direction}.data, found {', '.join(outputs.planes) or 'no plane'}", f"{direction}.data")
    words = outputs.words
    size = flat(tuple(shape)) if shape is not None else words.shape or outputs.shape(direction)
    form, encoding = format_of("quantize " + outputs.spec, direction), words.source or dtype_word(source)
    target = encoding if form == "identity" and dtype == "f32" else dtype_word(dtype)   # which dequantizes to its own encoding
    settings = {"dir": direction, "out": target, **kept_keys("quantize " + outputs.spec, "dequantize", direction), **keys}
    text = line_text("dequantize", form, size, encoding, settings)
    wanted = {p.name for p in line(text).inputs}
    given = {n: a for n, a in given.items() if n in wanted}
    library = library_for(out, given[f"{direction}.data"].library)
    return computed(text, given, library, threads=threads)["y"]


def gemm(a: Any, b: Any, spec: str = "", *, op: str = "TN", c: Any = None, bias: Any = None, alpha: float | None = None, beta: float | None = None,
         dtype: Any = "bf16", sum: str | None = None, out: str = "like", threads: int = 0, **keys: Any) -> Any:
    """Multiplies two quantized operands: d[n, m] is the sum over k of a(m, k) b(n, k), then the epilogue (N16). Returns d.

    a, b   what quantize returned, or mappings {"data", "scale_inv", "amax"} with a spec "a=mxfp8 b=mxfp8 MxNxK ..."
    op     which directions are read: TN rows and rows, NN columns of a and rows of b, NT columns and columns
    c, bias, alpha, beta   of the epilogue; dtype: of d
    sum    the order in which products are added, as the key of the line says it

    Raises LineError, and PlaneError where operands do not fit one another.
    """
    from ._given import Outputs
    sides, formats, settings, shapes = {}, [], {}, {}
    for name, value, direction in (("a", a, "row" if op == "TN" else "col"), ("b", b, "col" if op == "NT" else "row")):
        if isinstance(value, Quantized):
            found = Outputs.of(value, None)
            planes = {n.partition(".")[2]: p for n, p in found.planes.items() if n.startswith(direction + ".")}
            if "data" not in planes:
                raise PlaneError(f"expected {direction} data for op={op}, found {', '.join(found.planes)}; quantize with dir={direction}", name)
            shapes[name] = value._line.shape
            formats.append(f"{name}={format_of('quantize ' + found.spec, direction)}")
            settings[f"{name}.source"] = value._line.source
            for key, text in kept_keys("quantize " + found.spec, "gemm", direction).items():
                settings[f"{name}.{key}"] = text
        elif isinstance(value, Mapping):
            planes = {str(n): array_of(v, f"{name}.{n}") for n, v in value.items()}
        else:
            raise PlaneError(f"expected what quantize returned, or a mapping of planes, found {type(value).__name__}", name)
        sides.update({f"{name}.{n}": p for n, p in planes.items() if n in ("data", "scale_inv", "scale_gemm", "amax")})
    if len(shapes) == 2:
        m, k = shapes["a"] if op == "TN" else shapes["a"][::-1]
        n, k2 = shapes["b"][::-1] if op == "NT" else shapes["b"]
        if k != k2:
            raise PlaneError(f"expected operands of one K, found {k} of a and {k2} of b under op={op}", "b.data", str(k), str(k2))
        head = [*formats, f"{m}x{n}x{k}"]
    else:
        words = words_of("gemm " + spec)
        if not words.sizes:
            raise LineError("expected two results of quantize, or a spec with formats and sizes, such as 'a=mxfp8 b=mxfp8 64x32x128'")
        head, spec = [*words.format, words.sizes, *([words.source] if words.source else [])], " ".join(f"{k}={v}" for k, v in words.keys.items())
        settings.clear()
    if bias is not None:
        settings["bias"] = x_array(bias, what="bias")[1]
        sides["bias"] = array_of(bias, "bias")
    if c is not None:
        sides["c"] = array_of(c, "c")
    settings.update({k: v for k, v in {"op": op if op != "TN" else None, "sum": sum, "alpha": alpha, "beta": beta, **keys}.items() if v is not None})
    settings["out"] = dtype if dtype in ("e4m3", "e5m2") else dtype_word(dtype)
    from ._lines import line_of_settings
    text = line_of_settings(["gemm", *head, *spec.split()], settings)
    needed = {p.name for p in line(text).inputs}
    given = {n: p for n, p in sides.items() if n in needed}
    library = library_for(out, given["a.data"].library if "a.data" in given else "numpy")
    return computed(text, given, library, threads=threads)["d"]


def run(text: str, planes: Mapping[str, Any] | None = None, *, out: str = "numpy", unpacked: bool = False, threads: int = 0) -> Planes:
    """Any line (its text), on input planes by name; those that are not given come from the line's fill= and keys. Returns its output planes."""
    given = _extra(planes)
    found: Line = line(text)
    for name in given:
        found.plane(name)
    kind = Quantized if found.op in ("quantize", "split") else Planes
    library = library_for(out, next(iter(given.values())).library if given else "numpy")
    return computed(text, given, library, unpacked=unpacked, threads=threads, kind=kind)  # type: ignore[no-any-return]


def inputs(text: str, *, out: str = "numpy") -> Planes:
    """The input planes of a line (its text) as the suites have them: drawn by its fill=, or said by its keys."""
    found = line(text)
    library, arrays, outputs = library_for(out, "numpy"), {}, []
    for plane in found.inputs:
        target, finish = output_array(library, plane.encoding, plane.bytes, plane.stored)
        arrays[plane.name] = finish
        outputs.append((plane.name, handed(target)))
    answered(_assay.inputs(text, outputs))
    return Planes(found, {name: finish() for name, finish in arrays.items()}, library)


def fill(line_or_shape: Any, kind: str = "ties", seed: int = 1, dtype: Any = "bfloat16", out: str = "numpy") -> Any:
    """Test data as the suites draw them: fill((64, 256)), fill((8, 32), "amax_edges", dtype="float32"), or x of a line.

    kind is a fill of `assay list --fills`: normal, edges, ties, every_code, outliers, wide, exact_sums, zeros, denormal, nonfinite,
    amax_edges, negative_zeros.

    line_or_shape   a line, whose x is drawn, or the sizes of the array
    seed            of the drawing; equal ones give equal arrays

    Raises LineError, and PlaneError for a line without x.
    """
    if isinstance(line_or_shape, str):
        found = line(line_or_shape)
        drawn = inputs(line_or_shape, out=out)
        if "x" not in drawn:
            raise PlaneError(f"expected a line with a tensor x, found inputs {', '.join(drawn) or 'none'} of '{found.text}'; call assay.inputs(line)", "x")
        return drawn["x"]
    shape = (line_or_shape,) if isinstance(line_or_shape, int) else tuple(line_or_shape)
    if not shape or any(not isinstance(n, int) or n < 0 for n in shape):
        raise PlaneError(f"expected a line or a shape of sizes, found {line_or_shape!r}", "x")
    rows, cols = flat(shape)
    x = inputs(line_text("quantize", "identity", (rows, cols), dtype_word(dtype), {"fill": kind, "seed": seed}), out=out)["x"]
    return x.reshape(shape) if hasattr(x, "reshape") else x
