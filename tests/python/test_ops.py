"""The ops: their bytes are the program's, whatever library the arrays are of."""
import math

import numpy as np
import pytest

import assay

kSpecs = ["mxfp8", "mxfp8 element=e5m2 scales=gemm", "mxfp8 block=32x32", "nvfp4", "nvfp4 block=16x16 four_over_six=mae", "mxfp4", "fp8_current", "fp8_current row_scaled=1",
          "fp8_block", "fp8_block block=128x128 scales=gemm", "identity", "mxfp8/nvfp4"]


def raw(array):
    return np.asarray(array).reshape(-1).view(np.uint8)


def float_of(x):
    return np.asarray(x).astype(np.float32)


def mxfp8_by_hand(x):
    """MXFP8 rows by the definition, in binary64: scale 2^ceil(log2(amax / 448)), elements to the nearest of E4M3."""
    import ml_dtypes
    values = float_of(x).astype(np.float64).reshape(x.shape[0], -1, 32)
    amax = np.abs(values).max(-1)
    exponent = np.array([[math.ceil(math.log2(a / 448)) for a in row] for row in amax])
    codes = (values / 2.0 ** exponent[..., None]).astype(ml_dtypes.float8_e4m3fn)
    return codes.reshape(x.shape).view(np.uint8), (exponent + 127).astype(np.uint8)


def test_against_the_definition(x):
    codes, scales = mxfp8_by_hand(x)
    q = assay.quantize(x, "mxfp8")
    assert np.array_equal(raw(q["row.data"]), codes.reshape(-1))
    assert np.array_equal(np.asarray(q.logical("row.scale_inv")).view(np.uint8), scales)


@pytest.mark.parametrize("spec", kSpecs)
def test_quantize_checks_and_dequantizes(spec, x):
    q = assay.quantize(x, spec, dir="both")
    assert set(q) == {p.name for p in assay.line(q.line).outputs}
    assert assay.check(x, q), str(assay.check(x, q))
    for direction in ("row", "col"):
        back = float_of(q.dequantize(dir=direction))
        assert back.shape == x.shape
        four = "nvfp4" in spec or "mxfp4" in spec
        assert np.abs(back - float_of(x)).max() <= (0.3 if four else 0.15 if "e5m2" in spec else 0.08) * np.abs(float_of(x)).max()


def test_directions_and_names(x):
    assert list(assay.quantize(x)) == ["row.scale_inv", "row.data"]
    assert list(assay.quantize(x, dir="col")) == ["col.scale_inv", "col.data"]
    q = assay.quantize(x, "mxfp8 dir=both")
    assert q.row and q.col and q.row.data is q["row.data"]
    with pytest.raises(AttributeError, match="expected one of"):
        q.row.amax
    with pytest.raises(assay.LineError, match="one direction"):
        assay.quantize(x, "mxfp8 dir=both", dir="col")


def test_codes_of_four_bits(x):
    packed, one = assay.quantize(x, "nvfp4")["row.data"], assay.quantize(x, "nvfp4", unpacked=True)["row.data"]
    assert packed.dtype == one.dtype == np.uint8 and packed.shape == (64, 128) and one.shape == (64, 256)
    assert np.array_equal(packed & 15, one[:, ::2]) and np.array_equal(packed >> 4, one[:, 1::2])
    odd = assay.quantize(x[:, :33], "nvfp4", unpacked=True)
    assert odd["row.data"].shape == (64, 33) and assay.check(x[:, :33], odd)


def test_arguments_are_keys(x):
    assert assay.quantize(x, "fp8_current", amax=3.0).line.endswith("amax=3")
    assert assay.quantize(x, "fp8_delayed", scale=0.1).line == assay.quantize(x, "fp8_delayed scale=0x3DCCCCCD").line
    assert assay.quantize(x, assay.Spec("mxfp8", element="e5m2")).line == assay.quantize(x, "mxfp8", element="e5m2").line
    assert "flavour=ocp" in assay.quantize(x, "mxfp8", flavour="ocp").line
    a, b = (assay.quantize(x, "nvfp4 round=sr", rng=r)["row.data"] for r in ((1, 2), (1, 3)))
    assert not np.array_equal(a, b)
    assert np.array_equal(a, assay.quantize(x, "nvfp4 round=sr rng=1,2,0")["row.data"])


