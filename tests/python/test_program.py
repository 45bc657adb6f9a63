"""The program on a Python function: --python in the commands that take a plugin. The program is the wheel's own."""
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest

import assay

kProgram = pathlib.Path(assay.__file__).parent / "bin/assay"
if not kProgram.is_file():
    pytest.skip("the package has no program beside it", allow_module_level=True)

kKernels = '''
import os, time
import numpy as np
import assay

def right(x):
    return dict(assay.quantize(x, "mxfp8"))

right.assay_spec = "mxfp8"

def unpadded(x):
    q = assay.quantize(x, "mxfp8")
    return q["row.data"], q.logical("row.scale_inv")

def floors(x):
    q = assay.quantize(x, "mxfp8 flavour=ocp")
    return q["row.data"], q["row.scale_inv"]

def any_line(x, line):
    words = line.split()
    if words[0] != "quantize":
        raise NotImplementedError("quantize only")
    return dict(assay.run(line, {"x": x}))

def crashes(x):
    if x.shape[0] == 3:
        os.abort()
    return right(x)

def hangs(x):
    if x.shape[0] == 3:
        time.sleep(600)
    return right(x)

def raises(x):
    print("to the screen")
    raise IndexError("of a kernel")

def no_amax(x):
    q = assay.quantize(x, "nvfp4")
    return q["row.data"], q["row.scale_inv"]

number = 3
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.py").write_text(textwrap.dedent(kKernels))
    return folder


def program(place, *words, timeout=300, interpreter=sys.executable):
    env = {**os.environ, "ASSAY_PYTHON": str(interpreter)}
    done = subprocess.run([kProgram, *map(str, words)], cwd=place, capture_output=True, text=True, timeout=timeout, env=env)
    return done.returncode, done.stdout + done.stderr


def line(rows, more=""):
    return f"quantize mxfp8 {rows}x64 bf16 dir=row fill=normal seed={rows} {more}".strip()


def test_a_function_of_pytorch(place):
    pytest.importorskip("torch")
    (place / "of_torch.py").write_text("import torch\nimport assay\n\ndef right(x):\n    assert isinstance(x, torch.Tensor)\n    return dict(assay.quantize(x, 'mxfp8'))\n\nright.assay_spec = 'mxfp8'\n")
    status, text = program(place, "run", line(1), line(33), "--python", "of_torch:right")
    assert status == 0 and "2 passed, 0 failed, 0 skipped" in text, text


def test_right_and_wrong(place):
    status, text = program(place, "run", line(1), line(33), "quantize nvfp4 4x32 bf16", line(8, "element=e5m2"), "--python", "kernels:right")
    assert status == 0 and "2 passed, 0 failed, 2 skipped" in text and "the function promises mxfp8" in program(place, "run", "quantize nvfp4 4x32 bf16", "-v", "--python", "kernels:right")[1], text
    status, text = program(place, "run", line(8), "--python", "kernels:unpadded")
    assert status == 0 and "1 passed" in text, text
    status, text = program(place, "run", line(8), "--python", "kernels:floors")
    assert status == 1 and "python:floors == reference" in text and "row.scale_inv (e8m0)" in text, text


def test_spec_and_lines(place):
    status, text = program(place, "run", line(8, "element=e5m2"), line(8), "--python", "kernels:right", "--python-spec", "mxfp8 element=e5m2")
    assert status == 1 and "0 passed, 1 failed, 1 skipped" in text, text
    others = "quantize mxfp8 8x64 bf16 dir=col", "quantize mxfp8 8x64 bf16"
    status, text = program(place, "run", line(8), *others, "--python", "kernels:unpadded", "--python-spec", "mxfp8")
    assert status == 0 and "1 passed, 0 failed, 2 skipped" in text, text
    assert "the function promises mxfp8 dir=row" in program(place, "run", others[0], "-v", "--python", "kernels:unpadded", "--python-spec", "mxfp8")[1]
    status, text = program(place, "run", "smoke", "--python", "kernels:unpadded", "--python-spec", "mxfp8")
    assert status == 0 and " 0 failed" in text, text
    status, text = program(place, "run", line(8), "quantize nvfp4 32x64 bf16 dir=both round=sr rng=1,2,0", "cast e4m3 4x4 bf16", "--python", "kernels:any_line")
    assert status == 0 and "2 passed, 0 failed, 1 skipped" in text, text
    status, text = program(place, "run", "quantize nvfp4 4x32 bf16 dir=row", "--python", "kernels:no_amax")
    assert status == 0 and "1 passed" in text, text


@pytest.mark.parametrize("name, said", [("crashes", "signal 6"), ("hangs", "")])
def test_crash_and_hang_cost_one_case(place, name, said):
    status, text = program(place, "run", line(2), line(3), line(4), "--jobs", 1, "--timeout", 6, "--python", f"kernels:{name}")
    assert status == 1 and "2 passed, 1 failed, 0 skipped" in text and said in text, text


@pytest.mark.parametrize("words", [("run", line(2), "--require", "python:right"), ("bench", line(2), "--subject", "python:right"), ("hunt", "--minutes", 0.05)])
def test_an_interpreter_that_never_answers(place, words):
    script = place / "sleeps"
    script.write_text("#!/bin/sh\nexec sleep 100\n")
    script.chmod(0o755)
    start = time.monotonic()
    status, text = program(place, *words, "--python", "kernels:right", "--timeout", 3, interpreter=script)
    assert status in (1, 2, 3) and "did not say within 3 s that it has imported kernels:right" in text and time.monotonic() - start < 25, text


def test_exceptions(place):
    status, text = program(place, "run", line(2), "--python", "kernels:raises")
    assert status == 1 and "IndexError: of a kernel" in text, text
    for name, said in (("kernels:none", "AttributeError"), ("nowhere:f", "No module named 'nowhere'"), ("kernels:number", "to be a function, found int")):
        status, text = program(place, "run", line(2), "-v", "--python", name, "--require", f"python:{name.split(':')[1]}")
        assert status == 3 and said in text, text
    assert program(place, "run", line(2), "--python", "kernels")[0] == 2


def test_other_commands(place):
    """explain, shrink, trace and bench take it as they take a plugin."""
    status, text = program(place, "explain", line(8), "--python", "kernels:floors")
    assert "line.mx_scale=floor" in text, text
    status, text = program(place, "shrink", line(8), "--python", "kernels:floors")
    assert "--python kernels:floors" in text and "1x1" in text, text
    status, text = program(place, "trace", line(8), "--at", "0,0", "--python", "kernels:floors")
    assert "N5.3" in text, text
    status, text = program(place, "doctor", "--python", "kernels:floors")
    assert "python:floors" in text, text
