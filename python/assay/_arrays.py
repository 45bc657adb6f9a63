"""Arrays of any library as bytes that the module reads where they lie, and arrays of the caller's library for what it writes.

No library is imported here but NumPy, where it is installed and needed; PyTorch and JAX are used when the caller has them.
"""
from __future__ import annotations

import functools
import importlib.util
import math
import struct
import sys
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from . import _assay
from ._errors import AssayError, PlaneError, UnsupportedEncoding

# Safetensors' word for each dtype, by the name that NumPy with ml_dtypes, JAX and PyTorch share.
WORDS = {
    "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32", "bool": "U8",
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn": "U8", "float4_e2m1fn_x2": "U8",
    "float6_e2m3fn": "U8", "float6_e3m2fn": "U8",
}
WIDTHS = {"U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
SOURCES = {"F32": "f32", "BF16": "bf16", "F16": "f16"}   # what a line calls the encoding of x
# The dtype that an array of an encoding has, where the library has it.
NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu",
         "u32": "uint32"}
PLAIN = {"f32": "float32", "bf16": "uint16", "f16": "float16", "u32": "uint32"}   # without ml_dtypes; all others uint8
_DLPACK = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32", (2, 16): "float16",
           (2, 32): "float32", (4, 16): "bfloat16", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2", (14, 8): "float8_e8m0fnu"}
_FORMATS = {"B": "uint8", "b": "int8", "H": "uint16", "h": "int16", "I": "uint32", "i": "int32", "e": "float16", "f": "float32", "?": "bool"}
kMostDeviceBytes = 1 << 30


@dataclass
class Array:
    """One array: safetensors' word for its dtype, its shape, and something with its bytes in C order that the module can read."""

    word: str
    shape: tuple[int, ...]
    view: Any
    library: str   # numpy, torch, jax or buffer
    name: str      # of the dtype, as its library calls it
    copied: int = 0

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def given(self, plane: str) -> tuple[str, Any, str, list[int]]:
        return plane, handed(self.view), self.word, list(self.shape)

    def tobytes(self) -> bytes:
        return _assay.array_bytes(self.view) if self.count else b""


