"""Attention: the function, the judge of its planes, and the dumps of other people's kernels with one mistake each (attention_kernels.py)."""
import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest

import assay
import attention_kernels as kernels

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "fixtures/from_python"))
bf16 = ml_dtypes.bfloat16


def tensors(seed=1, b=2, s=8, h=4, kv=12, hk=2, d=16):
    draw = np.random.default_rng(seed)
    make = lambda *shape: draw.standard_normal(shape).astype(bf16)
    return make(b, s, h, d), make(b, kv, hk, d), make(b, kv, hk, d), make(b, s, h, d)


def same(a, b):
    return np.array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))


# ---- the function --------------------------------------------------------------------------------------------------

def test_shapes_and_planes():
    q, k, v, do = tensors()
    made = assay.attention(q, k, v, "fp8_current mask=causal_bottom_right", do=do)
    assert made["out"].shape == q.shape and made["grad.k"].shape == k.shape and made["grad.q"].shape == q.shape
    assert set(made) == {p.name for p in assay.line(made.line).outputs}
    assert "batch=2 heads=4 kv_heads=2 kv=12" in made.line
    assert made["s"].shape == (2 * 4 * 8, 12)


def test_close_to_the_definition():
    """Against softmax(QK/sqrt(d))V in binary64, heads in groups."""
    q, k, v, _ = tensors()
    wide = lambda x, repeats: np.repeat(x.astype(np.float64), repeats, 2)
    logits = np.einsum("bihd,bjhd->bhij", wide(q, 1), wide(k, 2)) / 4
    e = np.exp(logits - logits.max(-1, keepdims=True))
    want = np.einsum("bhij,bjhd->bihd", e / e.sum(-1, keepdims=True), wide(v, 2))
    for spec, most in (("identity", 0.02), ("fp8_current", 0.15), ("fp8_delayed s.scale=448 qkv.scale=64 o.scale=64", 0.25)):
        got = assay.attention(q, k, v, spec)["out"].astype(np.float64)
        assert np.abs(got - want).max() < most, spec


def test_layouts_hold_the_same_values():
    q, k, v, do = tensors(hk=4, kv=8)
    want = assay.attention(q, k, v, "fp8_current", do=do)
    swap = lambda x: np.ascontiguousarray(x.swapaxes(0, 1))
    other = assay.attention(swap(q), swap(k), swap(v), "fp8_current", do=swap(do), layout="sbhd")
    assert same(swap(other["out"]), want["out"]) and same(swap(other["grad.v"]), want["grad.v"])
    packed = assay.attention(np.stack([q, k, v], 2), spec="fp8_current layout=bs3hd", do=do)
    assert same(packed["out"], want["out"]) and same(packed["grad.qkv"][:, :, 1], want["grad.k"])
    two = assay.attention(q, np.stack([k, v], 3), spec="fp8_current", layout="bshd_bsh2d")
    assert same(two["out"], want["out"])
    flat = assay.attention(q.reshape(16, -1), k.reshape(16, -1), v.reshape(16, -1), "fp8_current batch=2 heads=4")
    assert same(flat["out"].reshape(q.shape), want["out"])


def test_ragged_sequences_are_sequences():
    q, k, v, _ = tensors(b=1, s=11, h=2, hk=2, kv=11)
    whole = assay.attention(q[0], k[0], v[0], "identity", layout="thd", lengths=[4, 7])["out"]
    for first, last in ((0, 4), (4, 11)):
        part = assay.attention(q[:, first:last], k[:, first:last], v[:, first:last], "identity")["out"][0]
        assert same(whole[first:last], part)


def test_bias_and_dropout():
    q, k, v, _ = tensors()
    draw = np.random.default_rng(5)
    bias, keep = draw.standard_normal((4 * 8, 12)).astype(bf16), (draw.random((2 * 4 * 8, 12)) > 0.25).astype(np.uint8)
    plain, made = assay.attention(q, k, v), assay.attention(q, k, v, bias=bias, keep=keep, dropout=0.25)
    assert "bias=post_scale" in made.line and not same(plain["p"], made["p"])
    assert np.all(made["s"].astype(np.float32)[keep == 0] == 0)