def test_shapes(x):
    assert assay.quantize(x.reshape(4, 16, 256))["row.data"].shape == (64, 256)
    assert assay.quantize(x.reshape(-1))["row.data"].shape == (1, 64 * 256)
    empty = assay.quantize(x[:0])
    assert empty["row.data"].shape == (0, 256) and assay.check(x[:0], empty)
    with pytest.raises(assay.PlaneError, match="a scalar"):
        assay.quantize(x[0, 0])


def test_threads_change_nothing(x):
    big = assay.fill((512, 512), "normal", 1)
    for spec in ("mxfp8", "nvfp4", "fp8_current"):
        one, many = (assay.quantize(big, spec, threads=n) for n in (1, 5))
        assert all(np.array_equal(raw(one[n]), raw(many[n])) for n in one)


# What the vectorised method has, and beside it lines that only the reference has.
kVectorised = ["mxfp8", "mxfp8 element=e5m2", "fp8_current", "fp8_current pow2=1", "fp8_current amax=3", "fp8_delayed scale=0.5", "fp8_block", "fp8_block pow2=0", "nvfp4", "nvfp4 amax=2", "mxfp4", "mxfp8/mxfp4"]


@pytest.fixture(scope="module")
def vectorised():
    """Whether this build and this processor have the vectorised method."""
    return assay.quantize(assay.fill((1, 32)), "mxfp8").made_by != "reference"


@pytest.mark.parametrize("spec", kVectorised)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_vectorised_method_gives_the_bytes_of_the_reference(spec, dtype, vectorised):
    for kind in ("normal", "edges", "ties", "nonfinite", "denormal", "zeros", "negative_zeros", "outliers", "wide"):
        for shape in ((1, 1), (33, 65), (3, 129), (0, 8), (2, 2500), (700, 401)):
            made_of = assay.fill(shape, kind, 5, dtype=dtype)
            exact = assay.quantize(made_of, spec, dir="both", exact=True)
            assert exact.made_by == "reference"
            for threads in (1, 3):
                q = assay.quantize(made_of, spec, dir="both", threads=threads)
                assert q.made_by.startswith("simd ") == vectorised
                assert q == exact, f"{q.line} fill={kind}"


@pytest.mark.parametrize("spec", ["mxfp6", "mxfp8 scales=gemm", "nvfp4 round=sr rng=1,2,0", "fp8_block block=128x128", "mxfp8 flavour=ocp", "mxfp8/mxfp6"])
def test_lines_that_the_vectorised_method_does_not_have_are_the_references(spec, x):
    assert assay.quantize(x, spec, dir="both").made_by == "reference"


def test_vectorised_casts():
    for kind in ("normal", "edges", "nonfinite", "denormal"):
        for to in ("e4m3", "e5m2", "e2m1"):
            made_of = assay.fill((300, 601), kind, 5, dtype="float32")
            assert np.array_equal(raw(assay.cast(made_of, to, threads=3)), raw(assay.cast(made_of, to, exact=True)))


def test_cast(x):
    import ml_dtypes
    assert np.array_equal(raw(assay.cast(x, "e4m3")), raw(np.clip(float_of(x), -448, 448).astype(ml_dtypes.float8_e4m3fn)))
    assert np.array_equal(raw(assay.cast(x, "f32")), raw(float_of(x)))
    assert assay.cast(x, "e2m1").shape == x.shape
    assert assay.check(x, assay.cast(x, "e5m2", round="rz"), "cast e5m2 round=rz")
    assert not assay.check(x, assay.cast(x, "e5m2", round="rz"), "cast e5m2")


