"""The lines whose launches Nsight Compute counts (ci/gpu, benchmarks/counters_beside_gpu.py)."""
import subprocess

# Large enough that no launch is mostly its start, and small enough to be run again for each group of counters.
kCountedShape = "2560x4096"


def counted_lines(program):
    """Those of the suite `model` that quantize or dequantize one tensor, on a smaller one."""
    listed = subprocess.run([program, "list", "model"], capture_output=True, text=True, check=True).stdout
    return [line.replace("16384x16384", kCountedShape) for line in listed.splitlines() if line.startswith(("quantize", "dequantize"))]
