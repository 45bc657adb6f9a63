"""torch.ops.assay.reference_quantize is there as soon as a program has imported this package and PyTorch, in either order, and PyTorch is never imported for it."""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Optional, Sequence


def _register() -> None:
    try:
        importlib.import_module("assay.torch")
    except Exception:   # a PyTorch that lacks what the op needs: `import assay.torch` says so to whoever wants it
        pass


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Stands in sys.meta_path until PyTorch is looked for, and registers the op behind its import."""

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None) -> Optional[importlib.machinery.ModuleSpec]:
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def register_when_both_are_imported() -> None:
    """Now where PyTorch is imported, else behind its import."""
    if hasattr(sys.modules.get("torch"), "library"):
        _register()
    elif "torch" not in sys.modules:
        sys.meta_path.insert(0, _AfterTorch())
