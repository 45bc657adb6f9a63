"""Calls with arrays, specs and names of any kind give answers or the package's own errors: never another exception, never a crash.
ASSAY_FUZZ=<calls> makes more of them than the few thousand that the suite has time for."""
import collections
import os
import random
import warnings

import ml_dtypes
import numpy as np

import assay

try:
    import torch
except ImportError:
    torch = None

kDtypes = ["float32", "float16", "bfloat16", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float64", "int64", "bool", "complex64",
           "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "int4", "float8_e4m3fnuz", "object", "S3", "float6_e2m3fn"]
kSizes = [0, 1, 2, 3, 4, 16, 17, 31, 32, 33, 64]
kWords = ["mxfp8", "nvfp4", "mxfp4", "fp8_current", "fp8_delayed", "fp8_block", "identity", "mxfp8/nvfp4", "mxfp9", "", "cast", "e4m3", "e2m1",
          "quantize mxfp8 64x256 bf16", "dir=both", "dir=col", "element=e5m2", "scales=gemm", "block=32x32", "round=sr", "rng=1,2,3", "rng=1", "noop=1",
          "amax=3", "amax=nan", "scale=-1", "fill=ties", "fill=pack:x#y@z", "at=1,2", "=", "a=b", "row.element=e5m2", "x" * 200, "\0", "\n", "é",
          "groups=1,2", "four_over_six=mae", "flavour=te", "flavour=zzz", "arch=sm90", "scale_from=scale", "seed=99999999999999999999",
          "999999999999x9", "64x256", "role=linear/weight", "factory=mxfp8_factory", "auto", "pow2=1", "eps=inf"]
kPlanes = ["row.data", "row.scale_inv", "col.data", "col.scale_inv", "row.amax", "row.scale_gemm", "row.scale", "x", "y", "", "row.dta", "a.data",
           "data", "scale_inv", "noop", "row.given.scale_inv"]
kThings = [None, 1, 1.5, "s", [], {}, float("nan"), 1e300, -1, True, object()]


class Maker:
    """Arguments of one seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def array(self):
        rng, name = self.rng, self.rng.choice(kDtypes)
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        shape = tuple(rng.choice(kSizes) for _ in range(rng.choice([0, 1, 2, 2, 2, 2, 3, 4])))
        size = int(np.prod(shape))
        a = np.empty(shape, dtype)
        if size and not dtype.hasobject:
            raw = np.frombuffer(rng.randbytes(size * dtype.itemsize), np.uint8)
            a = (raw & 1 if name == "bool" else raw).view(dtype).reshape(shape)
        try:
            return self.changed(a)
        except (TypeError, ValueError, RuntimeError, IndexError, OverflowError, KeyError, BufferError):   # what a library cannot make
            return a

    def changed(self, a):
        rng = self.rng
        forms = [lambda: a[::-1], lambda: a[..., ::2], lambda: a.T, lambda: np.lib.stride_tricks.as_strided(a, (4, 32), (0, 0)) if a.size else a,
                 lambda: np.broadcast_to(a, (2, *a.shape)), lambda: a.astype(a.dtype.newbyteorder()), lambda: memoryview(a), lambda: a.tobytes(),
                 lambda: torch.from_numpy(np.ascontiguousarray(a).copy()) if torch else a, lambda: rng.choice(kThings), lambda: (a, a)]
        return rng.choice(forms)() if rng.random() < 0.6 else a

    def spec(self):
        return self.rng.choice([None, "mxfp8", "nvfp4", " ".join(self.rng.sample(kWords, self.rng.randint(1, 4)))])

    def outputs(self):
        kind = self.rng.random()
        if kind < 0.6:
            return {self.rng.choice(kPlanes): self.array() for _ in range(self.rng.randint(0, 4))}
        return (self.array(), self.array()) if kind < 0.8 else self.array()

    def case(self):
        """x and what should be its planes, some of them broken."""
        rng = self.rng
        x = assay.fill((rng.choice([1, 16, 33, 64]), rng.choice([1, 32, 64, 65])), rng.choice(["ties", "normal", "nonfinite"]), rng.randint(0, 9),
                       rng.choice(["bfloat16", "float32", "float16"]))
        q = assay.quantize(x, rng.choice(["mxfp8", "nvfp4", "mxfp4", "fp8_current", "fp8_block"]), dir=rng.choice(["row", "col", "both"]))
        planes = {n: np.array(q[n]) for n in q}
        for n, a in planes.items():
            if rng.random() < 0.3 and a.size:
                a.reshape(-1).view(np.uint8)[rng.randrange(a.nbytes)] ^= rng.randrange(256)
            if rng.random() < 0.1:
                planes[n] = a[: rng.randint(0, len(a))]
        return x, planes

    def call(self):
        rng = self.rng
        rng.choice([
            lambda: assay.quantize(self.array(), self.spec() or "mxfp8", dir=rng.choice(["row", "col", "both", "x"])),
            lambda: assay.check(self.array(), self.outputs(), self.spec()),
            lambda: assay.check(*self.case(), self.spec()),
            lambda: assay.coherence(self.outputs(), self.spec()),
            lambda: assay.assert_bitwise(self.array(), self.array(), encoding=rng.choice([None, None, "e4m3", "e2m1", "bf16", "zz"])),
            lambda: assay.trace(*self.case(), (rng.randint(-2, 70), rng.randint(-2, 70)), self.spec() or "mxfp8"),
            lambda: assay.identify(*self.case(), self.spec()) if rng.random() < 0.02 else None,
            lambda: assay.explain(*self.case(), self.spec(), budget_s=0.05) if rng.random() < 0.02 else None,
            lambda: assay.dequantize(self.outputs(), self.spec()),
            lambda: assay.cast(self.array(), rng.choice(["e4m3", "e5m2", "e2m1", "e8m0", "f32", "zz", ""])),
            lambda: assay.split(self.array(), self.spec() or "mxfp8", [rng.randint(-1, 40) for _ in range(rng.randint(0, 3))]),
            lambda: assay.hadamard(self.array()),
            lambda: assay.swizzle(self.array(), rng.choice(["mxfp8", "nvfp4", "mxfp4", "fp8_block"]), shape=(rng.choice([0, 1, 64, -1]), rng.choice([32, 33]))),
            lambda: assay.gemm(self.outputs(), self.outputs(), "a=mxfp8 b=mxfp8 4x8x32"),
            lambda: assay.run(" ".join(rng.sample(kWords, rng.randint(1, 5))), {rng.choice(kPlanes): self.array() for _ in range(rng.randint(0, 2))}),
            lambda: assay.fill((rng.randint(-1, 33), rng.randint(-1, 33)), rng.choice(["ties", "zz", "literal", "pack"]), rng.choice([1, -1, 2**64])),
        ])()


def test_calls_of_any_kind():
    seen, wrong = collections.Counter(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(int(os.environ.get("ASSAY_FUZZ", 4000))):
            try:
                Maker(seed).call()
                seen["answer"] += 1
            except (assay.AssayError, BufferError, AssertionError) as error:
                seen[type(error).__name__] += 1
            except Exception as error:   # noqa: BLE001
                wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
    assert min(seen[n] for n in ("answer", "PlaneError", "LineError", "UnsupportedEncoding")) > 100, seen
