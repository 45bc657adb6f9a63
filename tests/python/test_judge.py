"""Verdicts, causes and assertions: what they say of right bytes and of wrong ones."""
import copy
import json
import pickle

import numpy as np
import pytest

import assay


def planes(q):
    return {n: np.array(q[n]) for n in q}


def test_right_bytes_pass_and_one_bit_fails(x):
    for spec in ("mxfp8", "nvfp4", "fp8_block", "mxfp4", "fp8_current"):
        good = planes(assay.quantize(x, spec, dir="both"))
        assert assay.check(x, good, spec)
        for name in good:
            bad = planes(assay.quantize(x, spec, dir="both"))
            bad[name].view(np.uint8)[0, 0] ^= 1
            verdict = assay.check(x, bad, spec)
            assert not verdict.ok and not verdict and verdict.first.plane == name, (spec, name)
            assert verdict.planes[name].differ == 1 and verdict.planes[name].first == (0, 0)
            assert all(p.ok for n, p in verdict.planes.items() if n != name)


def test_verdict_says_what_the_program_says(x):
    bad = assay.quantize(x, "mxfp8 mx_scale=floor")
    verdict = assay.check(x, planes(bad), "mxfp8", cause=True)
    text = str(verdict)
    assert text.startswith("FAILED") and "cause    row.scale_inv (e8m0)" in text and "reference" in text
    assert "floored exponent of the amax (OCP)" in verdict.cause
    first = verdict.first
    assert (first.plane, first.encoding, first.claim) == ("row.scale_inv", "e8m0", "parity") and first.got == first.want - 1
    assert json.loads(json.dumps(verdict.to_dict()))["planes"]["row.data"]["differ"] > 0
    html = verdict._repr_html_()
    assert len(html) < 200_000 and "<script" not in html and "row.scale_inv" in html and "prefers-color-scheme:dark" in html


def test_each_result_is_one_line_where_it_is_shown_by_itself(x):
    bad = planes(assay.quantize(x, "mxfp8 mx_scale=floor"))
    both = assay.quantize(x, "mxfp8", dir="both")
    shown = [repr(r) for r in (assay.check(x, both), assay.check(x, bad, "mxfp8"), assay.explain(x, bad, "mxfp8"), assay.identify(x, bad, "mxfp8"),
                               assay.trace(x, bad, (0, 130), "mxfp8"), assay.coherence(both))]
    assert all("\n" not in text and len(text) < 250 for text in shown), shown
    for text, words in zip(shown, (["Verdict passed", "row.data"], ["Verdict FAILED", "row.scale_inv (e8m0) 151 / 512"], ["explained", "floored exponent"],
                                   ["named: ocp"], ["(0, 130)", "row.data"], ["Coherence passed", "one tensor"])):
        assert all(word in text for word in words), text


def test_a_plane_that_is_not_there(x):
    q = assay.quantize(x, "mxfp8")
    with pytest.raises(KeyError, match=r"did you mean 'row\.data'") as caught:
        q["row.dat"]
    assert isinstance(caught.value, assay.PlaneError) and caught.value.plane == "row.dat" and str(caught.value)[0] != '"'
    assert q == assay.quantize(x, "mxfp8") and q != assay.quantize(x, "mxfp8 mx_scale=floor") and q != 3
    assert q.get("row.dat") is None and "row.dat" not in q
    with pytest.raises(assay.PlaneError, match=r"element \(0, 256\) is outside the 64x256 tensor; at="):
        assay.trace(x, q, at=(0, 256))


def test_errors_come_out_of_another_process_as_they_were(x):
    """concurrent.futures, multiprocessing and Dask pickle what a task raises."""
    bad = planes(assay.quantize(x, "mxfp8 mx_scale=floor"))
    for call in (lambda: assay.quantize(x, "mxfp9"), lambda: assay.check(x, {}, "mxfp8"), lambda: assay.check(x, bad, "nvfp4 round=sr"),
                 lambda: assay.quantize(np.zeros((2, 32)), "mxfp8"), lambda: assay.quantize(x, "mxfp8")["row"], lambda: assay.load("/nowhere"),
                 lambda: assay.assert_quantized(x, bad, "mxfp8", explain=False)):
        with pytest.raises((assay.AssayError, AssertionError)) as caught:
            call()
        for again in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
            assert type(again) is type(caught.value) and str(again) == str(caught.value)
            assert again.__dict__.keys() == caught.value.__dict__.keys()


def test_directions_that_are_given_are_judged(x):
    both = assay.quantize(x, "mxfp8", dir="both")
    assert list(assay.check(x, {"col.data": both["col.data"]}, "mxfp8").planes) == ["col.data"]
    verdict = assay.check(x, {"row.data": both["row.data"]}, "mxfp8")
    assert verdict.missing == ["row.scale_inv"] and "row.scale_inv" in str(verdict)


