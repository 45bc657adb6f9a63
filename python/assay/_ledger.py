"""What a sidecar has judged, as a file of JSON lines that survives a kill, and the sums that follow from it."""
from __future__ import annotations

import json
import os
import pathlib
import time
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator, Mapping

from ._errors import AssayError

Event = dict[str, Any]
kName = "verdicts.jsonl"
_KEPT_SUSPECTS = 1000


@dataclass
class Sums:
    """Of one role of a module, or of all: how many cases came out how, and the last of them."""

    right: int = 0
    wrong: int = 0
    not_judged: int = 0
    step: int | None = None
    last: str = ""
    words: str = ""

    def add(self, record: Mapping[str, Any]) -> None:
        outcome = record["outcome"]
        _expect(record, step=(int, type(None)), module=str, role=str, case=str)
        self.right += outcome == "right"
        self.wrong += outcome == "wrong"
        self.not_judged += outcome == "not judged"
        self.step, self.last = record.get("step"), outcome
        self.words = record.get("first") or record.get("why") or ""


@dataclass
class State:
    """The sums of a ledger, or of several. `judged` has the identity of each pack that was judged, by its name."""

    roles: dict[tuple[str, str], Sums] = field(default_factory=dict)
    right_packs: dict[str, int] = field(default_factory=dict)   # of a module: packs in which it was judged and nothing was wrong
    suspects: list[Event] = field(default_factory=list)         # wrong cases that look like bit flips: pack, case, module, flips
    packs: int = 0
    unreadable: int = 0
    dropped: int = 0
    first: Event | None = None                                  # the first divergence: pack and record
    judged: dict[str, str] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)         # packs that were begun and not ended, how often
    wrong_packs: list[str] = field(default_factory=list)        # names of packs with something wrong, while they are in the folder
    told: bool = False                                          # the webhook took the first divergence

    @property
    def cases(self) -> tuple[int, int, int]:
        """How many cases are right, wrong and not judged."""
        sums = self.roles.values()
        return sum(s.right for s in sums), sum(s.wrong for s in sums), sum(s.not_judged for s in sums)

    def add(self, event: Event) -> None:
        """Adds what one event of a ledger says; other kinds of events change nothing."""
        kind = event["event"]
        if kind == "begin":
            self.begun[event["pack"]] = self.begun.get(event["pack"], 0) + 1
        elif kind == "pack":
            self._add_pack(event)
        elif kind == "dropped":
            self.dropped += 1
        elif kind == "webhook":
            self.told = True
        elif kind == "carried":
            self._carry(event)

    def _add_pack(self, event: Event) -> None:
        name = event["pack"]
        self.judged[name] = event["identity"]
        self.begun.pop(name, None)
        self.packs += 1
        self.unreadable += bool(event.get("error"))
        good: dict[str, bool] = {}
        if any(r["outcome"] == "wrong" for r in event["cases"]):
            self.wrong_packs.append(name)
        for record in event["cases"]:
            self.roles.setdefault((record["module"], record["role"]), Sums()).add(record)
            if record["outcome"] != "not judged":
                good[record["module"]] = good.get(record["module"], True) and record["outcome"] == "right"
            if record["outcome"] == "wrong":
                if self.first is None or before({"record": record}, self.first):
                    self.first = {"pack": name, "record": record}
                if (record.get("flips") or {}).get("verdict") == "flips" and len(self.suspects) < _KEPT_SUSPECTS:
                    self.suspects.append({"pack": name, "case": record["case"], "module": record["module"], "flips": record["flips"]["flips"]})
                    _expect_suspect(self.suspects[-1])
        for module, right in good.items():
            self.right_packs[module] = self.right_packs.get(module, 0) + right

    def carried(self, present: Iterable[str]) -> Event:
        """Everything as one event, the first of the next file. `present`: packs that are still in the folder."""
        kept = set(present)
        return {"event": "carried", "time": time.time(), "roles": [[*key, vars(sums)] for key, sums in self.roles.items()], "right_packs": self.right_packs,
                "suspects": self.suspects, "packs": self.packs, "unreadable": self.unreadable, "dropped": self.dropped, "first": self.first,
                "judged": {n: i for n, i in self.judged.items() if n in kept}, "begun": {n: k for n, k in self.begun.items() if n in kept}, "told": self.told,
                "wrong_packs": [n for n in self.wrong_packs if n in kept]}

    def _carry(self, event: Event) -> None:
        fresh = State()
        _expect(event, roles=list, first=(dict, type(None)),
                **{name: type(value) for name, value in vars(fresh).items() if name not in ("roles", "first")})
        for counts in ("right_packs", "begun"):
            _expect(event[counts], **{name: int for name in event[counts]})
        if event["first"] is not None:
            _expect(event["first"], pack=str, record=dict)
            _expect(event["first"]["record"], step=(int, type(None)))
        for name in event["wrong_packs"]:
            _expect({"wrong_packs": name}, wrong_packs=str)
        for suspect in event["suspects"]:
            _expect_suspect(suspect)
        for _, _, sums in event["roles"]:
            _expect({**vars(Sums()), **sums}, right=int, wrong=int, not_judged=int, step=(int, type(None)), last=str, words=str)
        self.roles = {(module, role): Sums(**sums) for module, role, sums in event["roles"]}
        for name in ("right_packs", "suspects", "packs", "unreadable", "dropped", "first", "judged", "begun", "wrong_packs", "told"):
            setattr(self, name, event[name])

    def merge(self, other: State) -> None:
        """Adds what another node judged: the sums of `other`."""
        for key, sums in other.roles.items():
            mine = self.roles.setdefault(key, Sums())
            newer = mine.step is None or (sums.step or 0) >= mine.step
            mine.right, mine.wrong, mine.not_judged = mine.right + sums.right, mine.wrong + sums.wrong, mine.not_judged + sums.not_judged
            if newer:
                mine.step, mine.last, mine.words = sums.step, sums.last, sums.words
        for module, count in other.right_packs.items():
            self.right_packs[module] = self.right_packs.get(module, 0) + count
        self.suspects += other.suspects
        self.packs, self.unreadable, self.dropped = self.packs + other.packs, self.unreadable + other.unreadable, self.dropped + other.dropped
        if other.first is not None and (self.first is None or before(other.first, self.first)):
            self.first = other.first

    def flips(self) -> list[str]:
        """What is said of each case that looks like bit flips: how many elements, and how many other packs of its module are right."""
        return [f"{s['case']}: {words}" for s in self.suspects for words in [self.flip_words(s)]]

    def flip_words(self, suspect: Mapping[str, Any]) -> str:
        """What is said of one suspect, in view of the other packs of its module. The hardware is never said to be the reason."""
        flips, module = suspect["flips"], suspect["module"]
        elements = f"{len(flips)} element{'s' if len(flips) != 1 else ''}"
        places = {(f["plane"], f["row"], f["col"], f["bit"]) for f in flips}
        again = [s for s in self.suspects if s["module"] == module and (s["pack"], s["case"]) != (suspect["pack"], suspect["case"])
                 and s["pack"] != suspect["pack"] and any((f["plane"], f["row"], f["col"], f["bit"]) in places for f in s["flips"])]
        others = self.right_packs.get(module, 0)
        if again:
            return f"single bits in {elements}, but {len(again)} other pack{'s are' if len(again) > 1 else ' is'} wrong in the same bit: rather wrong arithmetic or addresses"
        if not others:
            return f"single bits in {elements}; no other pack of this module is judged and right yet"
        return f"bit flips in {elements}, {others} other pack{'s' if others != 1 else ''} right"


