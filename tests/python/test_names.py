"""The public names and their signatures, used as a caller uses them who knows nothing else: every kind of array, and what odd arguments give."""
import inspect
import os
import pathlib

import ml_dtypes
import numpy as np
import pytest

import assay
from conftest import OnlyDlpack

kNames = ["quantize", "dequantize", "check", "explain", "identify", "coherence", "trace", "fill", "load", "Pack", "assert_bitwise", "assert_quantized", "cast",
          "split", "swizzle", "hadamard", "gemm", "Subject", "Verdict", "Diagnosis", "Identification", "Trace", "Quantized", "plot_error", "AssayError",
          "LineError", "PlaneError", "UnsupportedEncoding", "NotJudged"]
# function: positional parameters in order, then those that callers name, with their defaults where callers rely on them
kSignatures = {
    "quantize": (["x", "spec"], {"dir": "row", "flavour": None, "rng": None, "amax": None, "scale": None, "out": "like", "threads": 0}),
    "check": (["x", "outputs", "spec"], {"cause": False, "threads": 0, "rng": None, "amax": None, "scale": None}),
    "explain": (["x", "outputs", "spec"], {"budget_s": 10.0, "pairs": True}),
    "identify": (["x", "outputs", "spec"], {}),
    "coherence": (["outputs", "spec"], {}),
    "assert_bitwise": (["actual", "expected"], {"encoding": None, "msg": None}),
    "assert_quantized": (["x", "outputs", "spec"], {"explain": True}),
    "trace": (["x", "outputs", "at", "spec"], {}),
    "fill": (["line_or_shape", "kind", "seed", "dtype", "out"], {"kind": "ties", "seed": 1, "dtype": "bfloat16", "out": "numpy"}),
    "load": (["path"], {}),
}


def test_names_and_signatures():
    assert not [name for name in kNames if not hasattr(assay, name)]
    for name, (positional, named) in kSignatures.items():
        parameters = inspect.signature(getattr(assay, name)).parameters
        assert [p for p in parameters if parameters[p].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD] == positional, name
        assert {p: parameters[p].default for p in named} == named, name
    assert all(issubclass(getattr(assay, n), assay.AssayError) for n in ("LineError", "PlaneError", "UnsupportedEncoding", "NotJudged", "PackError"))
    assert issubclass(assay.AssayError, ValueError) and issubclass(assay.UnsupportedEncoding, TypeError)
    assert callable(assay.Subject.from_callable)


# ---- every library ---------------------------------------------------------------------------------------------------

def as_torch(x):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(np.asarray(x).view(np.uint16).copy()).view(torch.bfloat16)


def as_jax(x):
    return pytest.importorskip("jax.numpy").asarray(np.asarray(x))


kLibraries = {"numpy": np.asarray, "torch": as_torch, "jax": as_jax,
              "dlpack": lambda x: OnlyDlpack(np.asarray(x).astype(np.float32)), "buffer": lambda x: memoryview(np.asarray(x).astype(np.float32))}


@pytest.mark.parametrize("library", kLibraries)
@pytest.mark.parametrize("spec", ["mxfp8", "mxfp8 element=e5m2", "nvfp4", "mxfp4", "fp8_current", "fp8_block"])
def test_a_round(library, spec, x):
    """Quantize, judge, break, explain, ask whose it is: in the caller's own arrays."""
    mine = kLibraries[library](x)
    q = assay.quantize(mine, spec)
    kind = {"torch": "torch", "jax": "jaxlib"}.get(library, "numpy")
    assert all(type(plane).__module__.partition(".")[0] in (kind, "jax") for plane in q.values()) and set(q) >= {"row.data", "row.scale_inv"}
    outputs = {name: q[name] for name in q}
    verdict = assay.check(mine, outputs, spec)
    assert verdict.ok and bool(verdict) and isinstance(str(verdict), str) and verdict.to_dict()["ok"] is True and "<" in verdict._repr_html_()
    assay.assert_quantized(mine, outputs, spec)
    assay.assert_bitwise(q["row.data"], outputs["row.data"])
    codes = np.array(np.asarray(assay.quantize(x.astype(np.float32) if library in ("dlpack", "buffer") else x, spec)["row.data"]))
    codes.view(np.uint8)[7, 9] ^= 0x10
    broken = assay.check(mine, {**outputs, "row.data": codes}, spec)
    assert not broken.ok and not broken and broken.first.plane == "row.data" and broken.planes["row.data"].differ == 1
    with pytest.raises(AssertionError, match="row.data"):
        assay.assert_quantized(mine, {**outputs, "row.data": codes}, spec, explain=False)
    assert assay.identify(mine, outputs, spec).best
    assert assay.trace(mine, {**outputs, "row.data": codes}, (7, 9), spec)._repr_html_()
    assert assay.dequantize(outputs, spec).shape == (64, 256)


