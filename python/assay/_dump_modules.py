"""Quantized weights of compressed-tensors and ModelOpt, known by the names of a module's attributes: their line and their planes. Needs NumPy."""
import sys
import warnings

import numpy as np

from ._dump_arrays import Array, bits
from ._dump_tensors import element_of, flat, given_amax, Side
from ._errors import PackError

kNvfp4Range = 6 * 448   # N10.2: the amax of a tensor over its decode scale
kOfModules = "a module of compressed-tensors (weight_packed or weight, with weight_scale) or of ModelOpt (weight with weight_scale, or a compressed weight with its weight_quantizer)"


class Parts:
    """What a module keeps of a weight: codes, the scales of its blocks, and the scale of the tensor, which divides (compressed-tensors) or multiplies (ModelOpt)."""

    def __init__(self, codes, scales, divisor=None, factor=None):
        self.codes, self.scales, self.divisor, self.factor = codes, scales, divisor, factor

    def amax(self):
        """The amax that the scale of the tensor stands for; None where there is none."""
        name, value = ("weight_global_scale", self.divisor) if self.divisor is not None else ("weight_scale_2", self.factor)
        if value is None:
            return None
        scale = values_of(Array(value, name), name)
        if scale.size != 1 or not scale[0] > 0 or np.isinf(scale[0]):
            raise PackError(f"{name}: expected one positive number, the scale of the tensor, found {scale.size} of which the first is {scale.flat[0] if scale.size else 'none'}")
        return float(kNvfp4Range / np.float64(scale[0]) if self.divisor is not None else kNvfp4Range * np.float64(scale[0]))


def parts_of(module):
    """The parts of a module, or of a state dict of one; None for anything else."""
    if isinstance(module, dict):
        named = {str(name).rpartition(".")[2]: value for name, value in module.items()}
        if len(named) != len(module):
            raise PackError(f"expected the state dict of one layer, found {len(module)} tensors of several; pass those of one prefix")
        get = named.get
    else:
        get = lambda name: getattr(module, name, None)
    weight, quantizer = get("weight"), get("weight_quantizer")
    codes = get("weight_packed") if get("weight_packed") is not None else weight
    scales = get("weight_scale") if get("weight_scale") is not None else get("weight_scale_inv")
    if codes is not None and scales is not None:
        return Parts(codes_alone(codes), scales, get("weight_global_scale"), get("weight_scale_2"))
    if weight is not None and getattr(quantizer, "_scale", None) is not None and hasattr(weight, "metadata"):   # ModelOpt's, compressed in memory
        return Parts(codes_alone(weight), quantizer._scale, None, getattr(quantizer, "_double_scale", None))
    return None


def codes_alone(value):
    """ModelOpt's quantized tensors, whose codes are an attribute, or which are their codes as a parameter of another class."""
    if hasattr(value, "_quantized_data"):
        return value._quantized_data
    return value.detach().as_subclass(sys.modules["torch"].Tensor) if type(value).__name__ == "QTensorWrapper" else value


