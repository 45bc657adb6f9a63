"""Quantized tensors of TransformerEngine and torchao, known by the names of their attributes: their line and their planes. Needs NumPy."""
import math
import sys
import warnings

import numpy as np

from ._dump_arrays import Array, bits, dtype_name, is_transposed, kSources
from ._dump_planes import up
from ._errors import PackError


class Side:
    """One direction of a quantized tensor: its format, the keys of its line, its planes, the tensor's flattened shape."""

    def __init__(self, kind, shape, keys, planes):
        self.kind, self.shape, self.keys, self.planes = kind, shape, keys, planes


def flat(shape, what):
    """[product of the leading sizes, last size]."""
    if len(shape) < 1:
        raise PackError(f"{what}: expected at least one dimension, found a scalar")
    return math.prod(shape[:-1]), shape[-1]


def swapped(shape):
    """Flattened [rows, cols] of data that are stored [cols, rows...]."""
    return math.prod(shape[1:]), shape[0]


# Safetensors' word for the data of an element, the format of MXTensors of it, the bits of a code.
kElements = {"e4m3": ("F8_E4M3", "mxfp8", 8), "e5m2": ("F8_E5M2", "mxfp8", 8), "e2m3": ("U8", "mxfp6", 6), "e3m2": ("U8", "mxfp6", 6), "e2m1": ("U8", "mxfp4", 4)}


def element_of(dtype, what):
    name = dtype_name(dtype).lower()
    for element in kElements:
        if element in name:
            return element
    raise PackError(f"{what}: expected a dtype named for E4M3, E5M2, E2M3, E3M2 or E2M1, found {dtype_name(dtype)}")


def data_dtype(element):
    return kElements[element][0]


def scale_plane(value, what, dtype, logical, padded, gemm):
    """Scales as the plane of their layout. `padded` alone fits the GEMM layout; compact scales may come without their padding."""
    array = Array(value, what).as_dtype(dtype, what)
    allowed = {math.prod(padded)} if gemm else {math.prod(padded), math.prod(logical)}
    if array.count not in allowed:
        either = f"{list(padded)} elements" + ("" if gemm else f", or {list(logical)} without padding")
        raise PackError(f"{what}: expected {either}, found {list(array.shape)}; pass the whole tensor that the quantizer made")
    return ("scale_gemm" if gemm else "scale_inv"), array


def needs(value, what):
    if value is None:
        raise PackError(f"{what}: expected an array, found None; dump the tensor before its buffers are cleared")
    return value


kStored = {"row": "_rowwise", "col": "_columnwise"}


def present(t):
    """The directions whose data a TransformerEngine tensor holds."""
    found = [d for d in kStored if getattr(t, kStored[d] + "_data", None) is not None]
    if not found:
        raise PackError(f"{type(t).__name__}: expected _rowwise_data or _columnwise_data, found neither; dump it before it is cleared")
    return found


def flag(t, name, default=None):
    """A setting of the tensor itself, or of its quantizer: newer versions keep some on both."""
    own = getattr(t, "_" + name, None)
    return own if own is not None else getattr(getattr(t, "_quantizer", None), name, default)


