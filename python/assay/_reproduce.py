"""A case as files that anybody can judge again."""
from __future__ import annotations

import json
import pathlib
import struct
from typing import Any

from ._arrays import WIDTHS

_SCRIPT = '''"""Judges the case beside this file again: python reproduce.py"""
import pathlib

import assay

for case in assay.load(pathlib.Path(__file__).parent / "case.safetensors"):
    print(case.explain())
'''


def write_pack(case: Any, path: str) -> str:
    """Writes one case as a pack (docs/packs.md). Needs no NumPy."""
    header: dict[str, Any] = {"__metadata__": {"assay.pack": "1", "assay.subject": "python", "assay.line.outputs": case.text}}
    order, at, blobs = sorted(case.planes, key=lambda n: (-WIDTHS[case.planes[n].word], n)), 0, []
    for name in order:
        array = case.planes[name]
        data = array.tobytes()
        header[f"outputs/{name}"] = {"dtype": array.word, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        blobs.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    return path


def write(diagnosis: Any, folder: Any) -> str:
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    (place / "reproduce.py").write_text(_SCRIPT)
    (place / "README").write_text(f"{diagnosis.headline}\n\n{diagnosis.screen}\n\nassay explain case.safetensors\npython reproduce.py\n")
    return write_pack(diagnosis.case, str(place / "case.safetensors"))
