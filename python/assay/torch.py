"""Assay in PyTorch programs: a custom op for graphs, and a watch over training runs. Imported when it is used: `assay.torch` needs PyTorch.

    y = torch.ops.assay.reference_quantize(x, "mxfp8")          # a list of planes, also under torch.compile
    planes = assay.torch.reference_quantize(x, "mxfp8")         # the same by name
    watch = assay.torch.watch(model, every=100, to="dumps")     # packs of what the model quantizes
"""
from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence

import torch

from ._arrays import NAMES
from ._lines import Line, dtype_word, flat, line, line_text
from ._ops import _direction, quantize, seeds
from ._watch import Watch

__all__ = ["Watch", "plane_names", "reference_quantize", "watch"]


def _line_of(x: torch.Tensor, spec: str, dir: str, rng: Optional[Sequence[int]], amax: Optional[float], scale: Optional[float]) -> Line:
    """The line that a call stands for: sizes and dtypes alone, so that a fake tensor has one too."""
    settings = {"dir": _direction(spec, dir), "rng": None if rng is None else seeds(rng), "amax": amax, "scale": scale}
    return line(line_text("quantize", spec, flat([int(n) for n in x.shape]), dtype_word(x.dtype), settings))


def _op(x: torch.Tensor, spec: str, dir: str = "row", rng: Optional[List[int]] = None, amax: Optional[float] = None,
        scale: Optional[float] = None, bits: bool = False) -> List[torch.Tensor]:
    made = quantize(x, spec, dir=dir, rng=rng, amax=amax, scale=scale, out="torch")
    planes = [made[name].to(x.device) for name in made]
    return [plane.view(_dtype(plane.dtype, bits)) for plane in planes]


def _dtype(dtype: torch.dtype, bits: bool) -> torch.dtype:
    return torch.uint8 if bits and dtype.itemsize == 1 else dtype


def _fake(x: torch.Tensor, spec: str, dir: str = "row", rng: Optional[List[int]] = None, amax: Optional[float] = None,
          scale: Optional[float] = None, bits: bool = False) -> List[torch.Tensor]:
    return [torch.empty(plane.stored, dtype=_dtype(getattr(torch, NAMES.get(plane.encoding, "uint8"), torch.uint8), bits), device=x.device)
            for plane in _line_of(x, spec, dir, rng, amax, scale).outputs]


# The schema is written out: annotations of this file are text, which PyTorch would have to guess from.
_reference_quantize = torch.library.custom_op(
    "assay::reference_quantize", _op, mutates_args=(),
    schema='(Tensor x, str spec, str dir="row", int[]? rng=None, float? amax=None, float? scale=None, bool bits=False) -> Tensor[]')
_reference_quantize.register_fake(_fake)


def plane_names(x: torch.Tensor, spec: str = "mxfp8", dir: str = "row") -> List[str]:
    """The names of the planes that torch.ops.assay.reference_quantize returns, in its order: ["row.scale_inv", "row.data"]. x may be fake."""
    return [plane.name for plane in _line_of(x, spec, dir, (0, 0) if "round=sr" in spec else None, None, None).outputs]


def reference_quantize(x: torch.Tensor, spec: str = "mxfp8", *, dir: str = "row", rng: Optional[Sequence[int]] = None,
                       amax: Optional[float] = None, scale: Optional[float] = None, bits: bool = False) -> dict[str, torch.Tensor]:
    """The reference's planes of x by name, through the custom op torch.ops.assay.reference_quantize, which torch.compile leaves in its graph whole.

    x     float32, bfloat16 or float16, on any device: it is copied to the CPU, and the planes are copied back
    spec, dir, rng, amax, scale   as of assay.quantize
    bits  codes and scales of one byte come as uint8: the code that torch.compile generates knows few operations on float8_e8m0fnu (PyTorch 2.8: a
          cast to float, but no .view), and all of them on uint8

    The shapes are those of assay.quantize: scales with their padding, two 4-bit codes in a byte. No gradient flows through it. Raises LineError,
    PlaneError, UnsupportedEncoding.
    """
    made = torch.ops.assay.reference_quantize(x, spec, dir, None if rng is None else list(rng), amax, scale, bits)
    return dict(zip([p.name for p in _line_of(x, spec, dir, rng, amax, scale).outputs], made))


def watch(model: torch.nn.Module, every: int = 100, *, roles: Optional[Iterable[str]] = None, to: Any, modules: Sequence[str] = ("*",),
          per_sample: int = 4, keys: str = "", most_bytes: int = 4 << 30) -> Watch:
    """Samples what the modules of torchao and TransformerEngine in a model quantize, and writes a pack for each sampled step.

    every       steps between two samples; step 0 is sampled. A step is a forward pass of `model` in training mode
    roles       of input, weight, output, grad_output, grad_input; None takes all of them
    to          the folder of the packs, step00000100.safetensors and so on, each written whole or not at all
    modules     patterns of module names, such as "blocks.*.mlp.*"
    per_sample  modules in one sample; the next sample takes the next ones in turn
    keys        more of every line: "flavour=ocp" where the library quantizes by other rules than Assay's defaults
    most_bytes  nothing more is written while the folder holds this much

    In a sampled step the tensors are copied where they lie, and nothing else; a thread makes packs of the copies. Other steps cost one hook. An error
    of the watch becomes a warning and an entry of `.errors`, never an error of the training run. What torch.compile has put into a graph is not seen.
    Returns a Watch; close() it, or use it as a context manager. Raises AssayError where nothing in the model quantizes.
    """
    return Watch(model, every, roles, to, modules, per_sample, keys, most_bytes)
