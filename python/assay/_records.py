"""One pack judged: a record of plain values for each of its cases. It needs nothing but the pack, so that it can run in another process or on another machine."""
from __future__ import annotations

import re
import time
from typing import Any, Mapping

from ._errors import AssayError
from ._load import load

Record = dict[str, Any]
kRoles = ("input", "weight", "output", "grad_output", "grad_input", "grad_weight")
_STEP = re.compile(r"step(\d+)$")


def place_of(case: str) -> tuple[int | None, str, str]:
    """(step, module, role) of a case's name: "step12/blocks.0.fc1/weight.col"; what the name does not say is None or empty."""
    parts = case.split("/")
    found = _STEP.match(parts[0]) if len(parts) > 1 else None
    step = int(found[1]) if found else None
    if found:
        parts = parts[1:]
    role = parts.pop() if len(parts) > 1 and parts[-1].removesuffix(".col") in kRoles else ""
    return step, "/".join(parts), role


def judge_pack(path: str, *, sdc: bool = False, cause_s: float = 0.0, threads: int = 1) -> list[Record]:
    """Judges every case of a pack. Raises AssayError where the file cannot be read.

    path     the pack, a safetensors file
    sdc      look for bit flips where a case is wrong
    cause_s  seconds of looking for the cause of each wrong case; 0 looks for none
    threads  of the reference; 0: the cores of this machine

    Returns a record for each case, in the order of the training step: case, step, module, role, line, outcome (right, wrong or not judged), seconds, and
    where it is wrong first, plane, differ, cause and flips; where it is not judged why.
    """
    return [_record(case, sdc, cause_s, threads) for case in load(path)]


def _record(case: Any, sdc: bool, cause_s: float, threads: int) -> Record:
    start = time.monotonic()
    step, module, role = place_of(case.id)
    out: Record = {"case": case.id, "step": step, "module": module, "role": role, "line": case.line}
    try:
        verdict = case.check(threads=threads)
    except AssayError as error:
        return {**out, "outcome": "not judged", "why": str(error), "seconds": round(time.monotonic() - start, 3)}
    out["outcome"] = "right" if verdict.ok else "wrong"
    if not verdict.ok:
        out.update(_wrong(case, verdict, sdc, cause_s, threads))
    out["seconds"] = round(time.monotonic() - start, 3)
    return out


def _wrong(case: Any, verdict: Any, sdc: bool, cause_s: float, threads: int) -> Mapping[str, Any]:
    first = verdict.first
    out: Record = {"first": verdict.summary(), "plane": first.plane if first else "", "differ": sum(p.differ for p in verdict.planes.values()), "cause": ""}
    held: list[Any] = []

    def diagnosis() -> Any:
        if not held:
            held.append(case.explain(budget_s=max(cause_s, 3.0), threads=threads))
        return held[0]

    if sdc:
        from ._flips import flips_of, rule_in
        out["flips"] = flips_of(case, lambda: rule_in(diagnosis())).to_dict()
    if cause_s > 0 and first is not None and first.plane:
        try:
            found = diagnosis()
            out["cause"] = str(found.causes[0]) if found.verdict == "explained" and found.causes else ""
        except AssayError as error:
            out["cause"] = f"not looked for: {error}"
    return out
