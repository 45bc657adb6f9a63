"""KV caches a third time, in plain Python, by the formulas of the kernels that write them (docs/flavours.md): vLLM's MLA record and its indexer's cache, given scales of heads,
and FlashInfer's NVFP4. Every step is rounded to binary32 by ctypes. The planes go into a pack, which `assay check` judges on the reference; a corrupted copy must fail.

    kv_cache_witness.py <program>

The last line is `N passed, N failed, 0 skipped`, in lines. The exit status is 1 if one failed.
"""
import ctypes
import math
import random
import struct

from judged_packs import judge


def f32(v):
    return ctypes.c_float(v).value


def bits(v):
    return struct.unpack("<I", struct.pack("<f", v))[0]


def bf16(v):
    """v as the nearest bf16 value; finite and ordinary."""
    word = bits(v)
    return struct.unpack("<f", struct.pack("<I", (word + 0x7FFF + (word >> 16 & 1)) >> 16 << 16))[0]


def coded(v, mantissa, least, most):
    """The code of the nearest value of a small float, ties to even, saturating: exponents from `least`, `mantissa` bits."""
    sign = 1 if math.copysign(1, v) < 0 else 0
    a = abs(v)
    exponent = max(math.frexp(a)[1] - 1, least) if a else least
    step = 2.0 ** (exponent - mantissa)
    a = min(round(a / step) * step, most) if a != math.inf else most   # round() takes ties to even
    exponent = max(math.frexp(a)[1] - 1, least) if a else least
    return sign, int((exponent - least) * (1 << mantissa) + a / 2.0 ** (exponent - mantissa))


def e4m3(v):
    sign, code = coded(v, 3, -6, 448.0)
    return sign << 7 | code


def e4m3_value(code):
    exponent, fraction = code >> 3 & 15, code & 7
    return math.ldexp(fraction / 8 + (exponent > 0), max(exponent, 1) - 7) * (-1 if code & 0x80 else 1)


def e2m1(v):
    sign, code = coded(v, 1, 0, 6.0)
    return sign << 3 | code


def matrix(rows, cols, seed):
    """Rows of very different sizes, with outliers, zeros of both signs and a row of zeros."""
    source = random.Random(seed)
    out = []
    for r in range(rows):
        size = 10.0 ** source.uniform(-8, 2)
        row = [bf16(source.gauss(0, size) * (40 if source.random() < 0.02 else 1)) for _ in range(cols)]
        row[source.randrange(cols)] = -0.0
        out.append([source.choice([0.0, -0.0]) for _ in range(cols)] if r == rows - 1 else row)
    return out


def flat(rows):
    return [v for row in rows for v in row]


def plane_of(x):
    return "bf16", [bits(v) >> 16 for v in flat(x)]


def mla(name, least_amax, least_scale, keys, seed):
    """A record of a token: 512 codes, 4 scales, 64 rotary values. What follows is read out of such records."""
    kTokens, kRank, kRotary, kTile = 6, 512, 64, 128
    x, rotary = matrix(kTokens, kRank, seed), matrix(kTokens, kRotary, seed + 1)
    records = []
    for token in range(kTokens):
        codes, scales = b"", b""
        for t in range(kRank // kTile):
            tile = x[token][t * kTile:(t + 1) * kTile]
            scale = max(f32(max(max(abs(v) for v in tile), least_amax) / 448.0), least_scale)
            scales += struct.pack("<f", scale)
            codes += bytes(e4m3(f32(v / scale)) for v in tile)
        records.append(codes + scales + b"".join(struct.pack("<H", bits(v) >> 16) for v in rotary[token]))
    assert all(len(r) == 656 for r in records)
    codes = [c for r in records for c in r[:512]]
    scales = [struct.unpack_from("<I", r, 512 + 4 * t)[0] for t in range(4) for r in records]   # N9.4: blocks outside, rows inside
    return [(f"quantize fp8_block {kTokens}x{kRank} bf16 dir=row {keys}", {"x": plane_of(x), "row.scale_inv": ("f32", scales), "row.data": ("e4m3", codes)}, name),
            (f"quantize identity {kTokens}x{kRotary} bf16 dir=row",
             {"x": plane_of(rotary), "row.data": ("bf16", [struct.unpack_from("<H", r, 528 + 2 * i)[0] for r in records for i in range(kRotary)])}, f"{name}, rotary values")]


def given_of_heads(seed):
    """Rows are heads, each divided by the scale that it is given."""
    kHeads, kElements = 5, 96
    x = matrix(kHeads, kElements, seed)
    scales = [f32(max(max(abs(v) for v in row), 1e-6) / 448 * random.Random(seed + h).uniform(0.7, 1.3)) for h, row in enumerate(x)]
    words = [bits(s) for s in scales]
    codes = [e4m3(f32(v / s)) for row, s in zip(x, scales) for v in row]
    amax = [bits(max(abs(v) for v in row)) for row in x]
    return [(f"quantize fp8_delayed {kHeads}x{kElements} bf16 dir=row row_scaled=1 flavour=vllm.kv_cache",
             {"x": plane_of(x), "row.given.scale": ("f32", words), "row.prior.amax": ("f32", [0] * kHeads), "row.amax": ("f32", amax), "row.scale_inv": ("f32", words), "row.data": ("e4m3", codes)},
             "given scales of heads")]


def nvfp4(seed):
    """nvfp4_append_quantize_block: the tensor's decode scale is given."""
    kTokens, kElements = 9, 128
    x = matrix(kTokens, kElements, seed)
    p = f32(max(abs(v) for v in flat(x)) / 2688 * 0.9)
    scales, codes = [], []
    for row in x:
        nibbles, row_scales = [], []
        for b in range(0, kElements, 16):
            block = row[b:b + 16]
            amax = max(abs(v) for v in block)
            code = e4m3(f32(amax / f32(6.0 * p)) if amax > 0 else 0.0)
            value = e4m3_value(code)
            multiplier = f32(1.0 / f32(value * p)) if amax > 0 and value > 0 else 0.0
            row_scales.append(code)
            nibbles += [e2m1(f32(v * multiplier)) for v in block]
        scales.append(row_scales)
        codes += [low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2])]
    return [(f"quantize nvfp4 {kTokens}x{kElements} bf16 dir=row flavour=flashinfer.kv_cache amax={p!r}",
             {"x": plane_of(x), "row.scale_inv": ("e4m3", flat(scales)), "row.data": ("u8", codes)}, "FlashInfer's NVFP4")]


def packs():
    """(line, planes, name) of each case."""
    for seed in (1, 2, 3):
        yield from mla("vLLM's MLA record", 0.0, 2.0**-126, "flavour=vllm.kv_cache_mla", seed)
        yield from mla("the indexer's cache", f32(1e-4), 0.0, "flavour=vllm.kv_cache_indexer", 10 + seed)[:1]
        yield from given_of_heads(20 + seed)
        yield from nvfp4(30 + seed)


if __name__ == "__main__":
    judge(packs(), "row.data")