def test_split_is_its_members(x):
    q = assay.split(x, "mxfp8", [32, 0, 32])
    assert assay.check(x, q)
    first = assay.quantize(x[:32], "mxfp8")
    assert np.array_equal(raw(q["row.data"])[: 32 * 256], raw(first["row.data"]))
    assert list(np.asarray(q["offsets"]).reshape(-1)) == [0, 32 * 256, 32 * 256, 64 * 256]


@pytest.mark.parametrize("spec", ["mxfp8", "nvfp4", "mxfp4"])
def test_swizzle(spec, x):
    plain, tiled = assay.quantize(x, spec), assay.quantize(x, spec + " scales=gemm")
    made = assay.swizzle(plain["row.scale_inv"], spec, shape=x.shape)
    assert np.array_equal(raw(made), raw(tiled["row.scale_gemm"]))
    assert np.array_equal(raw(assay.swizzle(made, spec, shape=x.shape, inverse=True)), raw(plain["row.scale_inv"]))


def test_hadamard_is_a_rotation(x):
    made = assay.hadamard(x)
    assert made["y"].shape == (256, 64)
    assert float(made["amax"][0, 0]) == pytest.approx(np.abs(float_of(made["y"])).max(), rel=2**-8)
    assert (float_of(made["y"]) ** 2).sum() == pytest.approx((float_of(x) ** 2).sum(), rel=1e-2)


@pytest.mark.parametrize("op", ["TN", "NN", "NT"])
@pytest.mark.parametrize("spec", ["mxfp8", "nvfp4", "fp8_current", "mxfp4"])
def test_gemm(spec, op):
    m, n, k = 32, 48, 64
    a = assay.fill((m, k) if op == "TN" else (k, m), "normal", 1)
    b = assay.fill((k, n) if op == "NT" else (n, k), "normal", 2)
    qa, qb = assay.quantize(a, spec, dir="both"), assay.quantize(b, spec, dir="both")
    d = float_of(assay.gemm(qa, qb, op=op, dtype="f32"))
    left = float_of(qa.dequantize(dir="row" if op == "TN" else "col"))
    right = float_of(qb.dequantize(dir="col" if op == "NT" else "row"))
    want = (right.T if op == "NT" else right) @ (left.T if op == "TN" else left)
    assert d.shape == (n, m) and np.allclose(d, want, atol=2e-4)


def test_gemm_epilogue():
    a, b = (assay.quantize(assay.fill((32, 64), "exact_sums", s), "mxfp8") for s in (1, 2))
    bias, c = assay.fill((1, 32), "exact_sums", 3), assay.fill((32, 32), "exact_sums", 4, dtype="float32")
    plain = float_of(assay.gemm(a, b, dtype="f32"))
    made = float_of(assay.gemm(a, b, dtype="f32", bias=bias, c=c, beta=1.0))
    assert np.array_equal(made, plain + float_of(bias) + float_of(c))
    with pytest.raises(assay.PlaneError, match="one K"):
        assay.gemm(a, assay.quantize(assay.fill((32, 32)), "mxfp8"))


def test_fill_is_the_suites():
    line = "quantize mxfp8 16x64 bf16 fill=amax_edges seed=5"
    assert np.array_equal(raw(assay.fill(line)), raw(assay.fill((16, 64), "amax_edges", 5)))
    assert assay.fill((2, 3, 4), dtype="float32").shape == (2, 3, 4)
    with pytest.raises(assay.LineError, match="did you mean 'ties'"):
        assay.fill((4, 4), "tiess")
    with pytest.raises(assay.PlaneError, match="assay.inputs"):
        assay.fill("dequantize mxfp8 16x64 bf16")
    assert list(assay.inputs("dequantize mxfp8 16x64 bf16")) == ["row.scale_inv", "row.data"]


def test_a_number_may_be_an_array_of_one(x):
    for amax in (4, 4.0, np.float32(4), np.array(4.0), np.array([4.0], np.float32), np.array([[4]])):
        assert assay.quantize(x, "fp8_current", amax=amax).line.endswith("amax=4"), amax
    with pytest.raises(assay.PlaneError, match="expected a number, found ndarray"):
        assay.quantize(x, "fp8_current", amax=np.array([4.0, 5.0]))
