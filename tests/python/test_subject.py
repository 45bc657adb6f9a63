"""Functions as subjects: right ones pass, wrong ones are found, crashes and hangs cost one case."""
import math
import os
import pathlib
import subprocess
import sys
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


def floors_until_mended(x):
    return mxfp8(x, not pathlib.Path(os.environ["MENDED"]).exists())


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


def sees_the_line(x, text):
    return assay.quantize(x, " ".join(text.split()[1:2] + text.split()[4:]))


def gives_three(x):
    return (*mxfp8(x), "a third")


def test_a_function_may_see_the_line_and_has_to_return_planes():
    with assay.Subject.from_callable(sees_the_line, "mxfp8 element=e5m2", out="numpy") as subject:
        assert subject.check("quantize mxfp8 4x64 bf16 dir=row element=e5m2").ok
    for isolate in (True, False):
        with assay.Subject.from_callable(gives_three, "mxfp8", out="numpy", isolate=isolate) as subject:
            result = subject.check(lines(2)[0])
            assert not result.ok and "found 3 values" in result.reason
    with assay.Subject.from_callable(raises, "mxfp8", out="numpy") as subject:
        assert "(test_subject.py, line " in subject.check(lines(2)[0]).reason


def test_the_start_of_an_interpreter_is_no_part_of_a_case(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text("import time\nimport assay\ntime.sleep(4)\n\ndef quantize(x):\n    return assay.quantize(x)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import slow_to_import
    with assay.Subject.from_callable(slow_to_import.quantize, "mxfp8", out="numpy", timeout=3) as subject:
        assert [subject.check(text).outcome for text in lines(2, 3)] == ["passed", "passed"]


def test_a_wrong_spec_or_line_is_an_error():
    for spec in ("mxfp9", "mxfp8 elment=e5m2", "cast e4m3"):
        with pytest.raises(assay.LineError):
            assay.Subject.from_callable(mxfp8, spec)
    with assay.Subject.from_callable(mxfp8, "mxfp8", out="numpy") as subject, pytest.raises(assay.LineError, match="shape"):
        subject.check("quantize mxfp8 64x")


def test_the_interpreter_may_end_with_an_open_subject(tmp_path):
    """The reader of the worker's errors is a daemon thread: what it reads must not be closed when threads no longer run."""
    (tmp_path / "answers.py").write_text("import assay\n\ndef quantize(x):\n    return assay.quantize(x)\n")
    script = "import assay, answers\nkept = assay.Subject.from_callable(answers.quantize, 'mxfp8', out='numpy')\n" \
             "print(kept.check('quantize mxfp8 2x32 bf16').outcome)\nkept = [kept]\nkept.append(kept)\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "passed\n", "")


@pytest.mark.skipif(not (pathlib.Path(assay.__file__).parent / "bin/assay").is_file(), reason="the package has no program beside it")
def test_hunt(tmp_path, monkeypatch):
    mended = tmp_path / "mended"
    monkeypatch.setenv("MENDED", str(mended))
    with assay.Subject.from_callable(floors_until_mended, "mxfp8 dir=row", out="numpy") as subject:
        report = subject.hunt(0.1, to=tmp_path / "found")
        assert not report and any("floored exponent of the amax" in r.reason for r in report.results), str(report)
        assert not subject.check(report.results[0].line) and (tmp_path / "found/found.cases").is_file()
        again = subject.hunt(0.001, to=tmp_path / "found")
        assert not again and again.results[0] == report.results[0], str(again)
        mended.touch()
        assert subject.hunt(0.001, to=tmp_path / "found").results == [], "what was found before passes now"
    with pytest.raises(assay.AssayError, match="put it into a module"):
        assay.Subject.from_callable(lambda x: mxfp8(x), "mxfp8", isolate=False).hunt()
