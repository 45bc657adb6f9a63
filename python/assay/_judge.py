"""Verdicts: check, explain, identify, coherence, trace, and the assertions made of them."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from . import _assay
from ._arrays import WIDTHS, Array, array_of, seconds_of, threads_of
from ._errors import LineError, PlaneError
from ._given import Case, Outputs, _written_line
from ._lines import answered, flat, line
from ._verdict import Coherence, Diagnosis, Identification, Trace, Verdict

_CAUSE_SECONDS = 5.0   # of looking for the cause of a divergence, as `assay check` does


def _case(x: Any, outputs: Any, spec: str | None, settings: Mapping[str, Any]) -> Case:
    known = {name: settings[name] for name in ("rng", "amax", "scale", "x_dtype", "copy") if settings.get(name) is not None}
    keys = {name: value for name, value in settings.items() if name not in ("rng", "amax", "scale", "x_dtype", "copy")}
    return Case.of(x, outputs, spec, keys=keys, **known)


def check(x: Any, outputs: Any, spec: str | None = None, *, cause: bool = False, threads: int = 0, rng: Sequence[int] | None = None,
          amax: float | None = None, scale: float | None = None, x_dtype: Any = None, copy: bool | None = None, unpinned: str = "",
          exact: bool = False, **keys: Any) -> Verdict:
    """Judges outputs, bit for bit, as `assay check` judges a pack. The directions whose planes are given are judged.

    x        what was quantized; a mapping of input planes for other ops ({"row.data": ..., "row.scale_inv": ...} of a dequantize)
    outputs  a mapping of planes {"row.data": ..., "row.scale_inv": ...}, a pair (codes, scales), what quantize returned, or a quantized tensor
             of TransformerEngine or torchao
    spec     a format and keys: "mxfp8 element=e5m2 scales=gemm"; other ops by their name: "cast e4m3", "split mxfp8 groups=64,64"
    cause    also look for the cause of a divergence, for a few seconds
    rng, amax, scale   as of quantize; stochastic rounding is judged with rng alone
    unpinned why the bits of a gemm are not pinned: then d is held to the bound (N16.13)
    exact    the reference judges every block. Else the vectorised method looks first at tensors of 4 Mi elements or more: the reference judges the
             blocks that it does not know, every special one and a sample, and str(verdict) says who judged how many; where many blocks differ, the
             reference judges some of them, and the method counts what differs in the others

    Raises LineError, PlaneError, UnsupportedEncoding, NotJudged.
    """
    case = _case(x, outputs, spec, {"rng": rng, "amax": amax, "scale": scale, "x_dtype": x_dtype, "copy": copy, **keys})
    answer = answered(_assay.check(case.text, case.given, threads_of(threads), _CAUSE_SECONDS if cause else 0.0, "outputs", unpinned, bool(exact)))
    return Verdict.of_answer(answer, case.copied_bytes, case.notes, case)


def explain(x: Any, outputs: Any, spec: str | None = None, *, budget_s: float = 10.0, pairs: bool = True, threads: int = 0, unpinned: str = "",
            **keys: Any) -> Diagnosis:
    """Looks for the cause of what differs, as `assay explain` does: which stage first, which elements, which rule makes these bytes.

    budget_s  seconds of searching; pairs: whether two causes together are tried. Ctrl-C ends it. Other arguments as of check.
    """
    case = _case(x, outputs, spec, keys)
    answer = answered(_assay.explain(case.text, case.given, threads_of(threads), seconds_of(budget_s, "budget_s"), bool(pairs), "outputs", unpinned))
    return Diagnosis.of_answer(answer, case)


def identify(x: Any, outputs: Any, spec: str | None = None, *, threads: int = 0, **keys: Any) -> Identification:
    """Whose choices made these bytes: TransformerEngine's kernels, or a library by name, the best first. Arguments as of check."""
    case = _case(x, outputs, spec, keys)
    return Identification.of_answer(answered(_assay.identify(case.text, case.given, threads_of(threads))))