def values_of(array, what):
    """The values of scales of 16 or 32 bits."""
    if array.dtype == "BF16":
        return (np.frombuffer(array.data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if array.dtype not in ("F32", "F16"):
        raise PackError(f"{what}: expected float32, bfloat16 or float16, found {array.name}")
    return np.frombuffer(array.data, np.float32 if array.dtype == "F32" else np.float16).astype(np.float32)


def widened(array, shape, what):
    """Scales of 16 bits as the float32 that they are."""
    array.data, array.shape = values_of(array, what).tobytes(), shape
    array.name, array.dtype = "float32", "F32"
    return array


def weight_of_module(module, given):
    """{"row": Side} of the weight of a module; None where it is none. `given["x"]`: the weight before, as an Array."""
    parts = parts_of(module)
    if parts is None:
        return None
    if given["x"] is None:
        raise PackError("x: expected the weight from which this module's was quantized, found none: a module does not remember its dtype")
    if given["x"].dtype not in ("F32", "BF16", "F16"):
        raise PackError(f"x: expected float32, bfloat16 or float16, found {given['x'].name}")
    codes, scales = Array(parts.codes, "row.data"), Array(parts.scales, "row.scale_inv")
    what = f"{codes.name} codes {list(codes.shape)} with {scales.name} scales {list(scales.shape)}"
    m, width = flat(codes.shape, "row.data")
    packed = codes.dtype in ("U8", "I8")
    kind, keys = (kind_of_packed if packed else kind_of_bytes)(codes, scales, m, 2 * width if packed else width)
    if kind is None:
        raise PackError(f"expected a weight in NVFP4, MXFP4, MXFP8, or FP8 with one scale for the tensor, for each row or for tiles of 128x128, found {what}; "
                        "compress the model first, or use add_planes(line, planes)")
    data = codes.as_dtype("U8" if packed else codes.dtype, "row.data")
    if kind == "nvfp4":
        keys["amax"] = amax_of_weight(parts, given)
    elif kind == "fp8_current":
        keys["amax"] = given_amax(given)
    return {"row": Side(kind, (m, 2 * width if packed else width), keys, {"scale_inv": scales, "data": data})}


def kind_of_packed(codes, scales, m, k):
    """(format, keys) of two codes to a byte; (None, {}) where the scales do not fit."""
    if scales.dtype == "F8_E4M3" and scales.count == m * -(-k // 16):
        return "nvfp4", {}
    if scales.dtype in ("U8", "F8_E8M0") and scales.count == m * -(-k // 32):
        scales.as_dtype("F8_E8M0", "row.scale_inv")
        return "mxfp4", {}
    return None, {}


def kind_of_bytes(codes, scales, m, k):
    """(format, keys) of a code to a byte, by the count of the scales; (None, {}) where they do not fit."""
    if codes.dtype not in ("F8_E4M3", "F8_E5M2"):
        return None, {}
    keys, tiles = {"element": element_of(codes.name, "row.data")}, (-(-m // 128), -(-k // 128))
    if scales.dtype in ("U8", "F8_E8M0"):
        fits = scales.count == m * -(-k // 32)
        return ("mxfp8", keys) if fits and scales.as_dtype("F8_E8M0", "row.scale_inv") else (None, {})
    if scales.count == 1:
        widened(scales, (1, 1), "row.scale_inv")
        return "fp8_current", keys
    if scales.count == m and scales.shape[-1] == 1 or scales.shape == (m,):
        widened(scales, (m, 1), "row.scale_inv")
        return "fp8_current", {**keys, "row_scaled": 1}
    if len(scales.shape) >= 2 and scales.count == tiles[0] * tiles[1]:
        widened(scales, tiles, "row.scale_inv")
        mantissas = np.frombuffer(scales.data, np.uint32) & 0x7FFFFF
        return "fp8_block", {**keys, "block": "128x128", "pow2": 0 if mantissas.any() else None}
    return None, {}


def amax_of_weight(parts, given):
    """amax= of NVFP4: as given; that of the stored scale where it is not the weight's own, as of layers that are fused and share one."""
    stored, x = parts.amax(), given["x"]
    if given["amax"] is not None and given["amax"] != "recorded":
        return given_amax(given)
    if stored is None:
        return given_amax(given)
    own = float(np.max(np.abs(values_of(x, "x")), initial=0.0))
    if given["amax"] != "recorded" and abs(stored - own) <= own / 64:   # a scale in bfloat16 does not tell its amax to the bit
        return None
    if given["amax"] != "recorded":
        warnings.warn(f"the scale of the tensor is that of an amax of {stored:g}, and the weight's is {own:g}: it is shared with another layer, or it is of another weight; "
                      "the line says the first", stacklevel=4)
    return bits(rounded_to(stored, x.dtype))


def rounded_to(value, dtype):
    """The nearest value that a tensor of a source's dtype can hold."""
    value = np.float32(value)
    if dtype == "F16":
        return float(np.float16(value))
    if dtype == "BF16":
        return float(((np.uint32(value.view(np.uint32)) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32))
    return float(value)
