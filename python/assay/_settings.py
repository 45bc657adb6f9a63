"""What the pytest plugin sets for the assertions of a test: whether causes are looked for, and where packs of failures go."""
from __future__ import annotations

import contextvars
import pathlib
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class TestSettings:
    """Of one test: `explain` is never, first or all; `folder` None writes no pack; `packs` are those that were written."""

    explain: str = "all"
    folder: pathlib.Path | None = None
    name: str = "case"
    found: list[int] = field(default_factory=lambda: [0])   # causes that were looked for, in the whole session
    packs: list[str] = field(default_factory=list)


current: contextvars.ContextVar[TestSettings | None] = contextvars.ContextVar("assay_test", default=None)


def explains() -> bool:
    settings = current.get()
    if settings is None or settings.explain == "all":
        return True
    if settings.explain == "never":
        return False
    settings.found[0] += 1
    return settings.found[0] == 1


def dump(case: Any, verdict: Any) -> str:
    """Writes a failed case as a pack where the plugin asks for it; returns its path, or nothing."""
    settings = current.get()
    if settings is None or settings.folder is None:
        return ""
    from ._reproduce import write_pack
    settings.folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", settings.name)[:120]
    path = settings.folder / f"{stem}{'.' + str(len(settings.packs)) if settings.packs else ''}.safetensors"
    write_pack(case, str(path))
    settings.packs.append(str(path))
    return str(path)