def coherence(outputs: Any, spec: str | None = None) -> Coherence:
    """Rows against columns, without the tensor that both were made from. Needs codes and scales of both directions.

    Raises PlaneError where one of them is missing, LineError.
    """
    found = Outputs.of(outputs, spec)
    if not all(f"{d}.data" in found.planes for d in ("row", "col")):
        raise PlaneError(f"expected row.data and col.data, found {', '.join(found.planes)}; coherence compares two directions", "outputs")
    text = _written_line(found.words.op or "quantize", found, found.planes)
    answer = answered(_assay.coherence(text, [a.given(n) for n, a in found.planes.items()]))
    return Coherence.of_coherence(answer, line(text).text)


def trace(x: Any, outputs: Any, at: tuple[int, int], spec: str | None = None, *, dir: str | None = None, **keys: Any) -> Trace:
    """One element of x, at (row, column): the reference's steps clause by clause, and the bytes that came beside its own.

    Raises PlaneError for an element that x does not have, LineError, and what check raises.
    """
    try:
        row, col = (int(n) for n in at)
    except (TypeError, ValueError):
        raise PlaneError(f"expected at=(row, column), found {at!r}", "x") from None
    if dir not in (None, "row", "col"):
        raise LineError(f"expected dir= to be row or col, found '{dir}'")
    case = _case(x, outputs, spec, keys)
    rows, cols = case.line.shape
    if not (0 <= row < rows and 0 <= col < cols):
        raise PlaneError(f"element ({row}, {col}) is outside the {rows}x{cols} tensor; at=(row, column) counts from 0", "x", "an element of x", f"({row}, {col})")
    return Trace.of_answer(answered(_assay.trace(case.text, case.given, row, col, dir or "")))


# ---- assertions ------------------------------------------------------------------------------------------------------

class QuantizedMismatch(AssertionError):
    """What assert_quantized raises: `verdict`, and `diagnosis` where a cause was looked for; `case` has the arrays."""

    def __init__(self, text: str, verdict: Verdict, case: Case):
        super().__init__(text)
        self.verdict, self.case = verdict, case

    def __reduce__(self) -> tuple[Any, ...]:   # a task of another process raises it here
        return type(self), (*self.args, self.verdict, self.case)


def _told(text: str, msg: str | Callable[[str], str] | None) -> str:
    return text if msg is None else msg(text) if callable(msg) else msg


def assert_quantized(x: Any, outputs: Any, spec: str | None = None, *, explain: bool = True, msg: str | Callable[[str], str] | None = None,
                     **keys: Any) -> None:
    """Raises an AssertionError unless outputs are what the reference makes of x. Its text is the screen of `assay check`, with the cause
    unless explain is false; msg replaces it, or makes another of it. Arguments as of check."""
    __tracebackhide__ = True   # a failure is shown where the test calls this
    known = {k: v for k, v in keys.items() if k not in ("threads", "unpinned", "exact")}
    case = _case(x, outputs, spec, known)
    from . import _settings
    seconds = _CAUSE_SECONDS if explain and _settings.explains() else 0.0
    answer = answered(_assay.check(case.text, case.given, threads_of(keys.get("threads", 0)), seconds, "outputs", keys.get("unpinned", ""),
                                   bool(keys.get("exact"))))
    verdict = Verdict.of_answer(answer, case.copied_bytes, case.notes, case)
    if verdict.ok:
        return
    if seconds:
        _settings.explained()
    text = f"quantized tensors differ: {verdict.summary()}\n\n{verdict}"
    pack = _settings.dump(case, verdict)
    if pack:
        text += f"\n  pack     {pack}\n  explain  assay explain {pack}"
    raise QuantizedMismatch(_told(text, msg), verdict, case)


_ENCODINGS = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "e4m3", "F8_E5M2": "e5m2", "F8_E8M0": "e8m0", "U8": "u8", "I8": "u8",
              "U32": "u32", "I32": "u32"}
