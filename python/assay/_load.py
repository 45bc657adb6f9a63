"""Packs: recorded planes in safetensors files."""
from __future__ import annotations

import os
import pathlib
from typing import Any, Iterator, Mapping, Sequence

from . import _assay
from ._arrays import WIDTHS, Array, numpy, ml_dtypes
from ._errors import AssayError, PlaneError
from ._judge import check, explain, identify
from ._lines import answered, line
from ._verdict import Diagnosis, Identification, Verdict

_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
          "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32"}


class Case(Mapping[str, Any]):
    """One case of a pack: its planes by name, as read-only arrays of NumPy where it is installed (views of the file)."""

    def __init__(self, dump: Any, index: int, facts: Mapping[str, Any]):
        self._dump, self._index, self._planes = dump, index, {p["name"]: (i, p) for i, p in enumerate(facts["planes"])}
        self.id: str = facts["id"]
        self.pack: str = facts["pack"]
        self.line: str = facts["line"]
        self.unpinned: str = facts["unpinned"]   # why bits are held to a bound; empty: they are not
        self.digests: dict[str, str] = {p["name"]: p["digest"] for p in facts["planes"] if p["digest"]}

    def array(self, name: str) -> Array:
        """The plane of a name as the package's functions take it, without NumPy. Raises KeyError for a plane that has no bytes here."""
        if name not in self._planes or not self._planes[name][1]["dtype"]:
            raise KeyError(name)
        index, facts = self._planes[name]
        word = facts["dtype"] if facts["dtype"] in WIDTHS else "U8"
        return Array(word, tuple(facts["shape"]), self._dump.bytes(self._index, index), "numpy", _NAMES.get(word, word))

    def __getitem__(self, name: str) -> Any:
        found, np, ml = self.array(name), numpy(), ml_dtypes()
        if np is None:
            return found.view
        dtype = _NAMES[found.word]
        kind = np.dtype(dtype) if hasattr(np, dtype) else np.dtype(getattr(ml, dtype)) if hasattr(ml, dtype) else np.dtype(f"uint{8 * WIDTHS[found.word]}")
        data = np.frombuffer(found.view, np.uint8) if found.count else np.empty(0, np.uint8)
        return data.view(kind).reshape(found.shape) if data.size == found.count * kind.itemsize else data

    def __iter__(self) -> Iterator[str]:
        return (n for n, (_, p) in self._planes.items() if p["dtype"])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _split(self) -> tuple[dict[str, Array], dict[str, Array]]:
        if not self.line:
            raise PlaneError("expected a case with a line, found none; write it with Pack.add or Pack.add_planes", self.id)
        outputs = {p.name for p in line(self.line).outputs}
        known = {n: self.array(n) for n in self}
        return {n: a for n, a in known.items() if n not in outputs}, {n: a for n, a in known.items() if n in outputs}

    def check(self, **settings: Any) -> Verdict:
        """The verdict of `assay check` on this case."""
        given, outputs = self._split()
        return check(given, outputs, self.line, **{"unpinned": self.unpinned, **settings})

    def explain(self, **settings: Any) -> Diagnosis:
        """The diagnosis of `assay explain` on this case; settings as of assay.explain."""
        given, outputs = self._split()
        return explain(given, outputs, self.line, **{"unpinned": self.unpinned, **settings})

    def identify(self, **settings: Any) -> Identification:
        """Whose choices made the bytes of this case; settings as of assay.identify."""
        given, outputs = self._split()
        return identify(given, outputs, self.line, **settings)

    def __repr__(self) -> str:
        return f"<Case {self.id}: '{self.line}', {', '.join(self)}>"


def load(path: str | os.PathLike[str] | Sequence[str]) -> list[Case]:
    """The cases of packs, and of folders of packs, in the order of a training step. path is one of them, or several. Raises AssayError for what cannot be read."""
    try:
        paths = [os.fspath(p) for p in path] if isinstance(path, (list, tuple)) else [os.fspath(path)]  # type: ignore[arg-type]
    except TypeError:
        raise AssayError(f"path: expected the path of a pack or of a folder of packs, or several, found {path!r}") from None
    if gone := [p for p in paths if not os.path.exists(p)]:
        raise AssayError(f"{gone[0]} does not exist: expected a pack (a .safetensors file, as Pack.write and `--assay-dump` make it) or a folder of packs")
    dump = _assay.load([str(pathlib.Path(p)) for p in paths])
    if isinstance(dump, str):
        answered(dump)
    facts = answered(dump.facts())
    return [Case(dump, i, c) for i, c in enumerate(facts["cases"])]