@pytest.mark.parametrize("change, words", [
    (dict(layout="dhsb"), "expected one of"), (dict(lengths=None, layout="thd"), "axes"), (dict(spec="nvfp4"), "attention casts by"),
    (dict(spec="fp8_current layout=bshd", layout="sbhd"), "one layout"), (dict(k=None), "found no k"), (dict(kv_lengths=[3, 4]), "lengths="),
    (dict(x_dtype="f32"), "x_dtype")])
def test_errors_say_what_is_wrong(change, words):
    q, k, v, _ = tensors()
    given = {"q": q, "k": k, "v": v, **change}
    with pytest.raises(assay.AssayError, match=words):
        assay.attention(**given)


def test_shapes_that_do_not_fit():
    q, k, v, _ = tensors()
    with pytest.raises(assay.PlaneError, match="K and V of one shape"):
        assay.attention(q, k, v[:, :5])
    with pytest.raises(assay.PlaneError, match="head size of Q"):
        assay.attention(q, k[..., :8], v)
    with pytest.raises(assay.PlaneError, match="bfloat16 or float16"):
        assay.attention(q.astype(np.float32), k, v)


def test_codes_with_descales():
    d = kernels.Inference(7)
    c, spec = d.codes, "identity/fp8_delayed s.scale=256"
    made = assay.attention(c["q"], c["k"], c["v"], spec, descales=[d.descales[x] for x in "qkv"])
    assert "codes=e4m3" in made.line and made["out"].dtype == bf16
    values = {x: (c[x].astype(np.float32) * np.repeat(d.descales[x], c[x].shape[2] // 2, 1)[:, None, :, None]).astype(bf16) for x in "qkv"}
    assert same(made["out"], assay.attention(values["q"], values["k"], values["v"], spec)["out"])
    assert assay.check(d.inputs(), made)


# ---- the judge -----------------------------------------------------------------------------------------------------

def test_planes_are_judged():
    q, k, v, do = tensors()
    inputs, spec = {"q": q, "k": k, "v": v, "do": do}, "attention fp8_current mask=causal"
    made = assay.attention(q, k, v, "fp8_current mask=causal", do=do)
    assert assay.check(inputs, made)
    assert assay.check(inputs, {"out": made["out"], "dp": made["dp"]}, spec)   # sizes from the tensors
    for plane in ("p", "s.data", "dp", "grad.k"):
        planes = dict(made)
        wrong = np.array(planes[plane])
        wrong.reshape(-1).view(np.uint8)[0] ^= 1
        planes[plane] = wrong
        verdict = assay.check(inputs, planes, spec)
        assert not verdict and verdict.first.plane == plane


def test_the_dumper_takes_slots(tmp_path):
    from assay.pack import Pack, PackError
    d = kernels.Dump(3)
    pack = Pack()
    pack.add_planes(d.line(), {**d.inputs(), **kernels.rounded_like_emulation(d)}, module="layer", role="attention")
    path = pack.write(str(tmp_path / "core.safetensors"))
    assert all(case.check() for case in assay.load(path))
    with pytest.raises(PackError, match="did you mean"):
        pack.add_planes(d.line(), {**d.inputs(), "outs": d.q}, module="other", role="attention")
    with pytest.raises(PackError, match="key of attention"):
        pack.add_planes(d.line(more="s.scal=3"), d.inputs(), module="other", role="attention")


# ---- what others dump: roundings of the emulation, with one mistake -------------------------------------------------

kCauses = {"s_scale": "attention.s_not_descaled", "unnormalised": "attention.unnormalised", "mask_early": "attention.mask_hides_own",
           "mask_late": "attention.mask_shows_next", "scale_twice": "attention.scale_twice", "do_by_o": "attention.do_by_o",
           "group": "attention.heads_wrap", "ds_for_dp": "attention.ds_for_dp"}
# alpha a power of two, and one that is not; heads of their own, and shared; a mask, and none.
kSizes = [dict(depth=16, causal=True), dict(depth=12, causal=False, batch=1, queries=6, keys=9), dict(depth=8, heads=6, kv_heads=3, causal=True, batch=1)]


def explained(d, planes, **more):
    return assay.explain(d.inputs(), planes, d.line(**more), budget_s=30)


@pytest.mark.parametrize("size", range(len(kSizes)))
def test_without_a_mistake_it_is_the_reference(size):
    d = kernels.Dump(11 + size, **kSizes[size])
    verdict = assay.check(d.inputs(), kernels.rounded_like_emulation(d), d.line())
    assert verdict, str(verdict)


@pytest.mark.parametrize("size", range(len(kSizes)))
@pytest.mark.parametrize("mistake", kCauses)
def test_a_mistake_is_named(mistake, size):
    if mistake.startswith("mask") and not kSizes[size]["causal"]:
        pytest.skip("a line without a mask has none to shift")
    d = kernels.Dump(21 + size, mistake, **kSizes[size])
    planes = kernels.rounded_like_emulation(d)
    found = explained(d, planes)
    assert found.verdict == "explained", str(found)
    assert [list(c.ids) for c in found.causes if c.exact] == [[kCauses[mistake]]], str(found)


@pytest.mark.parametrize("mistake", kCauses)
def test_two_mistakes_are_not_one(mistake):
    """Another mistake that no row makes, on top: nothing may be named for certain."""
    d = kernels.Dump(31, mistake, **kSizes[0])
    planes = kernels.rounded_like_emulation(d)
    out = np.array(planes["out"])
    out[..., 3] = -out[..., 3]
    found = explained(d, {**planes, "out": out})
    assert not any(c.exact for c in found.causes), str(found)


# ---- fused kernels: by the bound -------------------------------------------------------------------------------------

kOpen = "a fused kernel"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tile", [8, 16, 24])
def test_a_fused_kernel_lies_inside_the_bound(tile, causal):
    d = kernels.Inference(41, causal=causal)
    verdict = assay.check(d.inputs(), {"out": d.run(tile)}, d.line(), unpinned=kOpen)
    assert verdict, str(verdict)
    assert not assay.check(d.inputs(), {"out": d.run(tile)}, d.line())   # its bits are its own


@pytest.mark.parametrize("mistake, cause", [
    ("s_scale", "attention.s_not_descaled"), ("v_next", "attention.v_descale_next"), ("v_first", "attention.v_descale_first"),
    ("v_of_k", "attention.v_descale_of_k"), ("group", "attention.heads_wrap"), ("mask_late", "attention.mask_shows_next"),
    ("mask_early", "attention.mask_hides_own"), ("scale_twice", "attention.scale_twice")])
@pytest.mark.parametrize("seed", [51, 52, 53])
def test_a_mistake_of_a_fused_kernel(mistake, cause, seed):
    """Named, or among several that this input cannot tell apart; where the bound hides it nothing differs. Never another for certain."""
    d = kernels.Inference(seed, mistake, kv_heads=4, heads=8, keys=12, causal=mistake.startswith("mask"))
    planes = {"out": d.run()}
    found = assay.explain(d.inputs(), planes, d.line(), budget_s=30, unpinned=kOpen)
    exact = [list(c.ids) for c in found.causes if c.exact]
    assert found.verdict in ("equal", "unexplained", "partly") or [cause] in exact, str(found)
    if mistake in ("s_scale", "v_next", "v_of_k"):
        assert [cause] in exact, str(found)


def test_exact_rows_are_held_bit_for_bit():
    """Equal logits over 2^k keys: probabilities are exact, and so are sums of multiples of one power of two (S-116)."""
    d = kernels.Inference(61, keys=16, equal=True)
    out = d.run()
    assert assay.check(d.inputs(), {"out": out}, d.line(), unpinned=kOpen)
    wrong = np.array(out)
    wrong.reshape(-1).view(np.uint16)[7] ^= 1   # one last place, far inside the bound of other rows
    assert not assay.check(d.inputs(), {"out": wrong}, d.line(), unpinned=kOpen)


def test_a_dump_of_a_fused_kernel(tmp_path):
    from assay.pack import Pack
    from attention_dump import add_codes, add_core
    d, pack = kernels.Inference(71, causal=True), Pack(made_by="NumPy")
    add_codes(pack, d.codes["q"], d.codes["k"], d.codes["v"], [d.descales[x] for x in "qkv"], d.run(), module="flash", causal=True)
    e = kernels.Dump(72)
    add_core(pack, e.q, e.k, e.v, kernels.rounded_like_emulation(e), module="core", format="fp8_delayed", scales=e.scales, mask="causal", do=e.do, pinned=True)
    cases = {case.id: case.check() for case in assay.load(pack.write(str(tmp_path / "two.safetensors")))}
    assert len(cases) == 2 and all(cases.values()), [str(v) for v in cases.values()]
