"""Arrays of every kind: what is taken, what is refused and how, what is copied; nothing is written."""
import array
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import assay
from conftest import OnlyDlpack


def raw(a):
    return bytes(np.asarray(a).reshape(-1).view(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sources(dtype):
    x = assay.fill((32, 64), "normal", 1, dtype)
    assert x.dtype == np.dtype(getattr(ml_dtypes, dtype, dtype)) and assay.check(x, assay.quantize(x))


def test_bits_of_a_source(x):
    bits = x.view(np.uint16)
    assert raw(assay.quantize(bits, x_dtype="bf16")["row.data"]) == raw(assay.quantize(x)["row.data"])
    with pytest.raises(assay.UnsupportedEncoding, match="x_dtype"):
        assay.quantize(bits)
    with pytest.raises(assay.PlaneError, match="x_dtype"):
        assay.quantize(bits, x_dtype="f32")


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex64", "object", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4", "int4", "datetime64[s]"])
def test_refused_by_name(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    with pytest.raises(assay.UnsupportedEncoding, match="encoding not judged") as error:
        assay.quantize(np.zeros((4, 32), kind))
    assert isinstance(error.value, (TypeError,)) and isinstance(error.value, assay.AssayError) and isinstance(error.value, ValueError)


def test_strided_views_are_copied_and_counted():
    wide = assay.fill((64, 512), "normal", 1)
    wide.setflags(write=False)
    for view in (wide[:, ::2], wide[::-1, :256], wide[:, :256]):
        want = assay.quantize(np.ascontiguousarray(view))
        q = assay.quantize(view)
        assert q.copied_bytes == view.nbytes and raw(q["row.data"]) == raw(want["row.data"])
        with pytest.raises(BufferError, match="not contiguous"):
            assay.quantize(view, copy=False)
    assert assay.quantize(wide, copy=False).copied_bytes == 0


def test_inputs_are_not_written(x):
    before, q = raw(x), assay.quantize(x, "nvfp4", dir="both")
    planes = {n: np.array(q[n]) for n in q}
    kept = {n: raw(a) for n, a in planes.items()}
    for a in (x, *planes.values()):
        a.setflags(write=False)
    assay.check(x, planes, "nvfp4", cause=True)
    assay.identify(x, planes, "nvfp4")
    assay.explain(x, planes, "nvfp4")
    assert raw(x) == before and {n: raw(a) for n, a in planes.items()} == kept


def test_other_byte_order_and_unaligned(x):
    f32 = x.astype(np.float32)
    assert raw(assay.quantize(f32.astype(">f4"))["row.data"]) == raw(assay.quantize(f32)["row.data"])
    odd = np.frombuffer(b"\0" + f32.tobytes(), np.uint8)[1:].view(np.float32).reshape(f32.shape)
    assert raw(assay.quantize(odd)["row.data"]) == raw(assay.quantize(f32)["row.data"])


def test_buffers_without_a_library():
    data = array.array("f", range(64))
    view = memoryview(data).cast("B").cast("f", (2, 32))
    want = raw(assay.quantize(np.arange(64, dtype=np.float32).reshape(2, 32))["row.data"])
    assert raw(assay.quantize(view)["row.data"]) == want
    assert assay.check(view, {"row.data": want_shape(want)}, "mxfp8")
    with pytest.raises(assay.UnsupportedEncoding, match="format 'd'"):
        assay.quantize(array.array("d", [1.0]))


def want_shape(data):
    return memoryview(data).cast("B", (2, 32))


def test_dlpack():
    x = np.linspace(-3, 3, 64, dtype=np.float32).reshape(2, 32)
    assert raw(assay.quantize(OnlyDlpack(x))["row.data"]) == raw(assay.quantize(x)["row.data"])
    turned = OnlyDlpack(np.ascontiguousarray(x.T).T)
    q = assay.quantize(turned)
    assert raw(q["row.data"]) == raw(assay.quantize(x)["row.data"]) and q.copied_bytes == x.nbytes


def test_scalars_for_planes_of_one_element(x):
    q = assay.quantize(x, "fp8_current")
    planes = {"row.data": q["row.data"], "row.scale_inv": float(q["row.scale_inv"][0, 0]), "row.amax": q["row.amax"][0, 0]}
    assert assay.check(x, planes, "fp8_current")
    assert not assay.check(x, {**planes, "row.amax": 1.0}, "fp8_current")


@pytest.mark.parametrize("value", [None, "text", [[1.0]], {}, object(), np.ma.masked_array(np.zeros((2, 32), np.float32)), lambda: 0])
def test_what_is_no_array(value):
    with pytest.raises(assay.AssayError, match="expected"):
        assay.quantize(value)


def test_errors_say_what_to_do(x):
    with pytest.raises(assay.LineError) as error:
        assay.quantize(x, "mxfp8 elemnt=e5m2")
    assert error.value.column > 0 and "element" in error.value.suggestion
    with pytest.raises(assay.LineError, match="shape of x"):
        assay.quantize(x, "quantize mxfp8 32x256 bf16")
    with pytest.raises(assay.LineError, match="dtype of x"):
        assay.quantize(x, "quantize mxfp8 64x256 f32")
    with pytest.raises(assay.LineError, match="expected the op quantize"):
        assay.quantize(x, "cast e4m3")
    with pytest.raises(assay.PlaneError) as wrong:
        assay.check(x, {"row.dta": x}, "mxfp8")
    assert wrong.value.plane == "row.dta" and "row.data" in str(wrong.value)
    with pytest.raises(assay.PlaneError, match="expected 16384 elements of e4m3") as wrong:
        assay.check(x, {"row.data": np.zeros((4, 4), np.uint8)}, "mxfp8")
    assert (wrong.value.plane, wrong.value.expected, wrong.value.found) == ("row.data", "16384 elements of e4m3 for plane row.data", "U8 [4x4]")
    with pytest.raises(assay.PlaneError) as wrong:
        assay.check(x, (x,), "mxfp8")
    assert (wrong.value.expected, wrong.value.found) == ("a pair", "1 values")
    with pytest.raises(assay.PlaneError, match="F8_E5M2"):
        assay.check(x, {"row.data": np.zeros((64, 256), ml_dtypes.float8_e5m2)}, "mxfp8")


def test_threads_run_beside_each_other():
    x = assay.fill((256, 512), "normal", 1)
    want, results = raw(assay.quantize(x, "nvfp4")["row.data"]), []
    workers = [threading.Thread(target=lambda: results.append(raw(assay.quantize(x, "nvfp4", threads=1)["row.data"]))) for _ in range(8)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert results == [want] * 8


def test_lock_is_released():
    x, ticks, done = assay.fill((1024, 2048), "normal", 1), [], threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks.append(1)
    clock = threading.Thread(target=tick)
    clock.start()
    assay.quantize(x, "nvfp4 four_over_six=mse", dir="both", threads=1)
    done.set()
    clock.join()
    assert len(ticks) > 20


def test_interrupt_ends_a_search():
    """Ctrl-C raises KeyboardInterrupt out of a long search, and long before its budget is spent."""
    script = """
import os, signal, threading, time
import numpy as np, assay
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with the signal ignored
x, spec = assay.fill((512, 2048), "normal", 1), "nvfp4 four_over_six=mse dir=both"   # whose search spends every budget
random = np.random.default_rng(1)
bad = {name: random.integers(0, 120, plane.shape, np.uint8) for name, plane in assay.quantize(x, spec).items() if "amax" not in name}
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    assay.explain(x, bad, spec, budget_s=200)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=280)
    word, seconds = done.stdout.split() if done.stdout.startswith("interrupted") else ("", "999")
    assert word == "interrupted" and float(seconds) < 100, done.stdout + done.stderr


def test_without_numpy(tmp_path):
    """The package needs no NumPy: the same bytes come as memoryviews."""
    (tmp_path / "numpy.py").write_text("raise ImportError('no NumPy here')")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import array, assay
data = memoryview(array.array("f", range(64))).cast("B").cast("f", (2, 32))
q = assay.quantize(data, "nvfp4")
assert q["row.data"].shape == (2, 16) and q["row.amax"][0, 0] == 63.0
assert assay.check(data, q) and assay.quantize(data, "nvfp4", unpacked=True)["row.data"].shape == (2, 32)
planes = {{**q, "row.data": bytes(q["row.data"])}}
assert assay.check(data, planes, "nvfp4") and assay.check(data, dict(q), "nvfp4")
planes["row.data"] = bytes([planes["row.data"][0] ^ 1]) + planes["row.data"][1:]
assert assay.check(data, planes, "nvfp4").first.col == 0 and assay.explain(data, planes, "nvfp4", budget_s=0.1).verdict != "equal"
print(bytes(q["row.data"]).hex())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    want = assay.quantize(np.arange(64, dtype=np.float32).reshape(2, 32), "nvfp4")["row.data"]
    assert done.returncode == 0 and done.stdout.strip() == bytes(want).hex(), done.stderr


def test_a_library_that_is_not_there(x, monkeypatch):
    """out= names what to install; an object that only looks like that library's arrays gets NumPy's."""
    monkeypatch.setitem(sys.modules, "torch", None)   # its import fails
    with pytest.raises(assay.PlaneError, match="torch for out='torch'.*pip install torch"):
        assay.quantize(x, out="torch")
    assert assay._arrays.library_for("like", "torch") == "numpy"
