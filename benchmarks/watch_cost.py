#!/usr/bin/env python3
"""What assay.torch.watch costs a training loop with torchao's MXFP8Linear on the CPU.

    python3 benchmarks/watch_cost.py [--steps 300] [--width 512] [--tokens 1024] [--layers 4] [--every 100]

Two equal models train in turn, step by step, one of them watched. Times are the CPU's time of the training thread, PyTorch on one thread, so that
other work on the machine counts little; the time of the writing thread is told beside it. A sampled step is compared with the median of the others.
"""
import argparse
import statistics
import tempfile
import time

import torch
from torchao.prototype.moe_training.mxfp8_linear import MXFP8Linear
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.quantization.quantize_.common import KernelPreference

import assay


def model_of(width, layers):
    torch.manual_seed(1)
    how = {"kernel_preference": KernelPreference.EMULATED, "wgrad_with_hp": True, "scale_calculation_mode": ScaleCalculationMode.RCEIL}
    model = torch.nn.Sequential(*(m for _ in range(layers) for m in (MXFP8Linear(width, width, dtype=torch.bfloat16, **how), torch.nn.GELU())))
    return model, torch.optim.AdamW(model.parameters(), 1e-4)


def step(model, optimizer, x):
    start = time.thread_time()
    optimizer.zero_grad()
    model(x).float().square().mean().backward()
    optimizer.step()
    return time.thread_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("steps", 300), ("width", 512), ("tokens", 1024), ("layers", 4), ("every", 100)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.randn(args.tokens, args.width, dtype=torch.bfloat16)
    plain, watched = model_of(args.width, args.layers), model_of(args.width, args.layers)
    for pair in (plain, watched):
        step(*pair, x)   # warm
    with tempfile.TemporaryDirectory() as folder, assay.torch.watch(watched[0], every=args.every, to=folder) as watch:
        times = [(step(*plain, x), step(*watched, x)) for _ in range(args.steps)]
        watch.close()
        writer = watch.writer_seconds
    without = statistics.median(p for p, _ in times)
    # The step behind a sampled one takes the hooks away and hands the copies over: it belongs to the sample.
    sampled = [w for n, (_, w) in enumerate(times) if n % args.every <= 1 % args.every]
    others = [w for n, (_, w) in enumerate(times) if n % args.every > 1 % args.every]
    extra = sum(w - statistics.median(others) for w in sampled) / max(len(watch.written), 1)
    idle = statistics.median(others) - without
    print(f"step                 {1e3 * without:9.3f} ms without watch, {1e3 * statistics.median(others):9.3f} ms with it and no sample ({100 * idle / without:+.2f} %)")
    print(f"sampled step         {1e3 * extra:+9.3f} ms ({100 * extra / without:.1f} % of a step); {watch.cases} tensors in {len(watch.written)} packs, {watch.dropped} dropped")
    print(f"every {args.every:<5} steps    {100 * extra / args.every / without:9.3f} % of a step on the training thread; "
          f"{100 * writer / max(args.steps, 1) / without:.3f} % on the writing thread")


if __name__ == "__main__":
    main()