def test_both_directions(x):
    q = assay.quantize(x, "mxfp8", dir="both")
    assert assay.coherence({name: q[name] for name in q}, "mxfp8") and assay.check(x, {"col.data": q["col.data"]}, "mxfp8")
    assert assay.explain(x, q).verdict == "equal"


def test_packs(x, tmp_path):
    q = assay.quantize(x, "nvfp4")
    pack = assay.Pack()
    pack.add_planes(q.line, {"x": x, **{name: q[name] for name in q}}, step=1, module="fc1", role="weight")
    case, = assay.load(pack.write(tmp_path / "a.safetensors"))
    assert case.check() and case.check().ok


# ---- odd arguments: an error of the package that says expected, found, where, and what to do --------------------------

def pair(q):
    return np.asarray(q["row.data"]), np.asarray(q["row.scale_inv"])


kOdd = {
    "a scalar": (lambda x, c, s: assay.quantize(np.float32(1)), assay.PlaneError, "x: expected at least one dimension, found a scalar; reshape"),
    "objects": (lambda x, c, s: assay.quantize(x.astype(object)), assay.UnsupportedEncoding, "x: .*expected float32, bfloat16 or float16, found object; convert"),
    "bits without a dtype": (lambda x, c, s: assay.quantize(x.view(np.uint16)), assay.UnsupportedEncoding, 'expected float32.*found uint16; pass x_dtype="bf16"'),
    "a list": (lambda x, c, s: assay.quantize([[1.0]]), assay.PlaneError, "x: expected an array .*found list; numpy.asarray"),
    "lists of codes": (lambda x, c, s: assay.check(x, {"row.data": c.tolist()}, "mxfp8"), assay.PlaneError, "row.data: expected an array .*found list; numpy"),
    "no outputs": (lambda x, c, s: assay.check(x, None, "mxfp8"), assay.PlaneError, "outputs: expected a mapping of planes.*found NoneType"),
    "an empty mapping": (lambda x, c, s: assay.check(x, {}, "mxfp8"), assay.PlaneError, "outputs: expected a mapping of planes such as .*found an empty one"),
    "one array": (lambda x, c, s: assay.check(x, c, "mxfp8"), assay.PlaneError, "outputs: expected a mapping of planes, found one array; the planes .*are"),
    "half of the codes": (lambda x, c, s: assay.check(x, (c[:32], s), "mxfp8"), assay.PlaneError, r"row.data.*\[32x256\], expected 16384 elements of e4m3"),
    "a plane's name": (lambda x, c, s: assay.check(x, {"row.dat": c}, "mxfp8"), assay.PlaneError, "row.dat: expected a plane.*did you mean 'row.data'"),
    "swapped": (lambda x, c, s: assay.check(x, (s, c), "mxfp8"), assay.PlaneError, "row.scale_inv.*F8_E4M3.*expected 1024 elements of e8m0"),
    "a format": (lambda x, c, s: assay.quantize(x, "mxfp9"), assay.LineError, "unknown format 'mxfp9'.*did you mean 'mxfp8'"),
    "no format": (lambda x, c, s: assay.quantize(x, ""), assay.LineError, "expected spec to begin with a format, found an empty one .*such as 'mxfp8'"),
    "spec in a list": (lambda x, c, s: assay.quantize(x, ["mxfp8"]), assay.LineError, "expected spec to be the words of a line, such as .*found list"),
    "directions in a list": (lambda x, c, s: assay.quantize(x, dir=["row"]), assay.LineError, "expected dir= to be row, col or both, found .*row"),
    "no spec": (lambda x, c, s: assay.quantize(x, None), assay.LineError, "expected spec to be the words of a line, such as .*found NoneType"),
    "a value": (lambda x, c, s: assay.quantize(x, "mxfp8", element="e6m1"), assay.LineError, "element: unknown value 'e6m1'"),
    "a direction": (lambda x, c, s: assay.quantize(x, dir="rows"), assay.LineError, "expected dir= to be row, col or both, found 'rows'"),
    "a seed": (lambda x, c, s: assay.quantize(x, "nvfp4 round=sr", rng=7), assay.LineError, r"expected rng= to be \(seed, offset\).*found 7"),
    "a library": (lambda x, c, s: assay.quantize(x, out="tf"), assay.PlaneError, "expected out= to be one of like, numpy.*found 'tf'"),
    "threads": (lambda x, c, s: assay.quantize(x, threads="2"), assay.AssayError, "threads: expected a number of threads, 0 for every core, found '2'"),
    "fewer threads than none": (lambda x, c, s: assay.check(x, (c, s), threads=-1), assay.AssayError, "threads: expected a number .*found -1"),
    "a budget": (lambda x, c, s: assay.explain(x, (c, s), budget_s="x"), assay.AssayError, "budget_s: expected a number of seconds, 0 or more, found 'x'"),
    "a place": (lambda x, c, s: assay.trace(x, (c, s), (64, 0)), assay.PlaneError, r"\(64, 0\) is outside the 64x256 tensor"),
    "one direction": (lambda x, c, s: assay.coherence((c, s)), assay.PlaneError, "outputs: expected row.data and col.data, found"),
    "an encoding": (lambda x, c, s: assay.assert_bitwise(c, c, encoding="e9"), assay.PlaneError, "actual: expected encoding= to be one of .*found 'e9'"),
    "another encoding": (lambda x, c, s: assay.assert_bitwise(c, c, encoding="e5m2"), assay.PlaneError, "expected elements of encoding=e5m2, found float8_e4m3fn; leave"),
    "no path": (lambda x, c, s: assay.load(None), assay.AssayError, "path: expected the path of a pack .*found None"),
    "no file": (lambda x, c, s: assay.load("nowhere.safetensors"), assay.AssayError, "nowhere.safetensors does not exist: expected a pack"),
    "a random rounding": (lambda x, c, s: assay.check(x, assay.quantize(x, "nvfp4")["row.data"], "nvfp4 round=sr"), assay.NotJudged, r"expected the random state.*pass rng=\(seed, offset\)"),
    "a fill": (lambda x, c, s: assay.fill((4, 4), "gauss"), assay.LineError, "unknown fill 'gauss' .one of normal"),
    "a wide dtype": (lambda x, c, s: assay.fill((4, 4), dtype="float64"), assay.LineError, "expected a dtype float32, bfloat16 or float16, found float64"),
}


