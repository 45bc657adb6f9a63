"""benchmarks/peers: every library that is installed gives the bytes that are expected of it, and an answer that is not expected fails the run."""
import importlib.util
import json
import subprocess
import sys

import pytest

from conftest import ROOT

kPeers = ROOT / "benchmarks/peers"
kLibraries = {"torchao": "torchao", "compressed-tensors": "compressed_tensors", "ml_dtypes": "ml_dtypes", "gfloat": "gfloat"}


def quick(*arguments):
    return subprocess.run([sys.executable, kPeers / "run", "--quick", "--sources", "bf16", *arguments], capture_output=True, text=True, timeout=300)


def test_the_libraries_that_are_installed_give_the_expected_bytes():
    found = [name for name, module in kLibraries.items() if importlib.util.find_spec(module) is not None]
    if importlib.util.find_spec("torch") is None or not found:
        pytest.skip("PyTorch, or each of its peers, is not installed")
    done = quick("--only", *found, "--formats", "MXFP8 1x32", "NVFP4 1x16", "FP8 per tensor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"  {name} " in done.stdout for name in found) and done.stdout.endswith(", 0 unexpected\n")


def test_without_libraries_nothing_is_timed_and_the_reason_is_told(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=60)
    bare, packages = tmp_path / "bare/bin/python", tmp_path / "packages"
    packages.mkdir()
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(packages)}
    for lacks, there in (("torch", None), ("assay", "torch")):   # the second time torch is there and the package is not
        if there:
            (packages / f"{there}.py").touch()
        done = subprocess.run([bare, kPeers / "run", "--quick"], capture_output=True, text=True, timeout=60, env=env, cwd=tmp_path)
        assert done.returncode == 1 and f"has no package {lacks}; give --venv DIR" in done.stderr, done.stdout + done.stderr


def case(**row):
    known = {"library": "torchao", "how": "to_mx, eager", "threads_of_its_own": True, "seconds": {"min": 0.002, "median": 0.003},
             "processor_seconds": {"min": 0.002, "median": 0.002}, "ratio_to_copy": 2.0, "samples": 5, "calls_a_sample": 1}
    return {"format": "MXFP8 1x32", "line": "quantize mxfp8", "source": "bf16", "shape": [64, 256], "threads": 1, "load": 0.0,
            "copy": {"seconds": {"min": 0.001, "median": 0.001}, "processor_seconds": {"min": 0.001, "median": 0.001}}, "rows": [{**known, **row}]}


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(kPeers))
    return importlib.import_module("tables")


def test_other_bits_stand_beside_their_time(tables):
    other = {"equal": False, "differ": {"row.data": [3, 16384]}, "expected": "ocp", "as_expected": True, "equals": "ocp"}
    wrong = {**other, "as_expected": False, "equals": None}
    document = {"machine": {"processor": "x86_64", "cores": 2}, "versions": {}, "rounds": 1, "cases": [case(bits=other)]}
    assert not tables.unexpected(document)
    line = next(line for line in tables.markdown(document).splitlines() if line.startswith("| torchao to_mx, eager"))
    assert "flavour=ocp" in line and "row.data 3 of 16384" in line and "2.000 / 3.000 / 2.000" in line
    document["cases"] = [case(bits=wrong)]
    assert "none of ours; expected ocp" in tables.markdown(document)
    assert len(tables.unexpected(document)) == 1
    document["cases"] = [{**case(), "rows": [{"library": "torchao", "how": "to_mx, eager", "absent": "TypeError: no", "failed": True}]}]
    assert "failed: TypeError: no" in tables.unexpected(document)[0]


def test_the_committed_table_is_that_of_its_json(tables):
    document = json.loads((ROOT / "benchmarks/results/peers.json").read_text())
    assert tables.markdown(document) + "\n" == (ROOT / "benchmarks/results/peers.md").read_text()
    assert not tables.unexpected(document)
