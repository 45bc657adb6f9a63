#!/usr/bin/env python3
"""Quantizers in Triton with one planted bug each, for `assay hunt`. Each is of a kind that users have met; its docstring names the public thread.

    tests/self/hunt/ptx/planted_kernels.py     compiles them again, without a GPU; needs `pip install triton` (3.9 made what is here)

They are right otherwise: what they import is what docs/triton.md found equal to the reference.
"""
import pathlib
import sys

import triton
import triton.language as tl

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parents[3] / "fixtures"
sys.path += [str(FIXTURES / "triton"), str(FIXTURES / "from_python")]
import assay_triton  # noqa: E402
import make  # noqa: E402
from fp8_kernels import store_fp8  # noqa: E402
from mx_kernels import blocks_of_row, e2m1_of_bits, multiplier, put_row, scale_up, swizzled  # noqa: E402


@triton.jit
def ties_up(x, data, scale, cols, bytes_of_row, pitch, TILE: tl.constexpr):
    """MXFP4 whose halves go away from zero, by a rule of before triton-lang/triton#8110."""
    row = tl.program_id(0)
    blocks = blocks_of_row(x, row, tl.program_id(1) * TILE + tl.arange(0, TILE), cols, TILE)
    bits = (tl.maximum(tl.max(tl.abs(blocks), axis=1), 0.0) * 0.16666666666666666).to(tl.uint32, bitcast=True)
    up = tl.where(bits >> 23 == 0, bits > 0x400000, bits & 0x7FFFFF != 0)
    code = tl.minimum((bits >> 23) + up.to(tl.uint32), 254)
    low, high = tl.split(tl.reshape(e2m1_of_bits(blocks * multiplier(code)[:, None]), (TILE // 2, 2)))
    at = tl.program_id(1) * (TILE // 2) + tl.arange(0, TILE // 2)
    tl.store(data + row * bytes_of_row + at, (low | high << 4).to(tl.uint8), mask=at < bytes_of_row)
    block = tl.program_id(1) * (TILE // 32) + tl.arange(0, TILE // 32)
    tl.store(scale + row * pitch + block, code.to(tl.uint8), mask=block * 32 < cols)


@triton.jit
def swizzle_floor(x, data, scale, rows, cols, TILE: tl.constexpr):
    """MXFP8 whose offsets into the scales for the GEMM count whole tiles alone (flashinfer-ai/flashinfer#2025)."""
    row = tl.program_id(0)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    blocks = blocks_of_row(x, row, at, cols, TILE)
    code = scale_up(tl.maximum(tl.max(tl.abs(blocks), axis=1), 0.0))
    q = tl.reshape(blocks * multiplier(code)[:, None], (TILE,)).to(tl.float8e4nv)
    tl.store(data + row * cols + at, q.to(tl.uint8, bitcast=True), mask=at < cols)
    block = tl.program_id(1) * (TILE // 32) + tl.arange(0, TILE // 32)
    tl.store(scale + swizzled(row, block, cols // 128), code.to(tl.uint8), mask=block * 32 < cols)


@triton.jit
def always_up(x, data, scale, cols, pitch, TILE: tl.constexpr):
    """MXFP8 whose scale is raised also where amax / 448 is a power of two already (pytorch/ao#2035)."""
    row = tl.program_id(0)
    blocks = blocks_of_row(x, row, tl.program_id(1) * TILE + tl.arange(0, TILE), cols, TILE)
    amax = tl.maximum(tl.max(tl.abs(blocks), axis=1), 0.0)
    bits = (amax * 0.002232142857142857).to(tl.uint32, bitcast=True)
    code = tl.where(bits == 0, 0, tl.minimum((bits >> 23) + 1, 254))
    put_row(blocks, code, multiplier(code), data, scale, row, cols, pitch, TILE)


@triton.jit
def scale_after(x, data, scale, cols, pitch):
    """Groups of 128 whose scale is made a power of two only after the elements were quantized (huggingface/transformers#47030)."""
    row = tl.program_id(0)
    at = tl.program_id(1) * 128 + tl.arange(0, 128)
    v = tl.load(x + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
    a = tl.maximum(tl.max(tl.abs(v)), 0.0)
    s = tl.minimum(tl.div_rn(448.0, a), 3.4028234663852886e38)
    s = tl.where((a == 0) | (a == float("inf")), 1.0, s)
    store_fp8(data, row * cols + at, v * s, at < cols)
    power = (s.to(tl.uint32, bitcast=True) & 0xFF800000).to(tl.float32, bitcast=True)
    tl.store(scale + tl.program_id(1) * pitch + row, tl.div_rn(1.0, power))


def main():
    rows = ["x", "row.data", "row.scale_inv", "i32:cols", make.kScales]
    packed = ["x", "row.data", "row.scale_inv", "i32:cols", make.kPacked, make.kScales]
    write = assay_triton.write
    write(make.compiled(ties_up, make.kTile), HERE / "ties_up", make.kTiles, packed, "quantize mxfp4 bf16 dir=row scales=compact", ["row.scale_inv"])
    write(make.compiled(swizzle_floor, make.kTile), HERE / "swizzle_floor", make.kTiles, ["x", "row.data", "row.scale_gemm", "i32:rows", "i32:cols"],
          "quantize mxfp8 bf16 dir=row scales=gemm", ["row.scale_gemm"])
    write(make.compiled(always_up, make.kTile), HERE / "always_up", make.kTiles, rows, "quantize mxfp8 bf16 dir=row", ["row.scale_inv"])
    write(make.compiled(scale_after, **make.kFloats), HERE / "scale_after", make.kTiles, rows, "quantize fp8_block bf16 dir=row block=1x128 pow2=1", ["row.scale_inv"])


if __name__ == "__main__":
    main()