def numpy() -> Any:
    """NumPy, or None where it is not installed."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def ml_dtypes() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes


def _refuse(name: str, what: str) -> UnsupportedEncoding:
    return UnsupportedEncoding(what, f"one of {', '.join(sorted(set(WORDS) - {'bool'}))}", name, "convert it first, for instance to float32")


def _copying(what: str, why: str, copy: bool | None) -> None:
    if copy is False:
        raise BufferError(f"{what}: {why}, and copy=False allows no copy; pass a contiguous array in the CPU's memory")


def _of_torch(value: Any, what: str, copy: bool | None, device_copy: bool) -> Array:
    torch = sys.modules["torch"]
    if value.is_nested:
        raise PlaneError("expected one dense tensor, found a nested one; judge its parts, which .unbind() gives", what, "dense", "nested")
    local = getattr(value, "to_local", None)
    if local is not None:
        warnings.warn(f"{what}: a DTensor is judged by its local shard", stacklevel=5)
        value = local()
    if value.is_meta or type(value).__name__ in ("FakeTensor", "FunctionalTensor"):
        raise PlaneError("expected a tensor with data, found one without (meta or fake); call it outside of torch.compile", what,
                         "data", "none")
    if value.layout != torch.strided:
        raise PlaneError(f"expected a dense tensor, found layout {value.layout}; call .to_dense()", what, "dense", str(value.layout))
    name = str(value.dtype).removeprefix("torch.")
    if name not in WORDS:
        raise _refuse(name, what)
    value, copied = value.detach().resolve_neg(), 0
    if value.device.type != "cpu":
        size = value.numel() * value.element_size()
        _copying(what, f"it lies on {value.device}", copy)
        if size > kMostDeviceBytes and not device_copy:
            raise PlaneError(f"expected at most 1 GiB on {value.device}, found {size} bytes; pass device_copy=True to copy it to the CPU", what)
        value, copied = value.cpu(), size
    if not value.is_contiguous():
        _copying(what, "it is not contiguous", copy)
        value = value.contiguous()
        copied += value.numel() * value.element_size()
    flat = value.reshape(-1)
    if flat.numel() == 0:
        return Array(WORDS[name], tuple(value.shape), b"", "torch", name, copied)
    return Array(WORDS[name], tuple(value.shape), flat.view(torch.uint8), "torch", name, copied)


def handed(memory: Any) -> Any:
    """What the module is called with for an array's memory. Of a contiguous PyTorch tensor in the CPU's memory it is the address: if the module asked for
    a capsule of DLPack, that alone would take longer than quantizing a small tensor. A NumPy array of it would be as quick, but PyTorch never resizes a
    storage again that NumPy has seen."""
    torch = sys.modules.get("torch")
    return _assay.Memory(memory.data_ptr(), memory.nbytes, memory) if torch is not None and isinstance(memory, torch.Tensor) else memory


def _of_numpy(value: Any, what: str, copy: bool | None, library: str = "numpy") -> Array:
    np = numpy()
    if isinstance(value, np.ma.MaskedArray):
        raise PlaneError("expected an array without a mask, found a masked array; call .filled() or .data", what)
    value = np.asarray(value)
    name = value.dtype.name
    if name not in WORDS or value.dtype.fields is not None:
        raise _refuse(name, what)
    copied = 0
    if not value.dtype.isnative:
        _copying(what, "its bytes are in the other order", copy)
        value = value.astype(value.dtype.newbyteorder("="))
        copied = value.nbytes
    if not value.flags.c_contiguous:
        _copying(what, "it is not contiguous", copy)
        value = np.ascontiguousarray(value)
        copied += value.nbytes
    view = value.reshape(-1).view(np.uint8) if value.size else b""
    return Array(WORDS[name], value.shape, view, library, name, copied)


def _of_dlpack(value: Any, what: str, copy: bool | None) -> Array:
    try:
        code, bits, lanes, shape, _, device, contiguous, _ = _assay.array_facts(value)
    except (TypeError, BufferError, RuntimeError) as error:
        raise PlaneError(f"expected an array that hands its memory over by DLPack, found {type(value).__name__}: {error}", what) from error
    name = "float4_e2m1fn_x2" if (code, bits, lanes) in ((17, 4, 2), (17, 8, 1)) else _DLPACK.get((code, bits)) if lanes == 1 else None
    if name is None:
        raise _refuse(f"DLPack type code {code} of {bits} bits, {lanes} lanes", what)
    if device != 1:
        raise PlaneError(f"expected memory of the CPU, found DLPack device {device}; copy it to the CPU first", what)
    if math.prod(shape) == 0:
        return Array(WORDS[name], tuple(shape), b"", "buffer", name)
    if contiguous:
        return Array(WORDS[name], tuple(shape), value, "buffer", name)
    _copying(what, "it is not contiguous", copy)
    data = _assay.array_bytes(value)
    return Array(WORDS[name], tuple(shape), data, "buffer", name, len(data))


def _of_buffer(value: Any, what: str, copy: bool | None) -> Array:
    view = memoryview(value)
    name = _FORMATS.get(view.format.lstrip("@=<"))
    if name is None or view.format[0] in ">!" or WIDTHS[WORDS[name]] != view.itemsize:
        raise _refuse(f"a buffer of format '{view.format}'", what)
    shape = tuple(view.shape or ())
    if math.prod(shape) == 0:
        return Array(WORDS[name], shape, b"", "buffer", name)
    if not view.c_contiguous:
        _copying(what, "it is not contiguous", copy)
        data = view.tobytes()
        return Array(WORDS[name], shape, data, "buffer", name, len(data))
    return Array(WORDS[name], shape, view.cast("B"), "buffer", name)


def _has_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except (TypeError, BufferError, ValueError):
        return False
    return True


def array_of(value: Any, what: str, copy: bool | None = None, device_copy: bool = False) -> Array:
    """The array as the module reads it; copied only where it has to be, and then counted. Raises AssayError or BufferError."""
    if isinstance(value, Array):
        return value
    torch, np = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return _of_torch(value, what, copy, device_copy)
    if np is not None and isinstance(value, (np.ndarray, np.generic)):
        return _of_numpy(value, what, copy)
    if str(type(value).__module__).partition(".")[0] in ("jax", "jaxlib"):
        try:
            return _of_numpy(numpy().asarray(value), what, copy, "jax")
        except (TypeError, AttributeError) as error:
            raise PlaneError(f"expected an array with values, found {type(value).__name__}; call it outside of jit", what) from error
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Array("F32", (), struct.pack("<f", f32(value, what)), "buffer", "float32")
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value, what, copy)
    if _has_buffer(value):
        return _of_buffer(value, what, copy)
    hint = "; numpy.asarray(values, dtype=...) makes one" if isinstance(value, (list, tuple)) and what != "outputs" else ""
    raise PlaneError(f"expected an array (NumPy, PyTorch, JAX, or anything with DLPack or the buffer protocol), found {type(value).__name__}{hint}", what,
                     "an array", type(value).__name__)


def threads_of(value: Any) -> int:
    """threads= of a call. Raises AssayError for what is no number of threads."""
    if type(value) is int and 0 <= value <= 1 << 16:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= value.__index__() <= 1 << 16:
        raise AssayError(f"threads: expected a number of threads, 0 for every core, found {value!r}")
    return int(value.__index__())


def seconds_of(value: Any, what: str) -> float:
    """A time limit of a call. Raises AssayError for what is no number of seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise AssayError(f"{what}: expected a number of seconds, 0 or more, found {value!r}")
    return float(value)


def f32(value: Any, what: str) -> float:
    """A number as a binary32 holds it. Raises PlaneError for what is no number, or lies beyond its range."""
    try:
        number = float(value.item() if hasattr(value, "item") else value)   # an array of one element, whatever its sizes
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        raise PlaneError(f"expected a number within the range of float32, found {value}", what) from None
    except (TypeError, ValueError, RuntimeError):
        raise PlaneError(f"expected a number, found {type(value).__name__}", what) from None