def _expect(record: Mapping[str, Any], /, **types: Any) -> None:
    """Refuses a member of another type than a sidecar writes."""
    for name, kind in types.items():
        value = record.get(name)
        if not isinstance(value, kind):
            raise TypeError(f"{name}: {value!r:.60}")


def _expect_suspect(suspect: Mapping[str, Any]) -> None:
    _expect(suspect, pack=str, case=str, module=str, flips=list)
    for flip in suspect["flips"]:
        _expect(flip, plane=str, row=int, col=int, bit=int)


def before(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether one divergence stands before another in training; without steps the one that was judged first stays."""
    mine, theirs = a["record"].get("step"), b["record"].get("step")
    return mine is not None and theirs is not None and mine < theirs


def events_of(path: pathlib.Path) -> Iterator[Event]:
    """The events of a file. A last line that was cut off is left out. Raises AssayError for a broken line before it."""
    data = path.read_bytes()
    lines = data.split(b"\n")
    for number, text in enumerate(lines[:-1], 1):
        try:
            yield json.loads(text)
        except (ValueError, RecursionError):
            raise AssayError(f"{path}: expected JSON in line {number}, found {text[:60]!r}; move the file away to begin anew") from None


def state_of(path: pathlib.Path) -> State:
    """The sums of a ledger's file. Raises AssayError for a line that no sidecar wrote."""
    state = State()
    for number, event in enumerate(events_of(path), 1):
        try:
            state.add(event)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise AssayError(f"{path}: expected an event of a sidecar in line {number}, found {error!r}; move the file away to begin anew") from None
    return state


class Ledger:
    """The file of a sidecar. Each event is one line, on disk before the next work begins: after a kill, what has no line was not done."""

    def __init__(self, folder: pathlib.Path, most_bytes: int):
        self.folder, self.path, self.most_bytes = folder, folder / kName, most_bytes
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / (kName + ".new")
        if fresh.exists():   # a kill while files were changed: complete, if the old one has its new name already
            if self.path.exists():
                fresh.unlink()
            else:
                os.replace(fresh, self.path)
        self.path.touch()
        self._cut()
        self.state = state_of(self.path)
        self._file = open(self.path, "ab", buffering=0)

    def _cut(self) -> None:
        """Takes away a last line that a kill left unfinished."""
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            with open(self.path, "r+b") as f:
                f.truncate(whole)

    def write(self, event: Event) -> None:
        """Adds an event to the file and to the sums."""
        event = {"time": round(time.time(), 3), **event}
        self._file.write(json.dumps(event).encode() + b"\n")
        os.fsync(self._file.fileno())
        self.state.add(event)

    def rotate(self, present: Iterable[str]) -> None:
        """Begins a new file where this one is large; the one before it is kept once."""
        if os.fstat(self._file.fileno()).st_size < self.most_bytes:
            return
        fresh = self.folder / (kName + ".new")
        with open(fresh, "wb") as f:
            f.write(json.dumps(self.state.carried(present)).encode() + b"\n")
            f.flush()
            os.fsync(f.fileno())
        self._file.close()
        os.replace(self.path, self.folder / "verdicts.1.jsonl")
        os.replace(fresh, self.path)
        self._file = open(self.path, "ab", buffering=0)
        self.state = state_of(self.path)   # which has forgotten the packs that are gone

    def close(self) -> None:
        self._file.close()
