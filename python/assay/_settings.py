"""What the pytest plugin sets for the assertions of a test: whether causes are looked for, and where packs of failures go."""
from __future__ import annotations

import contextvars
import pathlib
import re
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass
class TestSettings:
    """Of one test: `explain` is never, first or all; `folder` None writes no pack; `packs` are those that were written."""

    explain: str = "all"
    folder: pathlib.Path | None = None
    name: str = "case"
    found: list[int] = field(default_factory=lambda: [0])   # failures whose cause was looked for, in the whole session
    packs: list[str] = field(default_factory=list)


current: contextvars.ContextVar[TestSettings | None] = contextvars.ContextVar("assay_test", default=None)


def explains() -> bool:
    """Whether the cause of the next failure is to be looked for."""
    settings = current.get()
    return settings is None or settings.explain == "all" or settings.explain == "first" and settings.found[0] == 0


def explained() -> None:
    """Called after a failure whose cause was looked for."""
    settings = current.get()
    if settings is not None:
        settings.found[0] += 1


def _repeats() -> bool:
    """Whether Hypothesis calls this test again and again: the last failure that it shows is the smallest."""
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and bool(getattr(hypothesis, "currently_in_test_context", bool)())


def dump(case: Any, verdict: Any) -> str:
    """Writes a failed case as a pack where the plugin asks for it; returns its path, or nothing."""
    settings = current.get()
    if settings is None or settings.folder is None:
        return ""
    from ._reproduce import write_pack
    settings.folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", settings.name)[:120]
    number = 0 if _repeats() else len(settings.packs)
    path = settings.folder / f"{stem}{f'.{number}' if number else ''}.safetensors"
    write_pack(case, str(path))
    if str(path) not in settings.packs:
        settings.packs.append(str(path))
    return str(path)
