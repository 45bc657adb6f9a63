"""Strategies of Hypothesis for quantizers: tensors of the suites' fills, shapes with tails, lines.

    @given(assay.hypothesis.arrays(shape=assay.hypothesis.shapes(multiple_of=32)))
    def test_kernel(x):
        assay.assert_quantized(x, kernel(x), "mxfp8")

A failing example prints its line (a note of Hypothesis), so that `assay run` and `assay explain` repeat it without Python.
"""
from typing import Any, Sequence

from hypothesis import note
from hypothesis import strategies as st

from ._lines import dtype_word
from ._ops import fill

FILLS = ("ties", "edges", "amax_edges", "denormal", "nonfinite", "outliers")
_FORMATS = {
    "mxfp8": {"element": ("e4m3", "e5m2"), "block": ("1x32", "32x32"), "scales": ("compact", "gemm")},
    "nvfp4": {"block": ("1x16", "16x16"), "scales": ("compact", "gemm"), "four_over_six": ("off", "mae", "mse")},
    "mxfp6": {"element": ("e2m3", "e3m2"), "packing": ("bytes", "packed"), "scales": ("compact", "gemm")},
    "mxfp4": {"scales": ("compact", "gemm")},
    "fp8_block": {"element": ("e4m3", "e5m2"), "block": ("1x128", "128x128"), "pow2": ("0", "1")},
    "fp8_current": {"element": ("e4m3", "e5m2"), "pow2": ("0", "1")},
}


def shapes(*, multiple_of: int | None = None, tails: bool = True, most: int = 256) -> st.SearchStrategy[tuple[int, int]]:
    """Shapes of two dimensions, at most `most` each: whole multiples of multiple_of, and with `tails` one less or more than one where no multiple is asked for."""
    step = multiple_of or 1
    whole = st.integers(1, max(1, most // step)).map(lambda n: n * step)
    if multiple_of is None and tails:
        whole = st.one_of(st.sampled_from([1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]), whole).filter(lambda n: n <= most)
    return st.tuples(whole, whole)


@st.composite
def arrays(draw: Any, shape: Any = None, dtype: Any = "bfloat16", fills: Sequence[str] = FILLS, out: str = "numpy") -> Any:
    """Tensors of the suites' fills. A failing example shrinks to a small shape, an early fill and few rows that are not zero."""
    size = draw(shape if hasattr(shape, "example") else st.just(tuple(shape)) if shape is not None else shapes())
    kind, seed = draw(st.sampled_from(list(fills))), draw(st.integers(0, 2**16))
    note(f"assay: quantize <format> {size[0]}x{size[1]} {dtype_word(dtype)} fill={kind} seed={seed}")
    return fill(size, kind, seed, dtype, out)


@st.composite
def sparse_arrays(draw: Any, shape: Any = None, dtype: Any = "bfloat16", most: int = 8) -> Any:
    """Tensors of a shape (or of shapes that are drawn) that are zeros but for at most `most` elements of any bits: the line says each of them (fill=literal)."""
    size = draw(shape if hasattr(shape, "example") else st.just(tuple(shape)) if shape is not None else shapes())
    digits = 8 if dtype_word(dtype) == "f32" else 4
    place = st.tuples(st.integers(0, size[0] - 1), st.integers(0, size[1] - 1))
    elements = draw(st.dictionaries(place, st.integers(0, 16**digits - 1), min_size=1, max_size=most))
    payload = "+".join(f"{bits:0{digits}x}@{row}.{col}" for (row, col), bits in sorted(elements.items()))
    text = f"{size[0]}x{size[1]} {dtype_word(dtype)} fill=literal:{payload}"
    note(f"assay: quantize <format> {text}")
    return fill(f"quantize identity {text}")


@st.composite
def lines(draw: Any, format: str | None = None) -> str:
    """Lines of quantize: every format or one, its keys, a shape with tails, a fill."""
    name = draw(st.sampled_from(sorted(_FORMATS)) if format is None else st.just(format))
    rows, cols = draw(shapes(most=130))
    words = ["quantize", name, f"{rows}x{cols}", draw(st.sampled_from(["bf16", "f16", "f32"])), f"dir={draw(st.sampled_from(['row', 'col', 'both']))}"]
    for key, values in _FORMATS.get(name, {}).items():
        words.append(f"{key}={draw(st.sampled_from(values))}")
    text = " ".join([*words, f"fill={draw(st.sampled_from(list(FILLS)))}", f"seed={draw(st.integers(0, 999))}"])
    note(f"assay run '{text}'")
    return text