@pytest.mark.parametrize("what", kOdd)
def test_odd_arguments(what, x):
    call, kind, said = kOdd[what]
    with pytest.raises(assay.AssayError, match=said) as error:
        call(x, *pair(assay.quantize(x)))
    assert isinstance(error.value, kind) and isinstance(error.value, ValueError)


def test_nested_tensors():
    torch = pytest.importorskip("torch")
    with pytest.raises(assay.PlaneError, match="expected one dense tensor, found a nested one; .*unbind"):
        assay.quantize(torch.nested.nested_tensor([torch.zeros(4, 32)]))


def test_odd_arrays_that_are_right(x):
    """Views in any order, nothing at all, read-only memory, the other byte order."""
    want = np.asarray(assay.quantize(x)["row.data"]).view(np.uint8)
    still = x.copy()
    still.setflags(write=False)
    assert np.array_equal(np.asarray(assay.quantize(still)["row.data"]).view(np.uint8), want)
    for view in (x[::-1, ::-1], x[::2, ::2], x.T, x[5:6], x[:, :1]):
        q = assay.quantize(view)
        assert assay.check(view, q) and assay.check(np.ascontiguousarray(view), q)
    assert assay.check(x.astype(">f4"), assay.quantize(x.astype("<f4")))
    for empty in (x[:0], x[:, :0], np.zeros((0, 0), ml_dtypes.bfloat16)):
        assert assay.check(empty, assay.quantize(empty)) and assay.quantize(empty)["row.data"].size == 0


def test_a_transposed_plane_is_said(x):
    """It has the elements of its plane: they are judged as they lie, and the verdict says so."""
    codes, scales = pair(assay.quantize(x))
    verdict = assay.check(x, (np.ascontiguousarray(codes.T), scales), "mxfp8")
    assert not verdict and "row.data: expected the shape [64, 256], found [256, 64]; its elements were read row by row" in str(verdict)
    assert "expected the shape [64, 8], found [128, 4]" in str(assay.check(x, (codes, scales[:, :4]), "mxfp8"))
    assert not [n for spec in ("mxfp8", "nvfp4", "mxfp4", "fp8_block", "fp8_current") for n in assay.check(x, dict(assay.quantize(x, spec, dir="both")), spec).notes]


def test_paths_of_any_kind(x, tmp_path):
    q, pack = assay.quantize(x), assay.Pack()
    pack.add_planes(q.line, {"x": x, **dict(q)}, module="m")
    pack.write(tmp_path / "a.safetensors")
    assert len(assay.load(tmp_path)) == len(assay.load(str(tmp_path))) == len(assay.load([tmp_path / "a.safetensors"])) == 1
    assert isinstance(tmp_path, (os.PathLike, pathlib.Path))
