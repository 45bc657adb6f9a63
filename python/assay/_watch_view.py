"""How a sidecar's sums are told: a view for the terminal, a line for a pack, and Prometheus' text format."""
from __future__ import annotations

from typing import Any, Sequence

from ._ledger import State


def told_pack(name: str, records: Sequence[dict[str, Any]], error: str, flips: Sequence[str]) -> str:
    """One pack in a line, and a line for each case that is wrong."""
    if error:
        return f"{name}: not read: {error}"
    count = {o: sum(r["outcome"] == o for r in records) for o in ("right", "wrong", "not judged")}
    rows = [f"{name}: " + ", ".join(f"{n} {o}" for o, n in count.items() if n)]
    for r in records:
        if r["outcome"] == "wrong":
            rows.append(f"  WRONG {r['case']}: {r['first']}" + (f"; {r['cause']}" if r.get("cause") else ""))
            found = r.get("flips")
            if found and found["verdict"] != "flips":
                rows.append(f"    {'not bit flips' if found['verdict'] == 'arithmetic' else 'undecided'}: {found['why']}")
        elif r["outcome"] == "not judged":
            rows.append(f"  not judged {r['case']}: {r['why']}")
    return "\n".join([*rows, *(f"    {f}" for f in flips)])


def screen(state: State, folder: str, backlog: int, rate: float, width: int, height: int) -> str:
    """The view of the terminal: rate, backlog, and the last verdict of each role of each module, those that are wrong first."""
    right, wrong, open_cases = state.cases
    head = [f"assay watch {folder}   {state.packs} packs, {right + wrong} tensors judged, {wrong} wrong   {rate:.1f} packs/s, {backlog} waiting"]
    if open_cases or state.unreadable or state.dropped:
        head.append(f"{open_cases} tensors not judged, {state.unreadable} packs not read, {state.dropped} packs dropped for want of room")
    if state.first is not None:
        head.append(f"first divergence: {state.first['record']['case']}: {state.first['record']['first']}")
    head += [f"  {text}" for text in state.flips()[-3:]]
    rows = sorted(state.roles.items(), key=lambda item: (item[1].wrong == 0, item[0]))
    shown = rows[:max(height - len(head) - 3, 1)]
    wide = max([len(m) for (m, _), _ in shown] + [6])
    head += ["", f"{'module':<{wide}}  {'role':<16} {'step':>9} {'right':>8} {'wrong':>6}  last verdict"]
    for (module, role), s in shown:
        head.append(f"{module:<{wide}}  {role:<16} {'' if s.step is None else s.step:>9} {s.right:>8} {s.wrong:>6}  {s.last}{': ' + s.words if s.words else ''}")
    if len(shown) < len(rows):
        head.append(f"... and {len(rows) - len(shown)} more")
    return "\n".join(text[:width] for text in head)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _family(name: str, kind: str, about: str, samples: Sequence[tuple[dict[str, str], float]]) -> list[str]:
    rows = [f"# HELP assay_{name} {about}", f"# TYPE assay_{name} {kind}"]
    for labels, value in samples:
        inner = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items())
        rows.append(f"assay_{name}{'{' + inner + '}' if inner else ''} {value:g}" if value != int(value) else
                    f"assay_{name}{'{' + inner + '}' if inner else ''} {int(value)}")
    return rows


def metrics(state: State, backlog: int, rate: float) -> str:
    """Prometheus' text format. Every sum is a counter that only grows, also over a restart of the sidecar."""
    tensors = [({"module": m, "role": r, "outcome": outcome}, float(count)) for (m, r), s in sorted(state.roles.items())
               for outcome, count in (("right", s.right), ("wrong", s.wrong), ("not judged", s.not_judged))]
    flipped = [s for s in state.suspects if state.flip_words(s).startswith("bit flips")]
    rows = _family("packs_total", "counter", "packs that were judged", [({}, state.packs)])
    rows += _family("packs_unreadable_total", "counter", "packs that could not be read", [({}, state.unreadable)])
    rows += _family("packs_dropped_total", "counter", "packs removed unjudged, because the folder was full", [({}, state.dropped)])
    rows += _family("tensors_total", "counter", "tensors by module, role and outcome", tensors)
    rows += _family("flip_suspects", "gauge", "tensors that differ by single bits while other packs of their module are right", [({}, len(flipped))])
    rows += _family("backlog_packs", "gauge", "packs that wait to be judged", [({}, backlog)])
    rows += _family("packs_per_second", "gauge", "packs judged in a second", [({}, rate)])
    steps = [s.step for s in state.roles.values() if s.step is not None]
    if steps:
        rows += _family("last_step", "gauge", "the last step of training of which a tensor was judged", [({}, max(steps))])
    first = state.first["record"].get("step") if state.first else None
    if first is not None:
        rows += _family("first_divergence_step", "gauge", "the first step with a wrong tensor", [({}, first)])
    return "\n".join(rows) + "\n"