@pytest.mark.parametrize("spec", ["mxfp8", "fp8_block", "fp8_delayed scale=50", "fp8_delayed scale=50 prior_amax=64", "fp8_current"])
def test_a_large_tensor_has_the_verdict_that_the_reference_gives(spec):
    """From 4 Mi elements on the vectorised method looks first: at blocks, not at planes of one value, and it never says that something is wrong."""
    x = np.random.default_rng(5).standard_normal((2048, 2048), dtype=np.float32)
    q = assay.quantize(x, spec, dir="both")
    good = planes(q)
    verdict, exact = assay.check(x, good, spec), assay.check(x, good, spec, exact=True)
    assert verdict.ok and exact.ok and verdict.planes.keys() == exact.planes.keys() and not any(p.differ for p in verdict.planes.values())
    assert "by the reference: " not in str(exact)
    if "avx2" in open("/proc/cpuinfo").read():
        assert "judged by simd" in str(verdict)
    for name in good:
        bad = {**good, name: good[name].copy()}
        bad[name].view(np.uint8).reshape(-1)[0] ^= 1
        for verdict in (assay.check(x, bad, spec), assay.check(x, bad, spec, exact=True)):
            assert verdict.first.plane == name and [n for n, p in verdict.planes.items() if p.differ] == [name]


def test_forms_of_outputs(x):
    q = assay.quantize(x, "mxfp8")
    assert assay.check(x, (q["row.data"], q["row.scale_inv"]))           # the dtypes tell the format
    assert assay.check(x, (q["row.data"], q.logical("row.scale_inv")), "mxfp8")   # without its padding
    assert assay.check(x, (q["row.data"].view(np.uint8), q["row.scale_inv"].view(np.uint8)), "mxfp8")
    assert assay.check(x, q)
    tiled = assay.quantize(x, "mxfp8 scales=gemm")
    assert assay.check(x, (tiled["row.data"], tiled["row.scale_gemm"]), "mxfp8 scales=gemm")
    with pytest.raises(assay.LineError, match="expected spec="):
        assay.check(x, (q["row.data"].view(np.uint8), q["row.scale_inv"].view(np.uint8)))
    with pytest.raises(assay.PlaneError, match="a pair"):
        assay.check(x, (q["row.data"],), "mxfp8")


def test_other_ops(x):
    q = assay.quantize(x, "mxfp8")
    y = q.dequantize("bf16")
    assert assay.check(planes(q), {"y": y}, "dequantize mxfp8 64x256 bf16")
    wrong = np.array(y)
    wrong[3, 4] = -wrong[3, 4] if wrong[3, 4] != 0 else 1
    verdict = assay.check(planes(q), {"y": wrong}, "dequantize mxfp8 64x256 bf16")
    assert verdict.planes["y"].first == (3, 4)
    assert assay.check(x, assay.hadamard(x), "hadamard nvfp4")


def test_stochastic_rounding_needs_its_state(x):
    q = planes(assay.quantize(x, "nvfp4 round=sr", rng=(7, 8)))
    assert assay.check(x, q, "nvfp4 round=sr", rng=(7, 8))
    assert not assay.check(x, q, "nvfp4 round=sr", rng=(7, 9))
    with pytest.raises(assay.NotJudged) as error:
        assay.check(x, q, "nvfp4 round=sr")
    assert error.value.needs == "rng"


kFaults = [("mxfp8 mx_scale=floor", "mxfp8", "line.mx_scale=floor"), ("mxfp8 element_ties=away", "mxfp8", "line.element_ties=away"),
           ("nvfp4 four_over_six=mse", "nvfp4", None), ("fp8_current pow2=1", "fp8_current", "line.pow2=1")]


@pytest.mark.parametrize("made, spec, cause", kFaults)
def test_explain_names_the_cause(made, spec, cause, x):
    diagnosis = assay.explain(x, planes(assay.quantize(x, made)), spec)
    assert not diagnosis and diagnosis.verdict == "explained" and diagnosis.coverage == 1.0
    assert cause is None or any(cause in c.ids for c in diagnosis.causes), [c.ids for c in diagnosis.causes]
    assert diagnosis.stage and str(diagnosis).startswith("EXPLAINED")
    html = diagnosis._repr_html_()
    assert len(html) < 200_000 and "<svg" in html and "<script" not in html


def test_explain_of_equal_and_of_noise(x):
    assert assay.explain(x, assay.quantize(x)).verdict == "equal"
    bad = planes(assay.quantize(x))
    rng = np.random.default_rng(1)
    bad["row.data"] = rng.integers(0, 120, bad["row.data"].shape, np.uint8)
    assert assay.explain(x, bad, "mxfp8", budget_s=2).verdict in ("unexplained", "partly")


