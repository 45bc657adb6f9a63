#!/usr/bin/env python3
"""How fast the reference quantizes on one core, beside a copy of the same bytes and torchao's eager code, in one run.

    python3 benchmarks/reference_speed.py [--rows 4096] [--cols 4096] [--repeats 5]

Each repeat runs all of them in turn, on one thread, so that what else the machine does falls on all; the best of each counts. The table gives million elements
per second of processor time: what waits for a busy processor does not count. "same" says how many of torchao's scales and codes are the reference's: a time for other bits is no comparison. Without PyTorch and torchao their
columns say so. The source is bf16.
"""
import argparse
import functools
import time

import numpy as np

import assay

# Each spec, its direction and torchao's choices for it; only columns are rotated.
kSpecs = (("mxfp8", "row", "ocp"), ("nvfp4", "row", "torchao.nvfp4"), ("nvfp4 rht=1 round=sr rng=7,0,0", "col", None))


def torchao_calls():
    """{spec: function of a bf16 tensor that gives (codes, scales) as bytes}, and what to say where there is none."""
    try:
        import torch
        from torchao.prototype.mx_formats.mx_tensor import to_mx
        from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize
    except ImportError as missing:
        return {}, f"not here ({missing.name or missing})"
    torch.set_num_threads(1)

    def mxfp8(x):
        scales, codes = to_mx(x, torch.float8_e4m3fn, 32)
        return codes.view(torch.uint8), scales.view(torch.uint8)

    def nvfp4(x):
        amax = x.abs().max().to(torch.float32)
        scales, codes = nvfp4_quantize(x, 16, amax / (448.0 * 6.0))
        return codes.view(torch.uint8), scales.view(torch.uint8)
    return {"mxfp8": mxfp8, "nvfp4": nvfp4}, "torchao has no such call"


def share_of_equal(made, theirs):
    """The share of codes and scales that are the same bytes, as text."""
    ours, other = ([np.asarray(a).view(np.uint8).reshape(-1) for a in planes]
                   for planes in ((made["row.data"], made["row.scale_inv"]), [t.contiguous().numpy() for t in theirs]))
    codes, scales = (np.mean(a == b) if a.size == b.size else 0 for a, b in zip(ours, other))
    exchanged = np.mean(ours[0] == (other[0] >> 4 | other[0] << 4)) if ours[0].size == other[0].size else 0
    order = " with the two codes of a byte exchanged" if exchanged > codes else ""
    return f"codes {100 * max(codes, exchanged):.2f} %{order}, scales {100 * scales:.2f} %"


def seconds(function):
    start = time.process_time()   # of all threads: the reference may run on one of its own
    out = function()
    return time.process_time() - start, out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rows", 4096), ("cols", 4096), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    calls, absent = torchao_calls()
    x = assay.fill((args.rows, args.cols), "normal", 1)
    if calls:
        import torch
        x = torch.from_numpy(np.asarray(x).view(np.uint16).copy()).view(torch.bfloat16)
    count = args.rows * args.cols
    print(f"{args.rows}x{args.cols} bf16, one thread, million elements per second of processor time")
    print(f"{'spec':<36} {'reference':>10} {'copy':>10} {'torchao':>10}   same")
    for spec, direction, flavour in kSpecs:
        quantize = functools.partial(assay.quantize, x, spec, dir=direction, flavour=flavour, out="numpy", threads=1, exact=True)
        made = quantize()
        # As many bytes as the quantize reads and writes, half of them read.
        moved = 2 * count + sum(np.asarray(made[n]).nbytes for n in made)
        source, target = np.ones(moved // 2, np.uint8), np.empty(moved // 2, np.uint8)
        theirs = calls.get(spec)
        best = {"reference": np.inf, "copy": np.inf, "torchao": np.inf}
        for _ in range(args.repeats):
            best["reference"] = min(best["reference"], seconds(quantize)[0])
            best["copy"] = min(best["copy"], seconds(lambda: np.copyto(target, source))[0])
            if theirs:
                took, given = seconds(lambda: theirs(x))
                best["torchao"] = min(best["torchao"], took)
        rate = {name: count / took / 1e6 for name, took in best.items()}
        other = f"{rate['torchao']:>10.1f}" if theirs else f"{'-':>10}"
        print(f"{spec + ' ' + direction:<36} {rate['reference']:>10.1f} {rate['copy']:>10.1f} {other}   {share_of_equal(made, given) if theirs else absent}", flush=True)


if __name__ == "__main__":
    main()