def te_mxfp8(t, given):
    sides, element = {}, element_of(t._fp8_dtype, "_fp8_dtype")
    for d in present(t):
        data = Array(getattr(t, kStored[d] + "_data"), f"{d}.data").as_dtype(data_dtype(element), f"{d}.data")
        m, k = flat(data.shape, f"{d}.data")
        logical = (m, -(-k // 32)) if d == "row" else (-(-m // 32), k)
        padded = (up(m, 128), up(logical[1], 4)) if d == "row" else (up(logical[0], 4), up(k, 128))
        gemm = bool(flag(t, "with_gemm_swizzled_scales", False))
        name, scale = scale_plane(needs(getattr(t, kStored[d] + "_scale_inv"), f"{d}.scale_inv"), f"{d}.scale_inv", "F8_E8M0", logical, padded, gemm)
        keys = {"element": element, "scales": "gemm" if gemm else None, "block": "32x32" if flag(t, "with_2d_quantization", False) else None}
        sides[d] = Side("mxfp8", (m, k), keys, {name: scale, "data": data})
    return sides


def te_block(t, given):
    layout = str(getattr(t, "_data_format", ""))
    if "COMPACT" in layout.upper():
        raise PackError(f"_data_format: expected GEMM_READY, whose columns are stored transposed, found {layout}; quantize without all-gather")
    sides, element = {}, element_of(t._fp8_dtype, "_fp8_dtype")
    for d in present(t):
        data = Array(getattr(t, kStored[d] + "_data"), f"{d}.data").as_dtype(data_dtype(element), f"{d}.data")
        shape = flat(data.shape, f"{d}.data") if d == "row" else swapped(data.shape)
        m, k = shape if d == "row" else shape[::-1]   # of the stored data
        logical = (-(-m // 128), -(-k // 128)) if t._is_2D_scaled else (-(-k // 128), m)
        name, scale = scale_plane(needs(getattr(t, kStored[d] + "_scale_inv"), f"{d}.scale_inv"), f"{d}.scale_inv", "F32",
                                  logical, (logical[0], up(logical[1], 4)), False)
        keys = {"element": element, "block": "128x128" if t._is_2D_scaled else "1x128", **scale_flags(t, True)}
        sides[d] = Side("fp8_block", shape, keys, {name: scale, "data": data})
    return sides


def scale_flags(t, pow2):
    """Powers of two and amax epsilon; `pow2` is what the format does where nothing is said."""
    quantizer = getattr(t, "_quantizer", None)
    floor, eps = getattr(quantizer, "force_pow_2_scales", pow2), getattr(quantizer, "amax_epsilon", 0.0)
    return {"pow2": None if bool(floor) == pow2 else int(bool(floor)), "eps": bits(eps) if eps else None}


def te_nvfp4(t, given):
    quantizer, sides = getattr(t, "_quantizer", None), {}
    random, rht = bool(getattr(quantizer, "stochastic_rounding", False)), bool(getattr(quantizer, "with_rht", False))
    if rht and not getattr(quantizer, "with_post_rht_amax", True):
        raise PackError("with_post_rht_amax: expected True with an RHT (no kernel takes the amax before it), found False")
    gemm, row_scaled = bool(flag(t, "with_gemm_swizzled_scales", False)), bool(flag(t, "row_scaled_nvfp4", False))
    for d in present(t):
        data = Array(getattr(t, kStored[d] + "_data"), f"{d}.data").as_dtype("U8", f"{d}.data")
        codes = (*data.shape[:-1], 2 * data.shape[-1])
        shape = flat(codes, f"{d}.data") if d == "row" else swapped(codes)
        m, k = shape if d == "row" else shape[::-1]
        logical = (m, -(-k // 16))
        name, scale = scale_plane(needs(getattr(t, kStored[d] + "_scale_inv"), f"{d}.scale_inv"), f"{d}.scale_inv", "F8_E4M3",
                                  logical, (up(m, 128), up(logical[1], 4)), gemm)
        amax = Array(needs(getattr(t, "_amax" + kStored[d]), f"{d}.amax"), f"{d}.amax").as_dtype("F32", f"{d}.amax")
        reduced = getattr(quantizer, "with_amax_reduction", False) or given["amax"] == "recorded"
        keys = {
            "scales": "gemm" if gemm else None,
            "block": "16x16" if getattr(quantizer, "with_2d_quantization", False) else None,
            "round": "sr" if random else None,
            "row_scaled": 1 if row_scaled else None,
            "rht": 1 if rht and d == "col" else None,   # rows are never rotated
            "sign_mask": f"0x{int(getattr(quantizer, 'rht_matrix_random_sign_mask_t', 0)) & 0xFFFF:04X}" if rht and d == "col" else None,
            "amax": bits(amax.f32(f"{d}.amax")) if reduced else given_amax(given),
        }
        if flag(t, "nvfp4_use_4over6", False):
            keys["four_over_six"] = str(getattr(quantizer, "nvfp4_4over6_err_mode", "MAE")).lower()
            keys["e4m3_max"] = int(flag(t, "nvfp4_e4m3_max", 448))
        planes = {"amax": amax, name: scale, "data": data} if keys["amax"] is None else {name: scale, "data": data}   # a given amax is not judged
        if random and given["rng"] is None:
            del planes["data"]
            warnings.warn("stochastic rounding: the codes are left out, because they cannot be judged without the random state; pass rng=(seed, offset)", stacklevel=4)
        sides[d] = Side("nvfp4", shape, keys, planes)
    return sides


def given_amax(given):
    if given["amax"] == "recorded":
        raise PackError('amax="recorded": expected an NVFP4 tensor, which keeps its amax; pass the amax over the group as a number')
    return None if given["amax"] is None else bits(given["amax"])


def te_float8(t, given):
    quantizer, element = getattr(t, "_quantizer", None), element_of(t._fp8_dtype, "_fp8_dtype")
    kind = given["format"] or (None if quantizer is None else "fp8_current" if hasattr(quantizer, "amax_epsilon") else "fp8_delayed")
    if kind not in ("fp8_current", "fp8_delayed"):
        raise PackError(f"{type(t).__name__}: expected a quantizer, or format=, that tells fp8_current from fp8_delayed, found {kind}; "
                        'pass format="fp8_current" or format="fp8_delayed"')
    scale_inv = Array(needs(t._scale_inv, "_scale_inv"), "_scale_inv").as_dtype("F32", "_scale_inv")
    inverse, keys, planes = scale_inv.f32("_scale_inv"), {"element": element}, {"scale_inv": scale_inv}
    if kind == "fp8_current":
        keys.update(scale_flags(t, False), amax=given_amax(given))
    else:
        keys["scale"] = bits(delayed_scale(given["scale"], getattr(quantizer, "scale", None), inverse))
    sides = {}
    if t._data is not None:
        data = Array(t._data, "row.data").as_dtype(data_dtype(element), "row.data")
        sides["row"] = Side(kind, flat(data.shape, "row.data"), keys, {**planes, "data": data})
    if getattr(t, "_transpose", None) is not None and not t._transpose_invalid:
        data = Array(t._transpose, "col.data").as_dtype(data_dtype(element), "col.data")
        sides["col"] = Side(kind, swapped(data.shape), keys, {**planes, "data": data})
    if not sides:
        raise PackError(f"{type(t).__name__}: expected _data or a valid _transpose, found neither; dump it before it is cleared")
    return sides


def delayed_scale(given, remembered, inverse):
    """The scale that was in force. The quantizer's own may be the next step's by now, which its reciprocal tells."""
    if given is not None:
        return given
    if remembered is not None:
        scale = Array(remembered, "quantizer.scale").f32("quantizer.scale")
        with np.errstate(divide="ignore"):
            if np.float32(1) / scale == inverse:
                return scale
    raise PackError(f"delayed scaling: expected quantizer.scale to be the reciprocal of _scale_inv = {inverse}, found "
                    f"{'none' if remembered is None else scale}: the quantizer was updated since; pass the earlier scale as scale=")


def te_identity(t, given):
    data = Array(needs(t._hp_data, "_hp_data"), "_hp_data")
    return {"row": Side("identity", flat(data.shape, "_hp_data"), {}, {"data": data})}


def te_hybrid(t, given):
    sides = {}
    for d, storage in (("row", t._rowwise_storage), ("col", t._columnwise_storage)):
        if storage is None:
            continue
        found = describe(storage, given)
        if d not in found and found.keys() == {"row"} and found["row"].kind == "identity":
            found = {"col": found["row"]}   # one buffer serves either direction
        if d not in found:
            raise PackError(f"{type(t).__name__}: expected {kStored[d]}_storage to hold {d} data, found {' '.join(found)} data")
        sides[d] = found[d]
    if not sides:
        raise PackError(f"{type(t).__name__}: expected a row or column storage, found neither")
    return sides


def ao_layout(t, *names):
    """Whether torchao's scales are in the GEMM layout; versions differ in what says so."""
    swizzle = getattr(t, "swizzle_type", None)
    return type(swizzle).__name__ == "Swizzle_32_4_4" if swizzle is not None else bool(next((getattr(t, n) for n in names if hasattr(t, n)), False))


def ao_stored(value, what):
    """A tensor that torchao made from x.t() and returned as .t(): columns. Gives (direction, what lies in memory)."""
    if not is_transposed(value):
        return "row", value
    if len(value.shape) != 2:
        raise PackError(f"{what}: expected two dimensions of a transposed tensor, found {list(value.shape)}")
    return "col", value.t() if hasattr(value, "t") else value.T


def ao_mx(t, given):
    size, name = int(first(t, "block_size", "_block_size")), dtype_name(first(t, "elem_dtype", "_elem_dtype"))
    if size != 32 or not any(e in name.lower() for e in ("e4m3", "e5m2", "e2m3", "e3m2", "float4_e2m1")):
        raise PackError(f"MXTensor: expected blocks of 32 of float8_e4m3fn, float8_e5m2, fp6_e2m3, fp6_e3m2 or float4_e2m1fn_x2, found {size} of {name}")
    element, gemm = element_of(name, "elem_dtype"), ao_layout(t, "is_swizzled_scales", "_is_swizzled_scales")
    d, stored = ao_stored(first(t, "qdata", "_data"), "qdata")
    data = Array(stored, f"{d}.data").as_dtype(data_dtype(element), f"{d}.data")
    if kElements[element][1] == "mxfp6" and bool(first_or(t, False, "pack_fp6", "_pack_fp6")):
        data = sixes_apart(data)
    m, blocks_of = flat((*data.shape[:-1], data.shape[-1] * (2 if element == "e2m1" else 1)), "qdata")
    scale = first(t, "scale", "_scale_e8m0")
    scale = ao_stored(scale, "scale")[1] if d == "col" and len(scale.shape) == 2 else scale
    what, logical = f"{d}.scale_inv", (m, -(-blocks_of // 32))
    plane, scales = scale_plane(scale, what, "F8_E8M0", logical, (up(m, 128), up(logical[1], 4)), gemm)
    kind = kElements[element][1]
    if d == "col" and kind == "mxfp8":   # columns of MXFP8 stay [rows, cols]: only the bytes of what is stored turn
        data = turned(data, (m, blocks_of))
        if not gemm:
            scales = turned(scales, logical if scales.count == math.prod(logical) else (up(m, 128), up(logical[1], 4)))
    keys = {"element": element if element != "e2m1" else None, "scales": "gemm" if gemm else None}
    shape = (m, blocks_of) if d == "row" else (blocks_of, m)
    return {d: Side(kind, shape, keys, {plane: scales, "data": data})}


def first_or(t, otherwise, *names):
    return next((getattr(t, n) for n in names if hasattr(t, n)), otherwise)


def sixes_apart(array):
    """torchao's packed 6-bit codes as a byte each. Of four codes a b c d the first byte holds the upper four bits of a and b, the second those of
    d and c, the third the lower two of a, b, d and c, each from the highest bits down."""
    upper_ab, upper_dc, lower = np.frombuffer(array.data, np.uint8).reshape(-1, 3).T
    codes = [upper_ab >> 4 << 2 | lower >> 6, (upper_ab & 15) << 2 | lower >> 4 & 3, (upper_dc & 15) << 2 | lower & 3, upper_dc >> 4 << 2 | lower >> 2 & 3]
    array.data = np.stack(codes, -1).astype(np.uint8).tobytes()
    array.shape = (*array.shape[:-1], array.shape[-1] * 4 // 3)
    return array


def turned(array, shape):
    array.data = np.frombuffer(array.data, np.uint8).reshape(shape).T.tobytes()
    array.shape = shape[::-1]
    return array


def ao_nvfp4(t, given):
    """torchao keeps amax / 2688 rather than the amax, so that the amax is not judged."""
    size = int(first(t, "block_size", "_block_size"))
    if size != 16:
        raise PackError(f"NVFP4Tensor: expected blocks of 16, found {size}")
    gemm = ao_layout(t, "is_swizzled_scales", "_is_swizzled_scales")
    d, stored = ao_stored(t.qdata, "qdata")
    data = Array(stored, f"{d}.data").as_dtype("U8", f"{d}.data")
    m, k = flat((*data.shape[:-1], 2 * data.shape[-1]), "qdata")
    scale, logical = first(t, "scale", "_scale_e4m3"), (m, -(-k // 16))
    scale = ao_stored(scale, "scale")[1] if d == "col" and len(scale.shape) == 2 else scale
    plane, scales = scale_plane(scale, f"{d}.scale_inv", "F8_E4M3", logical, (up(m, 128), up(logical[1], 4)), gemm)
    keys = {"scales": "gemm" if gemm else None, "amax": given_amax(given)}
    return {d: Side("nvfp4", (m, k) if d == "row" else (k, m), keys, {plane: scales, "data": data})}


def ao_float8(t, given):
    """Float8TrainingTensor keeps the scale that multiplies and the axis of its amaxes, Float8Tensor the one that divides and its block: one scale for the tensor,
    for each row, for each column, or for blocks of 128."""
    training = hasattr(t, "_axiswise_dim")
    value, stem = (t._data, "scale") if training else (t.qdata, "scale_inv")
    data = Array(value, "data")
    element, shape = element_of(data.name, "data"), flat(data.shape, "data")
    if training:
        axis = t._axiswise_dim
        axis = axis if axis is None or axis < 0 else axis - len(data.shape)
        kind = {None: "tensor", -1: "row"}.get(axis, "col" if axis == -2 and len(data.shape) == 2 else None)
        found = f"axis {t._axiswise_dim} of {list(data.shape)}"
    else:
        block = tuple(int(n) for n in t.block_size or data.shape)
        kind = {data.shape: "tensor", (*[1] * (len(data.shape) - 1), data.shape[-1]): "row"}.get(block, "col" if block == (data.shape[0], 1) else None)
        found = f"blocks of {list(block)} in {list(data.shape)}"
        if kind is None and len(block) == len(data.shape) and block[-1] == 128 and block[-2:][0] in (1, 128):
            return ao_float8_blocks(t, data.as_dtype(data_dtype(element), "row.data"), element, square=len(block) > 1 and block[-2] == 128)
    if kind is None:
        raise PackError(f"{type(t).__name__}: expected one scale for the tensor, for each row or column of a matrix, or for blocks of 1x128 or 128x128, found {found}; use add_planes(line, planes)")
    d, rows = ("col" if kind == "col" else "row"), (shape[1] if kind == "col" else shape[0])
    scale = Array(t._scale if training else t.scale, f"{d}.{stem}").as_dtype("F32", f"{d}.{stem}")
    if scale.count != (1 if kind == "tensor" else rows):
        raise PackError(f"{d}.{stem}: expected {1 if kind == 'tensor' else rows} scales, found {list(scale.shape)}")
    data.as_dtype(data_dtype(element), f"{d}.data")
    if kind == "col":   # a line's columns are stored transposed
        data = turned(data, shape)
    keys = {"element": element, "row_scaled": None if kind == "tensor" else 1, "amax": given_amax(given)}
    return {d: Side("fp8_current", shape, keys, {stem: scale, "data": data})}


def ao_float8_blocks(t, data, element, square):
    """Float8Tensor in blocks: torchao keeps scales as the blocks lie, a line's scales of 1x128 are transposed."""
    m, k = flat(data.shape, "row.data")
    rows, logical = (-(-m // 128) if square else m), -(-k // 128)
    scale = Array(t.scale, "row.scale_inv").as_dtype("F32", "row.scale_inv")
    if scale.count != rows * logical:
        raise PackError(f"row.scale_inv: expected {rows}x{logical} scales, found {list(scale.shape)}")
    if not square:
        scale.data, scale.shape = np.frombuffer(scale.data, np.uint32).reshape(rows, logical).T.tobytes(), (logical, rows)
    return {"row": Side("fp8_block", (m, k), {"element": element, "block": "128x128" if square else "1x128", "pow2": 0}, {"scale_inv": scale, "data": data})}


def first(t, *names):
    """The first attribute that is there: libraries rename."""
    for name in names:
        if hasattr(t, name):
            return getattr(t, name)
    raise PackError(f"{type(t).__name__}: expected an attribute {' or '.join(names)}, found none")


# The attributes that tell a kind, most telling first; of alternatives one is enough.
kKinds = [
    ("HybridQuantizedTensor", [("_rowwise_storage",), ("_columnwise_storage",)], te_hybrid),
    ("IdentityTensor", [("_hp_data",)], te_identity),
    ("NVFP4Tensor", [("_fp4_dtype",), ("_rowwise_data",), ("_amax_rowwise",)], te_nvfp4),
    ("Float8BlockwiseQTensor", [("_is_2D_scaled",), ("_rowwise_data",)], te_block),
    ("MXFP8Tensor", [("_fp8_dtype",), ("_rowwise_data",), ("_rowwise_scale_inv",)], te_mxfp8),
    ("Float8Tensor", [("_fp8_dtype",), ("_data",), ("_scale_inv",)], te_float8),
    ("torchao MXTensor", [("elem_dtype", "_elem_dtype"), ("qdata", "_data"), ("scale", "_scale_e8m0")], ao_mx),
    ("torchao Float8TrainingTensor", [("_axiswise_dim",), ("_data",), ("_scale",)], ao_float8),
    ("torchao Float8Tensor", [("qdata",), ("scale",), ("block_size",), ("mm_config",)], ao_float8),
    ("torchao NVFP4Tensor", [("qdata",), ("scale", "_scale_e4m3"), ("per_tensor_scale", "_per_tensor_scale")], ao_nvfp4),
]


def describe(tensor, given, others=""):
    """{direction: Side} of a quantized tensor. `others`: what else the caller knows."""
    for _, attributes, reader in kKinds:
        if all(any(hasattr(tensor, a) for a in names) for names in attributes):
            return reader(tensor, given)
    raise PackError(f"expected a quantized tensor ({', '.join(k[0] for k in kKinds)}){' or ' if others else ''}{others}, found {type(tensor).__module__}.{type(tensor).__name__}; "
                    "for plain arrays use add_planes(line, planes)")


def nominal(tensor, sides):
    """The name of the dtype that a quantized tensor stands for: the source's, as far as it remembers."""
    for side in sides.values():
        if side.kind == "identity" and side.planes["data"].name in kSources:
            return side.planes["data"].name
    return dtype_name(getattr(tensor, "dtype", None) or getattr(tensor, "_dtype", None) or first(tensor, "orig_dtype", "_orig_dtype"))


def rows_of_rotating_kernel(quantizer, sides, shape, source, keys):
    """Whether TransformerEngine's fused RHT kernel made these rows alone (docs/numerics.md, N8.4): no key of rows says that there is a rotation."""
    words = dict(word.split("=", 1) for word in keys.split() if "=" in word)
    return (words.get("flavour") == "te" and "dispatch" not in words and words.get("arch", "sm100") in ("sm100", "sm110") and set(sides) == {"row"}
            and bool(getattr(quantizer, "with_rht", False)) and not getattr(quantizer, "with_2d_quantization", False)
            and source == "bf16" and shape[0] % 64 == 0 and shape[1] % 128 == 0)


def line_of(shape, source, sides, case_keys, more):
    """`sides` as a line. A key that both directions share is written once."""
    kinds = [s.kind for s in sides.values()]
    words = ["quantize", kinds[0] if len(set(kinds)) == 1 else "/".join(kinds), f"{shape[0]}x{shape[1]}", source,
             "dir=both" if len(sides) == 2 else f"dir={next(iter(sides))}"]
    for name in sorted({k for s in sides.values() for k in s.keys}):
        values = {d: s.keys[name] for d, s in sides.items() if s.keys.get(name) is not None}
        if values and len(values) == len(sides) and len(set(values.values())) == 1 and len(set(kinds)) == 1:
            words.append(f"{name}={next(iter(values.values()))}")
        else:
            words += [f"{d}.{name}={v}" for d, v in values.items()]
    words += [f"{k}={v}" for k, v in case_keys.items() if v is not None]
    return " ".join([*words, *more.split()])
