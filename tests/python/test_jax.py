"""JAX on the CPU; skipped where it is not installed."""
import numpy as np
import pytest

import assay

jax = pytest.importorskip("jax")


def test_jax(x):
    j = jax.numpy.asarray(np.asarray(x))
    q, want = assay.quantize(j, "mxfp8", dir="both"), assay.quantize(x, "mxfp8", dir="both")
    assert all(isinstance(a, jax.Array) for a in q.values()) and q["row.data"].dtype == jax.numpy.float8_e4m3fn
    assert all(bytes(np.asarray(q[n]).view(np.uint8).reshape(-1)) == bytes(np.asarray(want[n]).view(np.uint8).reshape(-1)) for n in want)
    assert assay.check(j, q) and assay.check(j, q).copied_bytes == 0
    assert assay.quantize(j, "nvfp4", unpacked=True)["row.data"].shape == (64, 256)
    with pytest.raises(assay.AssayError, match="outside of jit"):
        jax.jit(lambda a: assay.quantize(a)["row.data"])(j)
