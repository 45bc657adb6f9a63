#!/usr/bin/env python3
"""Kernels in Triton, written without sight of Assay's search, each with one slip (SLIP; without it all lines pass that it runs): of the second set of `ci/hunted`.

    tests/self/hunt/ptx/unseen_kernels.py [FOLDER]     compiles them again, without a GPU; needs `pip install triton` (3.9 made what is here). With a folder: the right ones, into it
"""
import pathlib
import sys

import triton
import triton.language as tl

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[3] / "fixtures/from_python"))
import assay_triton  # noqa: E402


@triton.jit
def e8m0_up(p):
    """The code of the least power of two that is not below p."""
    bits = p.to(tl.int32, bitcast=True)
    exponent = bits >> 23
    fraction = bits & 0x7FFFFF
    up = (fraction > 0) & ((exponent > 0) | (fraction > 0x400000))
    return tl.minimum(exponent + up.to(tl.int32), 254)


@triton.jit
def reciprocal_power(k):
    return tl.where(k == 254, 0x00400000, (254 - k) << 23).to(tl.float32, bitcast=True)


@triton.jit
def block_amax(b):
    return tl.max(tl.where(b == b, tl.abs(b), 0.0), axis=1)


@triton.jit
def tail_of_ones(x, data, scale, cols, pitch, TILE: tl.constexpr, SLIP: tl.constexpr):
    """MXFP8 whose masked load fills the places behind the last column with 1.0, so that the amax of a partial block is at least 1."""
    row = tl.program_id(0)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = at < cols
    if SLIP:
        v = tl.load(x + row * cols + at, mask, other=1.0).to(tl.float32)
    else:
        v = tl.load(x + row * cols + at, mask, other=0.0).to(tl.float32)
    b = tl.reshape(v, (TILE // 32, 32))
    k = e8m0_up(block_amax(b) * 0.002232142956927419)
    q = (b * tl.expand_dims(reciprocal_power(k), 1)).to(tl.float8e4nv)
    tl.store(data + row * cols + at, tl.reshape(q.to(tl.uint8, bitcast=True), (TILE,)), mask)
    block = tl.program_id(1) * (TILE // 32) + tl.arange(0, TILE // 32)
    tl.store(scale + row * pitch + block, k.to(tl.uint8), block * 32 < cols)


@triton.jit
def nibbles_swapped(x, data, scale, cols, bytes_of_row, pitch, TILE: tl.constexpr, SLIP: tl.constexpr):
    """MXFP4 whose element of even index is packed into the high half of its byte."""
    row = tl.program_id(0)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    v = tl.load(x + row * cols + at, at < cols, other=0.0).to(tl.float32)
    b = tl.reshape(v, (TILE // 32, 32))
    k = e8m0_up(tl.div_rn(block_amax(b), 6.0))
    y = b * tl.expand_dims(reciprocal_power(k), 1)
    a = tl.abs(y)
    code = (a > 0.25).to(tl.int32) + (a >= 0.75).to(tl.int32) + (a > 1.25).to(tl.int32) + (a >= 1.75).to(tl.int32)
    code += (a > 2.5).to(tl.int32) + (a >= 3.5).to(tl.int32) + (a > 5.0).to(tl.int32)
    code = tl.where(y == y, code | ((y.to(tl.int32, bitcast=True) >> 28) & 8), 7)
    even, odd = tl.split(tl.reshape(code, (TILE // 2, 2)))
    if SLIP:
        packed = even << 4 | odd
    else:
        packed = even | odd << 4
    to = tl.program_id(1) * (TILE // 2) + tl.arange(0, TILE // 2)
    tl.store(data + row * bytes_of_row + to, packed.to(tl.uint8), to < bytes_of_row)
    block = tl.program_id(1) * (TILE // 32) + tl.arange(0, TILE // 32)
    tl.store(scale + row * pitch + block, k.to(tl.uint8), block * 32 < cols)


@triton.jit
def max_240(x, data, scale, cols, pitch, SLIP: tl.constexpr):
    """Groups of 128 scaled to 240, the largest value of E4M3FNUZ, not to 448."""
    row = tl.program_id(0)
    group = tl.program_id(1)
    at = group * 128 + tl.arange(0, 128)
    mask = at < cols
    v = tl.load(x + row * cols + at, mask, other=0.0).to(tl.float32)
    amax = tl.max(tl.where(v == v, tl.abs(v), 0.0), axis=0)
    if SLIP:
        s = tl.div_rn(240.0, amax)
    else:
        s = tl.div_rn(448.0, amax)
    s = tl.minimum(s, 3.4028234663852886e38)
    s = tl.where((amax == 0.0) | (amax == float("inf")), 1.0, s)
    tl.store(data + row * cols + at, (v * s).to(tl.float8e4nv).to(tl.uint8, bitcast=True), mask)
    tl.store(scale + group * pitch + row, tl.div_rn(1.0, s))


@triton.jit
def unpadded_scales(codes, scale, y, rows, cols, pitch, SLIP: tl.constexpr):
    """A dequantize of 128x128 tiles whose scales are read with the pitch of a plane without padding."""
    tile_row = tl.program_id(0)
    tile_col = tl.program_id(1)
    if SLIP:
        s = tl.load(scale + tile_row * tl.cdiv(cols, 128) + tile_col)
    else:
        s = tl.load(scale + tile_row * pitch + tile_col)
    c = tile_col * 128 + tl.arange(0, 128)
    for i in range(0, 128):
        r = tile_row * 128 + i
        mask = (c < cols) & (r < rows)
        q = tl.load(codes + r * cols + c, mask, other=0).to(tl.float8e4nv, bitcast=True)
        tl.store(y + r * cols + c, (q.to(tl.float32) * s).to(tl.bfloat16), mask)


def main():
    slip, folder = (0, pathlib.Path(sys.argv[1])) if len(sys.argv) > 1 else (1, HERE)

    def write(kernel, types, values, grid, args, words, zeroed=()):
        compiled = assay_triton.compile(kernel, types, {**values, "SLIP": slip})
        assay_triton.write(compiled, folder / kernel.__name__, grid=grid, args=args, words=words, zeroed=list(zeroed))

    common = "scales=compact noop=none scale_from=x neg_zero=keep element_ties=even pre_round=none nan_code=positive"
    blocks = f"{common} nan_amax=ignore mx_scale=up mx_inf=max"
    pitch = "i32:row.scale_inv.padded_cols"
    tiles = "rows, cdiv(cols, 128)"
    write(tail_of_ones, {"x": "*bf16", "data": "*u8", "scale": "*u8", "cols": "i32", "pitch": "i32"}, {"TILE": 128}, tiles,
          ["x", "row.data", "row.scale_inv", "i32:cols", pitch],
          f"quantize mxfp8 bf16 dir=row element=e4m3 block=1x32 {blocks} element_overflow=saturate zero_amax=guarded", ["row.scale_inv"])
    write(nibbles_swapped, {"x": "*bf16", "data": "*u8", "scale": "*u8", "cols": "i32", "bytes_of_row": "i32", "pitch": "i32"}, {"TILE": 128}, tiles,
          ["x", "row.data", "row.scale_inv", "i32:cols", "i32:row.data.padded_cols / 2", pitch], f"quantize mxfp4 bf16 dir=row {blocks}", ["row.scale_inv"])
    write(max_240, {"x": "*bf16", "data": "*u8", "scale": "*fp32", "cols": "i32", "pitch": "i32"}, {}, tiles,
          ["x", "row.data", "row.scale_inv", "i32:cols", pitch],
          f"quantize fp8_block bf16 dir=row element=e4m3 block=1x128 {common} pow2=0 eps=0 inf_amax=unit scale_limit=f32_max element_overflow=saturate "
          "scale_order=encode_first scale_division=divide zero_amax=guarded", ["row.scale_inv"])
    write(unpadded_scales, {"codes": "*u8", "scale": "*fp32", "y": "*bf16", "rows": "i32", "cols": "i32", "pitch": "i32"}, {},
          "cdiv(rows, 128), cdiv(cols, 128)", ["row.data", "row.scale_inv", "y", "i32:rows", "i32:cols", pitch],
          "dequantize fp8_block dir=row element=e4m3 block=128x128 scales=compact out=bf16")


if __name__ == "__main__":
    main()
