"""The process beside a training job: it judges packs as they come into a folder, in the order of the steps, and keeps the folder within its limit."""
from __future__ import annotations

import fnmatch
import json
import os
import pathlib
import re
import socket
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Protocol, Sequence

from ._errors import AssayError
from ._ledger import Event, Ledger
from ._records import Record, judge_pack
from ._watch_view import metrics, screen, told_pack

_MOST_TRIES = 20       # a pack whose judging ended this process so often is left alone
_PATIENCE_S = 10.0     # how long a pack that cannot be read may still be in the making


@dataclass
class Settings:
    """Of a sidecar; the options of `assay watch` (docs/python-sidecar.md)."""

    folder: pathlib.Path
    to: pathlib.Path
    only: str = "*"
    most_bytes: int = 2 << 30
    sdc: bool = False
    explain: str = "first"           # never, first or all: the divergences whose cause is looked for
    budget_s: float = 10.0
    threads: int = 1
    webhook: str = ""
    exit_on_divergence: bool = False
    prometheus: str = ""             # a file; empty: metrics.prom in `to`
    interval_s: float = 1.0


@dataclass(frozen=True)
class Waiting:
    """A pack in the folder. Its identity tells it from an earlier one of the same name."""

    name: str
    path: str
    size: int
    identity: str

    @property
    def order(self) -> tuple[Any, ...]:
        return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", self.name) if p)


class Judges(Protocol):
    """What judges packs: this process, or the workers of a cluster (assay.distributed). Answers come in the order of the paths, errors as text."""

    batch: int

    def judge(self, paths: Sequence[str], **settings: Any) -> Iterable[list[Record] | str]:
        """Judges packs; settings are those of judge_pack."""


class Here:
    """Judges in this process, one pack at a time."""

    batch = 1

    def judge(self, paths: Sequence[str], **settings: Any) -> Iterable[list[Record] | str]:
        for path in paths:
            try:
                yield judge_pack(path, **settings)
            except AssayError as error:
                yield str(error)


