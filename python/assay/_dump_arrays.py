"""The bytes of arrays of any library, and what has none. Needs NumPy; PyTorch and JAX are used where the caller has them."""
import math
import sys

import numpy as np

from ._dump_tables import kEncodings
from ._errors import PackError

# Safetensors' word for each dtype, by the name that NumPy with ml_dtypes, JAX and PyTorch share. ml_dtypes keeps a 4-bit code in a byte,
# PyTorch two; both travel as U8.
kDtypes = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn": "U8", "float4_e2m1fn_x2": "U8",
    "float6_e2m3fn": "U8", "float6_e3m2fn": "U8",
}
kSources = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}   # what a line calls the encoding of x
kBits = {"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "F32": 32, "F16": 16, "BF16": 16,
         "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8}


def dtype_name(dtype):
    """"bfloat16" of numpy.dtype, ml_dtypes, torch.bfloat16 or a string."""
    return str(getattr(dtype, "name", None) or dtype).removeprefix("torch.")


# ---- what holds nothing that could be dumped --------------------------------------------------------------------------
def refuse_what_holds_nothing(value, what):
    """PackError for what has no bytes to dump: a freed buffer, a tensor of a trace, a tensor whose elements do not lie side by side."""
    kind, classes = type(value).__name__, {c.__name__ for c in type(value).__mro__}
    if value is None:
        raise PackError(f"{what}: expected an array, found None: the buffer was freed, or this tensor does not keep it; dump before it is freed")
    if "Tracer" in classes or "ShapeDtypeStruct" in classes:
        raise PackError(f"{what}: expected values, found a {kind} of a trace, which has none; dump outside of jax.jit, or from jax.debug.callback")
    if callable(getattr(value, "is_deleted", None)) and value.is_deleted():   # nothing else can be asked of it
        raise PackError(f"{what}: expected values, found a deleted {kind}: the buffer was freed, or donated; dump before it is")
    if "fnuz" in str(getattr(value, "dtype", "")):
        raise PackError(f"{what}: {value.dtype} is not judged: Assay knows the encodings of OCP and NVIDIA, and not those without a negative zero")
    if classes & {"FakeTensor", "FunctionalTensor", "Proxy"} or getattr(getattr(value, "device", None), "type", "") == "meta":
        raise PackError(f"{what}: expected values, found a {kind} on {getattr(value, 'device', 'no device')}, which has none; dump outside of torch.compile and of meta devices")
    if getattr(value, "is_nested", False):
        raise PackError(f"{what}: expected a dense tensor, found a nested one; pass its parts, x.unbind(), or x.to_padded_tensor(0)")
    if getattr(value, "is_sparse", False) or "sparse" in str(getattr(value, "layout", "")):
        raise PackError(f"{what}: expected a dense tensor, found a sparse one; pass x.to_dense()")
    if str(getattr(value, "dtype", "")) in ("torch.float64", "float64"):
        raise PackError(f"{what}: expected at most 32 bits, found float64; convert it first, so that the pack says what was rounded, for instance x.float()")
    refuse_freed_storage(value, what)


def refuse_freed_storage(value, what):
    """PackError for a tensor of PyTorch whose storage no longer holds what the tensor is a view of: FSDP frees parameters by resize_(0)."""
    if not hasattr(value, "untyped_storage"):
        return
    try:
        held, shape = value.untyped_storage().nbytes(), tuple(value.shape)
        last = value.storage_offset() + sum((n - 1) * step for n, step in zip(shape, value.stride()))
    except (RuntimeError, NotImplementedError):   # a subclass without storage of its own
        return
    needed = (last + 1) * value.element_size() if all(shape) else 0
    if held < needed:
        raise PackError(f"{what}: expected the {needed} bytes that this tensor is a view of, found a storage of {held}: the buffer was freed; dump before it is freed, "
                        "inside of FSDP's forward or under summon_full_params for instance")


# ---- arrays -----------------------------------------------------------------------------------------------------------
class Array:
    """The bytes of one array of any library, in row-major order: `dtype` (kDtypes), `shape`, `data`. A number is an array of one element: binary32, until its plane says otherwise."""

    def __init__(self, value, what):
        refuse_what_holds_nothing(value, what)
        self.number = value if isinstance(value, (int, float)) and not isinstance(value, (bool, np.generic)) else None
        try:
            name, self.shape, data = self.read(value, what)
        except PackError:
            raise
        except Exception as why:   # what libraries raise for what has no bytes here is anything
            raise PackError(f"{what}: expected an array whose bytes can be read here, found a {type(value).__name__}: {str(why).strip().partition(chr(10))[0]}; "
                            "convert it first, for instance numpy.asarray(x)") from None
        if name not in kDtypes:
            raise PackError(f"{what}: expected one of {', '.join(sorted(kDtypes))}, found {name}; convert it first, "
                            f"for instance {what}.astype(numpy.{'uint8' if name.startswith(('int', 'uint')) and what.endswith(('.data', '.scale_inv', '.scale_gemm')) else 'float32'})")
        self.name, self.dtype, self.data = name, kDtypes[name], data.tobytes()
        self.count = math.prod(self.shape)

    def read(self, value, what):
        """Name of the dtype, shape, and the bytes as an array of NumPy."""
        if self.number is not None:
            value = number_as_f32(value, what)
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            value = dlpack_array(value, what)
        if hasattr(value, "detach"):   # PyTorch, whose NumPy bridge has no bfloat16 and no float8: through bytes
            name = dtype_name(value.dtype)
            if name not in kDtypes:
                return name, tuple(value.shape), None
            value = value.detach()
            if getattr(value, "is_neg", bool)():
                value = value.resolve_neg()
            flat = value.cpu().contiguous().reshape(-1)
            return name, tuple(value.shape), np.asarray(flat.view(sys.modules["torch"].uint8).numpy())
        value = np.asarray(value)   # JAX arrays become ml_dtypes arrays
        if value.dtype.byteorder == ">" or (value.dtype.byteorder == "=" and sys.byteorder == "big"):   # a pack is little-endian
            value = value.astype(value.dtype.newbyteorder("<"))
        return dtype_name(value.dtype), value.shape, np.ascontiguousarray(value)

    def as_dtype(self, dtype, what):
        """The same bytes under the word of their meaning: TransformerEngine keeps codes and scales as uint8."""
        if kBits[dtype] != kBits[self.dtype] or (self.dtype != dtype and self.dtype[0] not in "UI"):
            raise PackError(f"{what}: expected {dtype} or an integer of its width, found {self.name}")
        self.dtype = dtype
        return self

    def as_code(self, encoding, what):
        """A number in a plane of another encoding than binary32: an integer is the code of one element."""
        bits_of_code = kEncodings[encoding][0]
        if self.number is None or encoding == "f32":
            return
        if bits_of_code > 8 or not isinstance(self.number, int) or not 0 <= self.number < 1 << bits_of_code:
            raise PackError(f"{what}: expected an array of {encoding}{f', or an integer from 0 to {(1 << bits_of_code) - 1}, its code' if bits_of_code <= 8 else ''}, found the number {self.number}")
        self.number, self.name, self.dtype, self.data = None, "uint8", "U8", bytes([self.number])

    def f32(self, what):
        if self.dtype != "F32" or self.count != 1:
            raise PackError(f"{what}: expected one float32, found {self.name} of shape {list(self.shape)}")
        return np.frombuffer(self.data, np.float32)[0]


def number_as_f32(value, what):
    """A number of Python as an array of one binary32. PackError for a finite one that would become infinite, or 0."""
    try:
        with np.errstate(over="ignore", under="ignore"):
            out = np.asarray([value], np.float32)
    except OverflowError:   # an integer beyond binary64
        out = np.asarray([np.inf], np.float32)
    if (np.isinf(out[0]) and abs(value) != math.inf) or (out[0] == 0 and value != 0):
        raise PackError(f"{what}: expected a number that binary32 holds, found {value}, which becomes {out[0]}")
    return out


def dlpack_array(value, what):
    """An object that has DLPack alone: as a tensor of PyTorch where the program has it, which knows 8-bit floats and bfloat16, else as an array of NumPy."""
    torch = sys.modules.get("torch")
    try:
        return torch.from_dlpack(value) if hasattr(torch, "from_dlpack") else np.from_dlpack(value)
    except (RuntimeError, BufferError, TypeError, ValueError) as why:
        raise PackError(f"{what}: neither PyTorch nor NumPy takes this {type(value).__name__} by DLPack ({why}); pass it as an array of the library that made it") from None


def bits(value):
    """A float as a line writes it, to the bit."""
    return f"0x{int(number_as_f32(float(value), 'a number of the line').view(np.uint32)[0]):08X}"


def is_transposed(value):
    """Whether the last two axes of a view are swapped in memory; torch counts strides in elements, NumPy in bytes."""
    strides = value.stride() if callable(getattr(value, "stride", None)) else np.asarray(value).strides
    return len(strides) >= 2 and strides[-2] < strides[-1]
