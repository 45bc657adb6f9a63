"""The annotations: mypy passes over the package, and over a use of it; skipped where mypy is not installed."""
import pathlib
import shutil
import subprocess
import sys

import pytest

import assay

pytest.importorskip("mypy")
kUse = '''
import assay

q: assay.Quantized = assay.quantize([0.0], "mxfp8", dir="both")
line: str = q.line
verdict: assay.Verdict = assay.check(None, q)
good: bool = verdict.ok and bool(verdict)
first: assay.Divergence | None = verdict.first
differ: int = verdict.planes["row.data"].differ
causes: list[assay.Cause] = assay.explain(None, q).causes
name: str | None = best.name if (best := assay.identify(None, q).best) else None
cases: list[assay.Case] = assay.load("pack.safetensors")
'''


def mypy(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "mypy", "--no-incremental", *arguments], cwd=cwd, capture_output=True, text=True, timeout=1200)


def test_package_is_typed(tmp_path):
    package = pathlib.Path(assay.__file__).parent
    copy = shutil.copytree(package, tmp_path / "assay", ignore=shutil.ignore_patterns("*.so", "bin", "share"))   # away from what else is installed
    files = [f"assay/{p.name}" for p in sorted(copy.glob("_*.py"))]
    done = mypy("--ignore-missing-imports", "--follow-imports=silent", *files, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_use_is_typed(tmp_path):
    (tmp_path / "use.py").write_text(kUse)
    done = mypy("--strict", "--follow-imports=silent", "use.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    (tmp_path / "use.py").write_text(kUse + "\nwrong: int = verdict.line\nassay.check(None)\n")
    done = mypy("--strict", "--follow-imports=silent", "use.py", cwd=tmp_path)
    assert done.stdout.count("error:") == 2, done.stdout