class Sidecar:
    """Judges what comes into a folder. `tick` does what there is to do now; `run` goes on until it is stopped."""

    def __init__(self, settings: Settings, judges: Judges | None = None, say: Callable[[str], None] | None = None):
        if not settings.folder.is_dir():
            raise AssayError(f"expected a folder of packs, found none at {settings.folder}; make it, or pass what assay.torch.watch has as to=")
        self.settings, self.judges = settings, judges or Here()
        self.ledger = Ledger(settings.to, max(min(settings.most_bytes // 16, 64 << 20), 1 << 16))
        self.say = say or (lambda text: None)
        self.stopped = False
        self.started, self.judged_here = time.monotonic(), 0
        self.recent: list[float] = []     # when the last packs were judged
        self.backlog = 0
        self._doubtful: dict[str, float] = {}   # packs that could not be read, since when
        self._next_webhook, self._wait_webhook = 0.0, 1.0

    # ---- the folder --------------------------------------------------------------------------------------------------

    def packs(self) -> list[Waiting]:
        """Every pack in the folder, in the order of the steps and ranks that their names say."""
        out = []
        with os.scandir(self.settings.folder) as entries:
            for entry in entries:
                if entry.name.endswith(".safetensors") and fnmatch.fnmatch(entry.name, self.settings.only):
                    try:
                        found = entry.stat()
                    except FileNotFoundError:
                        continue
                    out.append(Waiting(entry.name, entry.path, found.st_size, f"{found.st_size}:{found.st_mtime_ns}"))
        return sorted(out, key=lambda w: w.order)

    def waiting(self, packs: Iterable[Waiting]) -> list[Waiting]:
        """Those that are not judged yet."""
        return [w for w in packs if self.ledger.state.judged.get(w.name) != w.identity]

    def make_room(self) -> None:
        """Removes packs until the folder and what this process writes are within the limit: right ones first, the oldest of them; then wrong ones, the first
        divergence last; then those that are not judged, the newest of them, which counts as dropped."""
        own = sum(f.stat().st_size for f in self.settings.to.iterdir() if f.is_file())
        packs = self.packs()
        held = own + sum(w.size for w in packs)
        if held <= self.settings.most_bytes:
            return
        open_packs = {w.name for w in self.waiting(packs)}
        first = (self.ledger.state.first or {}).get("pack")
        wrong = self.ledger.state.wrong_packs
        judged = [w for w in packs if w.name not in open_packs]
        order = [w for w in judged if w.name not in wrong] + [w for w in judged if w.name in wrong and w.name != first]
        order += [w for w in reversed(packs) if w.name in open_packs] + [w for w in judged if w.name == first]
        for w in order:
            if held <= self.settings.most_bytes:
                break
            if w.name in open_packs:
                self.ledger.write({"event": "dropped", "pack": w.name, "identity": w.identity})
            try:
                os.unlink(w.path)
            except FileNotFoundError:
                pass
            held -= w.size

    # ---- judging -----------------------------------------------------------------------------------------------------

    def tick(self) -> int:
        """Judges what waits now, as many packs as one batch has, and tells the rest of the world. Returns how many were judged."""
        queue = self.waiting(self.packs())
        self.backlog = len(queue)
        batch = queue[:self.judges.batch]
        done = 0
        for w in batch:
            if self.ledger.state.begun.get(w.name, 0) >= _MOST_TRIES:
                self._end(w, [], f"judging it ended the process {_MOST_TRIES} times")
                batch = [b for b in batch if b is not w]
                done += 1
        for w in batch:
            if w.name not in self._doubtful:
                self.ledger.write({"event": "begin", "pack": w.name})
        settings = self.settings
        looks = settings.explain == "all" or settings.explain == "first" and self.ledger.state.first is None
        answers = self.judges.judge([w.path for w in batch], sdc=settings.sdc, cause_s=settings.budget_s if looks else 0.0, threads=settings.threads)
        for w, answer in zip(batch, answers):
            done += self._take(w, answer)
        if done:
            self.ledger.rotate(w.name for w in self.packs())
        self.make_room()
        self._tell()
        return done

    def _take(self, w: Waiting, answer: list[Record] | str) -> bool:
        if not isinstance(answer, str):
            self._end(w, answer, "")
            return True
        if not os.path.exists(w.path):
            self.ledger.state.begun.pop(w.name, None)
            return False
        since = self._doubtful.setdefault(w.name, time.monotonic())
        if time.monotonic() - since < _PATIENCE_S and time.time() - os.stat(w.path).st_mtime < _PATIENCE_S:
            self.ledger.state.begun.pop(w.name, None)
            return False   # perhaps it is still being written
        self._end(w, [], answer)
        return True

    def _end(self, w: Waiting, records: list[Record], error: str) -> None:
        event: Event = {"event": "pack", "pack": w.name, "identity": w.identity, "cases": records}
        if error:
            event["error"] = error
        known = set(map(self._name_of, self.ledger.state.suspects))
        self.ledger.write(event)
        self._doubtful.pop(w.name, None)
        self.judged_here += 1
        self.backlog -= 1
        self.recent = [*self.recent[-99:], time.monotonic()]
        state = self.ledger.state
        fresh = [s for s in state.suspects if self._name_of(s) not in known]
        self.say(told_pack(w.name, records, error, [f"{s['case']}: {state.flip_words(s)}" for s in fresh]))

    @staticmethod
    def _name_of(suspect: Event) -> tuple[str, str]:
        return suspect["pack"], suspect["case"]

    # ---- the rest of the world ---------------------------------------------------------------------------------------

    def rate(self) -> float:
        """Packs judged in a second, of the last hundred."""
        if len(self.recent) < 2:
            return 0.0
        return len(self.recent) / max(time.monotonic() - self.recent[0], 1e-9)

    def metrics(self) -> str:
        """The sums as Prometheus' text format."""
        return metrics(self.ledger.state, self.backlog, self.rate())

    def screen(self, width: int = 120, height: int = 40) -> str:
        """The terminal's view."""
        return screen(self.ledger.state, str(self.settings.folder), self.backlog, self.rate(), width, height)

    def _tell(self) -> None:
        target = pathlib.Path(self.settings.prometheus or self.settings.to / "metrics.prom")
        part = target.with_name(target.name + ".part")
        part.write_text(self.metrics())
        os.replace(part, target)
        state = self.ledger.state
        if not self.settings.webhook or state.first is None or state.told or time.monotonic() < self._next_webhook:
            return
        body = json.dumps({"event": "divergence", "host": socket.gethostname(), "folder": str(self.settings.folder), **state.first}).encode()
        request = urllib.request.Request(self.settings.webhook, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10):
                self.ledger.write({"event": "webhook", "pack": state.first["pack"]})
        except (OSError, ValueError) as error:
            print(f"assay watch: the webhook did not take the divergence: {error}; tried again in {self._wait_webhook:.0f} s", file=sys.stderr)
            self._next_webhook = time.monotonic() + self._wait_webhook
            self._wait_webhook = min(2 * self._wait_webhook, 300.0)

    def run(self, *, once: bool = False, idle_s: float = 0.0, show: Callable[[], None] | None = None) -> int:
        """Judges until it is stopped; `once`: until nothing waits; idle_s: until nothing has come for so long. Returns the exit status: 1 where something
        is wrong, 3 where nothing was judged, else 0."""
        last = time.monotonic()
        try:
            while not self.stopped:
                done = self.tick()
                if done:
                    last = time.monotonic()
                if show is not None:
                    show()
                state = self.ledger.state
                if state.first is not None and self.settings.exit_on_divergence:
                    break
                if done:
                    continue
                unread = bool(self._doubtful)
                if once and not unread or idle_s and time.monotonic() - last >= idle_s:
                    break
                time.sleep(min(self.settings.interval_s, 1.0) if unread else self.settings.interval_s)
        finally:
            self.ledger.close()
        right, wrong, _ = self.ledger.state.cases
        return 1 if wrong else 0 if right else 3
