"""Quantized weights as ModelOpt and compressed-tensors keep them: codes and scales of several attributes, known by their names, dtypes and counts."""
from __future__ import annotations

import sys
from typing import Any, Mapping

from ._arrays import Array, array_of
from ._errors import PlaneError

_NAMES = "weight_packed or weight, with weight_scale"


def found_in(value: Any) -> tuple[Any, Any, str] | None:
    """(codes, scales, whose) of what ModelOpt or compressed-tensors gave; None for anything else.

    compressed-tensors: a module, or a state dict of one, with weight_packed or weight beside weight_scale.
    ModelOpt: a pair or a triple whose first is a quantized tensor, as its quantize gives it, or a module whose weight is one and whose
    weight_quantizer keeps the scales.
    """
    if isinstance(value, Mapping):
        names = {str(n).rpartition(".")[2]: v for n, v in value.items()}
        return _compressed(names.get)
    if isinstance(value, (tuple, list)):
        if len(value) in (2, 3) and _is_modelopt(value[0]):
            return _codes(value[0]), value[1], "ModelOpt"
        return None
    if _is_modelopt(value):
        raise PlaneError(f"expected a {type(value).__name__} with its scales, found it alone; pass (tensor, scales) as its quantize returned them, or the module", "outputs")
    if _is_modelopt(getattr(value, "weight", None)):
        scales = getattr(getattr(value, "weight_quantizer", None), "_scale", None)
        if scales is None:
            raise PlaneError("expected weight_quantizer._scale beside ModelOpt's weight, found none; compress the model first", "outputs")
        return _codes(value.weight), scales, "ModelOpt"
    return _compressed(lambda name: getattr(value, name, None))


def _compressed(get: Any) -> tuple[Any, Any, str] | None:
    scales, packed = get("weight_scale"), get("weight_packed")
    codes = packed if packed is not None else get("weight")
    return None if scales is None or codes is None else (codes, scales, "compressed-tensors")


def _is_modelopt(value: Any) -> bool:
    return hasattr(value, "_quantized_data") and hasattr(value, "metadata") or (type(value).__name__ == "QTensorWrapper" and hasattr(value, "metadata"))


def _codes(value: Any) -> Any:
    """A QTensorWrapper is its codes, as a parameter."""
    data = getattr(value, "_quantized_data", None)
    if data is not None:
        return data
    torch = sys.modules["torch"]
    return value.detach().as_subclass(torch.Tensor)


def planes_of(codes: Any, scales: Any, whose: str, copy: bool | None = None) -> tuple[dict[str, Array], str]:
    """The planes of rows, and the spec that they tell: the format by the dtypes, its blocks by the count of the scales."""
    data, scale = array_of(codes, "row.data", copy), array_of(scales, "row.scale_inv", copy)
    if len(data.shape) < 2 or not data.count:
        raise PlaneError(f"expected the codes of a matrix with elements from {whose}, found shape {list(data.shape)}", "row.data")
    rows, width = data.count // data.shape[-1], data.shape[-1]
    packed = data.word == "U8"
    cols = 2 * width if packed else width
    spec = _format(data, scale, rows, cols, packed)
    if spec is None:
        raise PlaneError(f"expected NVFP4, MXFP4, MXFP8 or FP8 weights of {whose} ({_NAMES}), found {data.name} codes {list(data.shape)} with {scale.name} scales "
                         f"{list(scale.shape)}; name the planes in a mapping and give spec=", "row.data")
    if spec.startswith("fp8"):
        scale = _widened(scale)
    else:
        scale = Array(scale.word, (rows, scale.count // max(rows, 1)), scale.view, scale.library, scale.name, scale.copied)
    return {"row.scale_inv": scale, "row.data": data}, spec


def _format(data: Array, scale: Array, rows: int, cols: int, packed: bool) -> str | None:
    blocks = lambda size: scale.count == rows * -(-cols // size)
    if packed:
        return "nvfp4" if scale.word == "F8_E4M3" and blocks(16) else "mxfp4" if scale.word in ("U8", "F8_E8M0") and blocks(32) else None
    element = {"F8_E4M3": "", "F8_E5M2": " element=e5m2"}.get(data.word)
    if element is None:
        return None
    if scale.word in ("U8", "F8_E8M0"):
        return "mxfp8" + element if blocks(32) else None
    if scale.word not in ("F32", "BF16", "F16"):
        return None
    if scale.count == 1:
        return "fp8_current" + element
    if scale.count == rows:
        return "fp8_current row_scaled=1" + element
    return "fp8_block block=128x128" + element if scale.count == -(-rows // 128) * -(-cols // 128) and len(scale.shape) == 2 else None


def _widened(scale: Array) -> Array:
    """Scales of 16 bits as the float32 that they are."""
    if scale.word == "F32":
        return scale
    import struct
    raw = scale.tobytes()
    if scale.word == "BF16":
        wide = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
    else:
        wide = struct.pack(f"<{scale.count}f", *struct.unpack(f"<{scale.count}e", raw))
    return Array("F32", scale.shape, wide, scale.library, "float32", scale.copied + len(wide))
