"""Planes of a plain PyTorch tensor in one call of the module. What is the same for every tensor of a line is found once, because finding it takes longer than
quantizing a small tensor. Whatever is not plain goes the general way (_ops.computed)."""
from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from . import _assay
from ._arrays import torch_dtype
from ._lines import Line, line


def is_plain(value: Any) -> bool:
    """Whether it is a PyTorch tensor with elements in C order that are read as they are. Subclasses may keep theirs elsewhere, and are not plain. A wrapper of
    functorch and a tensor whose storage was freed look plain too, but have no address, which Prepared notices."""
    torch: Any = sys.modules.get("torch")
    kind = type(value)
    plain: bool = torch is not None and (kind is getattr(torch, "Tensor", None) or kind is getattr(getattr(torch, "nn", None), "Parameter", None))
    return plain and bool(value.is_cpu and value.layout is torch.strided and not value.is_nested and value.is_contiguous() and not value.is_neg())


class Prepared:
    """A line that the vectorised method has, and the arrays for what it makes."""

    __slots__ = ("found", "_run", "_arrays")

    def __init__(self, found: Line, run: Callable[[list[int], list[int], int], str | None]):
        import torch
        self.found, self._run = found, run
        self._arrays = [(p.name, functools.partial(torch.empty, *p.stored, dtype=torch_dtype(p.encoding), device=torch.device("cpu")))
                        for p in found.outputs]

    @classmethod
    def of(cls, text: str) -> Prepared | None:
        """None for a line that the vectorised method does not make from x alone. Raises LineError."""
        found, prepared = line(text), _assay.prepared_line(text)
        return cls(found, prepared.run) if prepared.can_run() else None

    def __call__(self, x: Any, threads: int) -> tuple[dict[str, Any], str] | None:
        """The output planes of a plain tensor of the line's size and dtype by name, and what made them. None: the general way copies x first, or says what
        is wrong."""
        arrays = {name: made() for name, made in self._arrays}
        memory = [x, *arrays.values()]
        by = self._run([m.data_ptr() for m in memory], [m.nbytes for m in memory], threads)
        return None if by is None else (arrays, by)
