"""The code of docs/python-training-walk.md, block by block; skipped where PyTorch or torchao is not installed."""
import pathlib
import re

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchao.prototype.moe_training.mxfp8_linear")
kPage = pathlib.Path(__file__).resolve().parents[2] / "docs/python-training-walk.md"


def test_walk(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", kPage.read_text(), re.S)
    names: dict = {}
    for n, block in enumerate(blocks):
        exec(compile(block, f"{kPage.name}, block {n + 1}", "exec"), names)   # noqa: S102
    said = capsys.readouterr().out
    assert len(blocks) == 7 and names["watch"].cases == 8 and len(names["cases"]) == 8 and names["wrong"]
    assert names["diagnosis"].verdict == "explained" and "floored exponent" in said
    assert names["found"].named and "ocp" in (names["found"].best.name, *names["found"].best.same_as)
    assert names["errors"].outputs_db < names["errors"].format_db
