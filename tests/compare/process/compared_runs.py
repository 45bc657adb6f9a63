"""Runs of one command whose outcomes must be equal: exit status, text, JSON lines and JUnit, but for times."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "ci"))
from tally import ROOT, Tally  # noqa: E402

kLimit = 300   # seconds for a command: a hang is a failure
kTimes = [(re.compile(r'("[a-z_]*seconds": ?|"time": ?)[-+.e\d]+'), r"\1T"), (re.compile(r'(time|timestamp)="[^"]*"'), r'\1="T"'),
          (re.compile(r"\b[\d.]+ (ms|s|min)\b"), "T")]


def without_times(text):
    for pattern, word in kTimes:
        text = pattern.sub(word, text)
    return text


def difference(want, found):
    for name, a, b in zip(("exit status", "output", "JSON lines", "JUnit"), want, found):
        if a != b:
            lines = [(x, y) for x, y in zip(str(a).splitlines(), str(b).splitlines()) if x != y]
            return f"another {name}: {lines[:1] or (a, b)}"
    return None


class Checks:
    def __init__(self, program, folder, environment=None):
        self.tally, self.program, self.folder, self.number = Tally(), program, folder, 0
        self.environment = {**os.environ, "NO_COLOR": "1", **(environment or {})}

    def check(self, name, problem, output=""):
        self.tally += Tally(passed=not problem, failed=bool(problem))
        if problem:
            print(f"{name}: {problem}\n{output}", flush=True)

    def start(self, command, **options):
        return subprocess.Popen([str(c) for c in command], cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                errors="replace", **options)

    def end(self, child, limit=kLimit):
        """Exit status, output and errors; after the limit the status is "no end"."""
        try:
            out, errors = child.communicate(timeout=limit)
            return child.returncode, out, errors
        except subprocess.TimeoutExpired:
            child.kill()
            out, errors = child.communicate()
            return "no end", out, errors

    def outcome(self, arguments, launcher=(), **options):
        """(exit status, output, JSON lines, JUnit) of `run`, without times; and its errors."""
        self.number += 1
        reports = [self.folder / f"{self.number}.{kind}" for kind in ("jsonl", "xml")]
        child = self.start([*launcher, self.program, "run", *arguments, "--jsonl", reports[0], "--junit", reports[1]], **options)
        status, out, errors = self.end(child)
        texts = [without_times(out), *(without_times(r.read_text()) if r.exists() else None for r in reports)]
        return (status, *texts), errors


def signalled(checks, child, journal, size, number=signal.SIGKILL, victim=None):
    """Sends the signal once the journal has so many bytes: to the child, or to what `victim` makes of its number. Exit status, output, errors; the
    status is "too late" where the child had ended before."""
    until = time.monotonic() + kLimit
    while child.poll() is None and time.monotonic() < until and not (journal.exists() and journal.stat().st_size >= size):
        time.sleep(0.002)
    late = child.poll() is not None
    if not late:
        os.kill(victim(child.pid) if victim else child.pid, number)
    status, out, errors = checks.end(child, 60)
    return "too late" if late else status, out, errors