def test_reproduce_is_a_pack_that_fails_again(x, tmp_path):
    diagnosis = assay.explain(x, planes(assay.quantize(x, "mxfp8 mx_scale=floor")), "mxfp8")
    pack = diagnosis.reproduce(tmp_path / "repro")
    case, = assay.load(pack)
    assert not case.check() and case.explain().causes[0].ids == diagnosis.causes[0].ids
    assert (tmp_path / "repro/reproduce.py").is_file()


def test_identify(x):
    x = assay.fill((64, 256), "amax_edges")
    found = assay.identify(x, planes(assay.quantize(x, "mxfp8", flavour="torchao.ceil")), "mxfp8")
    assert found and found.named and "torchao.ceil" in (found.best.name, *found.best.same_as)
    noise = planes(assay.quantize(x))
    noise["row.data"].view(np.uint8)[::2] ^= 3
    lost = assay.identify(x, noise, "mxfp8")
    assert not lost.named and lost.ranking and lost.best.agreement < 1


def test_coherence(x):
    assert assay.coherence(assay.quantize(x, "mxfp8", dir="both"))
    stale = {**assay.quantize(x, "mxfp8"), **assay.quantize(assay.fill((64, 256), "normal", 9), "mxfp8", dir="col")}
    verdict = assay.coherence(stale, "mxfp8")
    assert not verdict and not verdict.ok and isinstance(verdict, assay.Verdict) and "stale" in str(verdict)
    assert verdict.to_dict()["apart"] > 1000 and "stale" in verdict._repr_html_()
    with pytest.raises(assay.PlaneError, match="two directions"):
        assay.coherence(assay.quantize(x))


def test_trace(x):
    bad = planes(assay.quantize(x))
    bad["row.data"].view(np.uint8)[2, 40] ^= 1
    assert assay.trace(x, bad, (2, 41), "mxfp8")
    found = assay.trace(x, bad, (2, 40), "mxfp8")
    assert not found and any(s.clause == "N5.3" for s in found.steps) and "->" in str(found)
    assert [s.differs for s in found.outputs] == [False, True]
    with pytest.raises(assay.PlaneError, match="outside"):
        assay.trace(x, bad, (64, 0), "mxfp8")


def test_assert_quantized(x):
    q = assay.quantize(x)
    assay.assert_quantized(x, q)
    bad = assay.quantize(x, "mxfp8 mx_scale=floor")
    with pytest.raises(AssertionError) as error:
        assay.assert_quantized(x, (bad["row.data"], bad["row.scale_inv"]), "mxfp8")
    text = str(error.value)
    assert text.startswith("quantized tensors differ: row.scale_inv (e8m0)") and "floored exponent" in text and "FAILED" in text
    with pytest.raises(AssertionError, match="^mine$"):
        assay.assert_quantized(x, (bad["row.data"], bad["row.scale_inv"]), "mxfp8", explain=False, msg="mine")


def test_assert_bitwise(x):
    q, other = assay.quantize(x), np.array(assay.quantize(x)["row.data"])
    assay.assert_bitwise(q["row.data"], other)
    other.view(np.uint8)[1, 2] ^= 4
    with pytest.raises(AssertionError, match=r"1 of 16384 elements of e4m3 .*first at \(1, 2\)"):
        assay.assert_bitwise(other, q["row.data"])
    with pytest.raises(AssertionError, match="of e4m3"):
        assay.assert_bitwise(other.view(np.uint8), q["row.data"].view(np.uint8), encoding="e4m3")
    nan = np.array([np.nan, 0.0], np.float32)
    assay.assert_bitwise(nan, nan.copy())
    with pytest.raises(AssertionError, match=r"first at \(0, 1\)"):
        assay.assert_bitwise(nan, np.array([np.nan, -0.0], np.float32))
    with pytest.raises(AssertionError, match="shape"):
        assay.assert_bitwise(nan, nan[:1])
    with pytest.raises(AssertionError, match="told: arrays differ"):
        assay.assert_bitwise(nan, nan + 1, msg=lambda text: "told: " + text)
    shorts = np.array([[1, 2, 3]], np.uint16)
    assay.assert_bitwise(shorts, shorts.copy())
    with pytest.raises(AssertionError, match=r"1 of 6 elements of u8 .*first at \(0, 5\)"):
        assay.assert_bitwise(shorts, np.array([[1, 2, 0x103]], np.uint16))
    packed = np.array([[0x21, 0x43]], np.uint8)
    with pytest.raises(AssertionError, match=r"1 of 4 elements of e2m1 .*first at \(0, 3\)"):
        assay.assert_bitwise(packed, np.array([[0x21, 0x53]], np.uint8), encoding="e2m1")
