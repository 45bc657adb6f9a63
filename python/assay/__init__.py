"""Assay: a bit-exact test oracle for low-precision training.

    q = assay.quantize(x, "mxfp8")                       # the bytes that must come out
    verdict = assay.check(x, {"row.data": codes, "row.scale_inv": scales}, "mxfp8")
    assay.assert_quantized(x, (codes, scales), "mxfp8")  # an AssertionError that names the cause
    print(assay.explain(x, (codes, scales), "mxfp8"))

Arrays are NumPy's, PyTorch's, JAX's, or anything with DLPack or the buffer protocol. docs/python.md.
"""
from __future__ import annotations

from . import _assay
from ._attention import attention
from ._error_plot import ErrorPlot, plot_error
from ._errors import AssayError, LineError, NoSuchPlane, NotJudged, PackError, PlaneError, UnsupportedEncoding
from ._judge import QuantizedMismatch, assert_bitwise, assert_quantized, check, coherence, explain, identify, trace
from ._lines import Line, Plane, Spec, line
from ._load import Case, load
from ._ops import cast, dequantize, fill, gemm, hadamard, inputs, quantize, run, split, swizzle
from ._quantized import Planes, Quantized, Side
from ._subject import Report, Result, Subject
from ._suites import Vector, suite, vectors
from ._verdict import Cause, Choice, Coherence, Diagnosis, Divergence, Identification, PlaneResult, Step, Trace, Verdict
from ._with_torch import register_when_both_are_imported

for _kind in (AssayError, LineError, NoSuchPlane, NotJudged, PackError, PlaneError, UnsupportedEncoding, QuantizedMismatch):
    _kind.__module__ = "assay"   # a traceback has the name by which it is caught

__version__: str = _assay.version

__all__ = [
    "AssayError", "Case", "Cause", "Choice", "Coherence", "Diagnosis", "Divergence", "ErrorPlot", "Identification", "Line", "LineError", "NoSuchPlane", "NotJudged", "Pack",
    "PackError", "Plane", "PlaneError", "PlaneResult", "Planes", "Quantized", "QuantizedMismatch", "Report", "Result", "Side", "Spec", "Step", "Subject", "Trace",
    "UnsupportedEncoding", "Vector", "Verdict", "assert_bitwise", "assert_quantized", "attention", "cast", "check", "coherence", "dequantize", "explain", "fill", "gemm",
    "hadamard", "identify", "inputs", "line", "load", "plot_error", "quantize", "run", "split", "suite", "swizzle", "trace", "vectors",
]


def __getattr__(name: str) -> object:
    if name == "Pack":   # which needs NumPy
        from .pack import Pack
        return Pack
    if name in ("torch", "distributed"):   # torch needs PyTorch
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'assay' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), "Pack", "distributed", "torch"})


register_when_both_are_imported()