def f32_bits(value: Any, what: str) -> str:
    """A number as a line writes it, to the bit."""
    return f"0x{struct.unpack('<I', struct.pack('<f', f32(value, what)))[0]:08X}"


# ---- arrays for what the module writes -------------------------------------------------------------------------------

def _numpy_dtype(encoding: str) -> Any:
    np, ml = numpy(), ml_dtypes()
    name = NAMES.get(encoding, "uint8")
    if hasattr(np, name):
        return np.dtype(name)
    return np.dtype(getattr(ml, name)) if hasattr(ml, name) else np.dtype(PLAIN.get(encoding, "uint8"))


@functools.lru_cache(maxsize=None)
def torch_dtype(encoding: str) -> Any:
    import torch
    return getattr(torch, NAMES.get(encoding, "uint8"), torch.uint8)


def _shaped(buffer: bytearray, encoding: str, shape: Sequence[int]) -> memoryview:
    view = memoryview(buffer)
    form: Any = {"f32": "f", "u32": "I", "bf16": "H", "f16": "H"}.get(encoding, "B")
    return view.cast(form, tuple(shape)) if len(buffer) else view


def codes_of_bytes(data: Any, bits: int) -> bytearray:
    """Codes of `bits` bits that stand one after another, the first in the lowest bits, as a byte each."""
    whole = int.from_bytes(bytes(data[:3 if bits == 6 else 1]), "little")
    if len(data) > 3:   # group by group: a number of all of them would be long
        step, out = (3 if bits == 6 else 1), bytearray()
        for at in range(0, len(data), step):
            out += codes_of_bytes(data[at:at + step], bits)
        return out
    return bytearray(whole >> at & ((1 << bits) - 1) for at in range(0, 8 * len(data) - bits + 1, bits))


def bytes_of_codes(codes: Any, bits: int) -> bytes:
    """The inverse of codes_of_bytes: codes that fill whole bytes."""
    group = 8 // bits if 8 % bits == 0 else 4
    out = bytearray()
    for at in range(0, len(codes), group):
        number = sum(code << bits * i for i, code in enumerate(codes[at:at + group]))
        out += number.to_bytes(group * bits // 8, "little")
    return bytes(out)


def _split_codes(packed: Any, bits: int) -> list[Any]:
    """The codes of an array's bytes by their places in a group of whole bytes."""
    if bits == 4:
        return [packed & 15, packed >> 4]
    first, second, third = packed[..., 0::3], packed[..., 1::3], packed[..., 2::3]
    return [first & 63, first >> 6 | (second & 15) << 2, second >> 4 | (third & 3) << 4, third >> 2]


def unpack_codes(packed: Any, cols: int, bits: int = 4) -> Any:
    """Packed codes of 4 or 6 bits, the first in the lowest bits, as a byte each: [..., n] to [..., cols]."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(packed, torch.Tensor):
        return torch.stack(_split_codes(packed, bits), -1).flatten(-2)[..., :cols].contiguous()
    if isinstance(packed, memoryview):
        rows: Any = packed.tolist() if len(packed) and packed.ndim == 2 else []
        codes = bytearray(code for row in rows for code in codes_of_bytes(row, bits)[:cols])
        return memoryview(codes).cast("B", (len(rows), cols)) if codes else memoryview(codes)
    np = numpy()
    return np.ascontiguousarray(np.stack(_split_codes(packed, bits), -1).reshape(*packed.shape[:-1], -1)[..., :cols])


def library_for(out: str, like: str) -> str:
    """Which library makes the outputs: the argument `out`, or that of x."""
    if out not in ("like", "numpy", "torch", "jax"):
        raise PlaneError(f"expected out= to be one of like, numpy, torch, jax, found '{out}'")
    library = like if out == "like" else out
    if library in ("torch", "jax") and sys.modules.get(library) is None and importlib.util.find_spec(library) is None:
        if out != "like":
            raise PlaneError(f"expected {library} for out='{out}', found it is not installed; type  python3 -m pip install {library}")
        library = "buffer"   # an object with the attributes of that library's arrays
    if library == "buffer" and numpy() is not None:
        return "numpy"
    if library in ("numpy", "jax") and numpy() is None:
        if out != "like":
            raise PlaneError(f"expected NumPy for out='{out}', found it is not installed; type  python3 -m pip install numpy")
        return "buffer"
    return library


def output_array(library: str, encoding: str, size: int, shape: Sequence[int]) -> tuple[Any, Callable[[], Any]]:
    """Memory of `size` bytes, which are those of an array of this encoding and shape, and the function that makes the array once they are written."""
    if library == "torch":
        import torch
        made = torch.empty(shape, dtype=torch_dtype(encoding), device="cpu")
        return (made if size else bytearray()), lambda: made
    if library == "buffer":
        buffer = bytearray(size)
        return buffer, lambda: _shaped(buffer, encoding, shape)
    np = numpy()
    data = np.empty(size, np.uint8)
    finished = lambda: data.view(_numpy_dtype(encoding)).reshape(tuple(shape))
    if library == "jax":
        import jax.numpy
        return (data if size else bytearray()), lambda: jax.numpy.asarray(finished())
    return (data if size else bytearray()), finished
