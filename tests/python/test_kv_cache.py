"""KV caches: the dumper's packs of what vLLM and FlashInfer write, by their formulas in NumPy, judged; with one mistake each, named."""
import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest

import assay

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "fixtures/from_python"))
bf16, e4m3, f32 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32
kTokens, kHeads, kSize = 12, 4, 64


def drawn(*shape, seed=1):
    draw = np.random.default_rng(seed)
    return (draw.standard_normal(shape) * 10.0 ** draw.uniform(-2, 1, (*shape[:-1], 1))).astype(bf16)


def cast(v):
    return np.clip(v, -448, 448).astype(e4m3)


def given(x, scales):
    return cast(x.astype(f32) / scales)


def mla(latent, rotary):
    """Records of 656 bytes."""
    tiles = latent.astype(f32).reshape(len(latent), -1, 128)
    scales = np.maximum(np.abs(tiles).max(-1, keepdims=True) / f32(448), f32(2.0**-126))
    parts = (cast(tiles / scales).reshape(len(latent), -1), scales[..., 0], rotary)
    return np.concatenate([np.ascontiguousarray(p).view(np.uint8).reshape(len(latent), -1) for p in parts], axis=1)


def nvfp4(x, p):
    blocks = x.astype(f32).reshape(-1, 16)
    scales = np.clip(np.abs(blocks).max(-1, keepdims=True) / (f32(6) * p), 0, 448).astype(e4m3)
    value = scales.astype(f32)
    with np.errstate(divide="ignore"):
        factor = np.where(value > 0, f32(1) / (value * p), f32(0))
    codes = np.clip(blocks * factor, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8).reshape(*x.shape[:2], -1)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales.reshape(*x.shape[:2], -1)


def judged(pack, tmp_path):
    return {case.id: case for case in assay.load(pack.write(str(tmp_path / "cache.safetensors")))}


def test_every_cache(tmp_path):
    from assay.pack import Pack
    from kv_cache_dump import add_given, add_mla, add_nvfp4, add_token_head
    pack, x = Pack(made_by="NumPy"), drawn(kTokens, kHeads, kSize)
    scale = f32(np.abs(x.astype(f32)).max() / 400)
    heads = (np.abs(x.astype(f32)).max((0, 2)) / f32(400)).astype(f32)
    add_given(pack, x, given(x, scale), scale, module="tensor")
    add_given(pack, x, given(x, heads[:, None]), heads, module="head")
    scales = np.maximum(np.abs(x.astype(f32)).max(-1) / f32(448), f32(1e-6))
    add_token_head(pack, x, cast(x.astype(f32) * (f32(1) / scales)[..., None]), scales, module="token_head")
    latent, rotary = drawn(kTokens, 512, seed=2), drawn(kTokens, 64, seed=3)
    add_mla(pack, latent, rotary, mla(latent, rotary), module="mla")
    p = f32(np.abs(x.astype(f32)).max() / 2688)
    add_nvfp4(pack, x, *nvfp4(x, p), p, module="nvfp4")
    verdicts = {name: case.check() for name, case in judged(pack, tmp_path).items()}
    assert len(verdicts) == 6 and all(verdicts.values()), [str(v) for v in verdicts.values() if not v]


def test_a_wrong_record_is_found(tmp_path):
    from assay.pack import Pack
    from kv_cache_dump import add_mla
    pack, latent, rotary = Pack(made_by="NumPy"), drawn(kTokens, 512, seed=2), drawn(kTokens, 64, seed=3)
    records = mla(latent, rotary)
    records[3, 512 + 4], records[5, 600] = records[3, 512 + 4] ^ 1, records[5, 600] ^ 1
    add_mla(pack, latent, rotary, records, module="mla")
    for name, case in judged(pack, tmp_path).items():
        verdict = case.check()
        assert not verdict and ("row.data" if "rotary" in name else "row.scale_inv") in str(verdict), str(verdict)


def test_a_scale_that_multiplies_is_named(tmp_path):
    from assay.pack import Pack
    from kv_cache_dump import add_given
    pack, x, scale = Pack(made_by="NumPy"), drawn(kTokens, kHeads, kSize), f32(7)
    x[:, 0, :16] = bf16(10.9375) * 2.0 ** np.arange(-8, 8).astype(f32)   # 7 times a tie; fl(1 / 7) is above 1 / 7
    add_given(pack, x, cast(x.astype(f32) * (f32(1) / scale)), scale, module="reciprocal")
    found = next(iter(judged(pack, tmp_path).values())).explain(budget_s=30)
    assert any("line.scale_order=decode_first" in c.ids for c in found.causes if c.exact), str(found)


def test_the_scale_of_another_head_is_named(tmp_path):
    from assay.pack import Pack
    from kv_cache_dump import add_given
    pack, x = Pack(made_by="NumPy"), drawn(kTokens, kHeads, kSize)
    heads = (np.abs(x.astype(f32)).max((0, 2)) / f32(400)).astype(f32)
    add_given(pack, x, given(x, np.roll(heads, 1)[:, None]), heads, module="previous")
    found = next(iter(judged(pack, tmp_path).values())).explain(budget_s=30)
    assert [list(c.ids) for c in found.causes if c.exact] == [["scaled.given_of_previous_row"]], str(found)


def test_what_does_not_fit_is_refused():
    from assay.pack import Pack, PackError as Refused
    from kv_cache_dump import PackError, add_given, add_mla  # of the one-file dumper, which lies beside it
    pack, x = Pack(made_by="NumPy"), drawn(kTokens, kHeads, kSize)
    with pytest.raises(PackError, match="one of each of the 4 heads, found 3"):
        add_given(pack, x, given(x, f32(1)), np.ones(3, f32), module="m")
    with pytest.raises(PackError, match="expected bfloat16 or float16, found float32"):
        add_given(pack, x.astype(f32), given(x, f32(1)), f32(1), module="m")
    latent, rotary = drawn(kTokens, 512), drawn(kTokens, 64)
    for records, found in ((np.zeros((kTokens, 640), np.uint8), r"row.record: expected 7872 elements, found 7680"),
                           (np.zeros((kTokens, 656), np.int16), "expected bytes"), (np.zeros(kTokens * 656, np.uint8), r"found uint8 \[7872\]")):
        with pytest.raises((PackError, Refused), match=found):
            add_mla(pack, latent, rotary, records, module="m")
    for line in ("quantize fp8_block 12x512 bf16 dir=row block=128x128", "quantize fp8_block 12x512 bf16", "quantize mxfp8 12x512 bf16 dir=row", "cast e4m3 12x512 bf16"):
        with pytest.raises(Refused, match="row.record: expected a line of E4M3 codes"):
            pack.add_planes(line, {"x": latent, "row.record": np.zeros((kTokens, 656), np.uint8)}, module="m")
    assert pack.add_planes("quantize fp8_block 12x512 bf16 dir=row", {"x": latent, "row.record": np.zeros((kTokens, 528), np.uint8)}, module="m")  # no values behind the scales