_BITS = {"f32": 4, "bf16": 2, "f16": 2, "u32": 4}


def _codes(array: Array, encoding: str) -> tuple[tuple[int, int], Any]:
    """The codes as the module takes them: rows, columns, bytes. 4-bit codes that come two in a byte are taken apart."""
    shape = array.shape or (1,)
    rows, cols = flat(shape, "actual")
    if encoding == "e2m1":
        data = array.tobytes()
        if any(b > 15 for b in data):
            return (rows, 2 * cols), bytes(half for b in data for half in (b & 15, b >> 4))
        return (rows, cols), data
    return (rows, cols), array.view


def assert_bitwise(actual: Any, expected: Any, *, encoding: str | None = None, msg: str | Callable[[str], str] | None = None) -> None:
    """Raises an AssertionError unless actual and expected have one shape and equal bits; NaN equals itself, and -0 differs from 0.

    encoding  what the codes are, where the dtype does not tell: "e4m3" of uint8, "e2m1" of packed codes
    msg       replaces the text, or makes another of it, as in torch.testing.assert_close
    """
    __tracebackhide__ = True   # a failure is shown where the test calls this
    a, b = array_of(actual, "actual"), array_of(expected, "expected")
    if a.shape != b.shape:
        raise AssertionError(_told(f"arrays differ: shape {list(a.shape)} of actual, {list(b.shape)} of expected", msg))
    integers = ("U8", "I8", "U16", "I16", "U32", "I32")
    if a.word != b.word and not (WIDTHS[a.word] == WIDTHS[b.word] and (a.word in integers or b.word in integers)):
        raise AssertionError(_told(f"arrays differ: dtype {a.name} of actual, {b.name} of expected", msg))
    word = b.word if a.word in integers else a.word
    name = encoding or _ENCODINGS.get(word)
    if name is None:   # integers of 16 bits, which no encoding is: byte for byte
        a, b = (Array("U8", (*c.shape[:-1], 2 * c.shape[-1]) if c.shape else (2,), c.view, c.library, c.name) for c in (a, b))
        name = "u8"
    if name not in (*_ENCODINGS.values(), "e2m1", "e2m3", "e3m2"):
        raise PlaneError(f"expected encoding= to be one of {', '.join(dict.fromkeys([*_ENCODINGS.values(), 'e2m1', 'e2m3', 'e3m2']))}, found '{name}'", "actual")
    if _BITS.get(name, 1) != WIDTHS[a.word]:
        raise PlaneError(f"expected elements of {_BITS.get(name, 1)} bytes for encoding {name}, found {a.name}", "actual", name, a.name)
    if encoding and word not in integers and _ENCODINGS.get(word) != encoding:
        raise PlaneError(f"expected elements of encoding={encoding}, found {a.name}; leave encoding= out where the dtype tells it", "actual", encoding, a.name)
    if name == "e2m1" and a.count and b.count:
        packed = max(max(a.tobytes()), max(b.tobytes())) > 15
        (rows, cols), left = _unpacked(a) if packed else _codes(a, "u8")
        _, right = _unpacked(b) if packed else _codes(b, "u8")
    else:
        (rows, cols), left = _codes(a, name if name != "e2m1" else "u8")
        _, right = _codes(b, name if name != "e2m1" else "u8")
    answer = answered(_assay.compare(name, rows, cols, left, right))
    if answer["ok"]:
        return
    text = (f"arrays differ: {answer['differ']} of {answer['of']} elements of {name} ({100 * answer['differ'] / answer['of']:.1f} %), "
            f"first at ({answer['first'][0]}, {answer['first'][1]})\n{answer['screen'].rstrip()}")
    raise AssertionError(_told(text, msg))


def _unpacked(array: Array) -> tuple[tuple[int, int], bytes]:
    rows, cols = flat(array.shape or (1,), "actual")
    return (rows, 2 * cols), bytes(half for b in array.tobytes() for half in (b & 15, b >> 4))
