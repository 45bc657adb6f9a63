"""Functions as subjects: right ones pass, wrong ones are found, crashes and hangs cost one case."""
import math
import os
import time

import numpy as np
import pytest

import assay


def mxfp8(x, floor=False):
    """MXFP8 rows by the definition."""
    import ml_dtypes
    values = np.asarray(x).astype(np.float64)
    rows, cols = values.shape
    padded = np.zeros((rows, -(-cols // 32) * 32))
    padded[:, :cols] = values
    blocks = padded.reshape(rows, -1, 32)
    amax = np.abs(blocks).max(-1)
    if not np.isfinite(amax).all():
        raise NotImplementedError("NaN and infinities")
    exponent = np.full(amax.shape, -127)
    for place, a in np.ndenumerate(amax):
        if a > 0:
            exponent[place] = max(-127, math.floor(math.log2(a)) - 8 if floor else math.ceil(math.log2(a / 448)))
    scaled = np.clip(blocks / 2.0 ** exponent[..., None], -448, 448)
    codes = scaled.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).reshape(padded.shape)[:, :cols]
    return np.ascontiguousarray(codes), (exponent + 127).astype(np.uint8)


def floors(x):
    return mxfp8(x, True)


def crashes(x):
    if x.shape[0] == 3:
        os.abort()
    return mxfp8(x)


def hangs(x):
    if x.shape[0] == 3:
        time.sleep(600)
    return mxfp8(x)


def raises(x):
    raise IndexError("of a kernel")


def lines(*rows):
    return [f"quantize mxfp8 {n}x64 bf16 fill=normal seed={n}" for n in rows]


def test_right_and_wrong():
    with assay.Subject.from_callable(mxfp8, "mxfp8", out="numpy") as subject:
        report = subject.run(lines(1, 4, 33))
        assert report and report.counts == (3, 0, 0), str(report)
    with assay.Subject.from_callable(floors, "mxfp8", out="numpy") as subject:
        report = subject.run(lines(8, 16))
        assert not report and report.counts[1] == 2 and "FAILED" in str(report)
        assert subject.explain(report.failed[0].line).causes[0].ids == ("line.mx_scale=floor",)
        small = subject.shrink(report.failed[0].line)
        assert words(small.line)[0] * words(small.line)[1] < 8 * 64 and small.outcome == "failed" and not subject.check(small.line)


def words(text):
    return assay.line(text).shape


def test_suite():
    with assay.Subject.from_callable(mxfp8, "mxfp8", out="numpy") as subject:
        report = subject.run("smoke", most=60)
        assert report.counts[0] > 10, str(report)


@pytest.mark.parametrize("function, outcome", [(crashes, "crashed"), (hangs, "timeout")])
def test_crash_and_hang_cost_one_case(function, outcome):
    with assay.Subject.from_callable(function, "mxfp8", out="numpy", timeout=5) as subject:
        report = subject.run(lines(2, 3, 4))
    assert [r.outcome for r in report.results] == ["passed", outcome, "passed"], str(report)


def test_exceptions_and_functions_without_a_name():
    with assay.Subject.from_callable(raises, "mxfp8", out="numpy") as subject:
        result = subject.check(lines(2)[0])
        assert result.outcome == "raised" and "IndexError: of a kernel" in result.reason
    nameless = lambda x: mxfp8(x)   # noqa: E731
    inside = assay.Subject.from_callable(nameless, "mxfp8", out="numpy", isolate=False)
    assert inside.run(lines(2))
    try:
        import cloudpickle   # noqa: F401
    except ImportError:
        with pytest.raises(assay.AssayError, match="isolate=False"):
            assay.Subject.from_callable(nameless, "mxfp8")
    with pytest.raises(assay.AssayError, match="expected a function"):
        assay.Subject.from_callable(3)
    with pytest.raises(assay.LineError, match="found none"):
        inside.run(["cast e4m3 4x4 bf16"])
