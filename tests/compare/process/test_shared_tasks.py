#!/usr/bin/python3
"""One command as one process, as several that share its tasks over MPI (--mpi), and killed and gone on with (--resume): the output, the
reports and the exit status are the same each time, but for times.

    tests/compare/process/test_shared_tasks.py build/mpi/bin/assay [--efficiency]

Without mpirun only what needs none is tried, and the rest counts as skipped. The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "ci"))
from tally import ROOT, Tally, finish  # noqa: E402

# Root and fewer cores than processes are what a container has.
kEnvironment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "NO_COLOR": "1"}
kTimes = [(re.compile(r'("[a-z_]*seconds": ?|"time": ?)[-+.e\d]+'), r"\1T"), (re.compile(r'(time|timestamp)="[^"]*"'), r'\1="T"'),
          (re.compile(r"\b[\d.]+ (ms|s|min)\b"), "T")]


def without_times(text):
    for pattern, word in kTimes:
        text = pattern.sub(word, text)
    return text


def launched(processes, command):
    return (["mpirun", "-n", str(processes)] if processes else []) + [str(c) for c in command] + (["--mpi"] if processes else [])


class Checks:
    def __init__(self, program, folder):
        self.tally, self.program, self.folder, self.number = Tally(), program, folder, 0

    def check(self, name, problem, output=""):
        self.tally += Tally(passed=not problem, failed=bool(problem))
        if problem:
            print(f"{name}: {problem}\n{output}", flush=True)

    def outcome(self, processes, arguments, wait=600):
        """Exit status, output and reports of the command, without times."""
        self.number += 1
        reports = [self.folder / f"{self.number}.{kind}" for kind in ("jsonl", "xml")]
        command = [self.program, "run", *arguments, "--jsonl", reports[0], "--junit", reports[1]]
        done = subprocess.run(launched(processes, command), cwd=ROOT, env=kEnvironment, capture_output=True, text=True, errors="replace", timeout=wait)
        texts = [without_times(done.stdout), *(without_times(r.read_text()) if r.exists() else None for r in reports)]
        return (done.returncode, *texts), done.stderr

    def killed(self, processes, arguments, victim, journal, after):
        """Starts the command, kills the process that `victim` finds once the journal has `after` bytes; the exit status and error output."""
        child = subprocess.Popen(launched(processes, [self.program, "run", *arguments]), cwd=ROOT, env=kEnvironment, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, errors="replace")
        until = time.monotonic() + 120
        while child.poll() is None and time.monotonic() < until and not (journal.exists() and journal.stat().st_size > after):
            time.sleep(0.01)
        if child.poll() is None:
            os.kill(victim(child.pid), signal.SIGKILL)
        try:
            errors = child.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            child.kill()
            return "no end", ""
        return child.returncode, errors


def children(pid):
    return [int(c) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]


def relay_of(launcher, rank):
    for pid in children(launcher):
        if f"OMPI_COMM_WORLD_RANK={rank}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text() + "\0":
            return pid
    raise LookupError(f"no process of rank {rank}")


def difference(want, found):
    for name, a, b in zip(("exit status", "output", "JSON lines", "JUnit"), want, found):
        if a != b:
            lines = [(x, y) for x, y in zip(str(a).splitlines(), str(b).splitlines()) if x != y]
            return f"another {name}: {lines[:1] or (a, b)}"
    return None


def journal_length(folder):
    return (folder / "results.journal").stat().st_size


# Lines that pass, fail, and crash their worker; and training cases.
def commands(plugins):
    return {"smoke and scenarios": ["smoke", "S-21", "S-96", "--subject", "host,lanes"],
            "a plugin that is wrong": ["smoke", "--filter", "mxfp8", "--plugin", plugins / "libfaulty_plugin_rounding.so", "--budget", "0"],
            "a plugin that crashes": ["smoke", "--filter", "mxfp8", "--plugin", plugins / "libfaulty_plugin_crash.so", "--budget", "0"],
            "the first failure": ["smoke", "--filter", "mxfp8", "--plugin", plugins / "libfaulty_plugin_rounding.so", "--budget", "0", "--first"]}


def goes_on(checks, name, arguments, want, processes, victim):
    folder = checks.folder / name.replace(" ", "_")
    arguments = [*arguments, "--resume", folder]
    status, errors = checks.killed(processes, arguments, victim, folder / "results.journal", 4000)
    checks.check(f"{name}: it ends", None if status not in (0, "no end") else f"exit {status}", errors)
    kept = journal_length(folder)
    found, errors = checks.outcome(processes, arguments)
    checks.check(f"{name}: goes on", difference(want, found), errors)
    checks.check(f"{name}: what was kept is not done again", None if 4000 < kept < journal_length(folder) else f"{kept} bytes, then {journal_length(folder)}")
    whole = journal_length(folder)
    found, errors = checks.outcome(0, arguments)
    checks.check(f"{name}: all is kept", difference(want, found) or (None if whole == journal_length(folder) else "something was done again"), errors)
    return folder


def efficiency(checks, arguments):
    """Wall and processor seconds as one process with one worker, as one rank and as two; interleaved."""
    rows = {}
    for _ in range(3):
        for processes in (0, 1, 2):
            before, start = os.times(), time.monotonic()
            checks.outcome(processes, [*arguments, *([] if processes else ["--jobs", "1"])])
            after = os.times()
            used = after.children_user + after.children_system - before.children_user - before.children_system
            wall = time.monotonic() - start
            best = rows.get(processes, (1e9, 1e9))
            rows[processes] = (min(best[0], wall), min(best[1], used))
    for processes, (wall, used) in rows.items():
        print(f"{processes} ranks: {wall:.1f} s, {used:.1f} s of processor time", flush=True)
    print(f"efficiency from 1 to 2 ranks: {rows[1][0] / rows[2][0] / 2:.2f} by the clock, {rows[1][1] / rows[2][1]:.2f} in processor time")


def certificate(checks, folder, processes):
    path = folder / f"certificate_{processes}.json"
    command = [checks.program, "certify", "--quick", "--only", "cast e4m3", "-o", path]
    done = subprocess.run(launched(processes, command), cwd=ROOT, env=kEnvironment, capture_output=True, text=True, errors="replace", timeout=600)
    made = json.loads(path.read_text()) if path.exists() else {}
    return (done.returncode, without_times(done.stdout).replace(str(path), "PATH"), {k: v for k, v in made.items() if k != "run"}), done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--efficiency", action="store_true", help="print how long the suite `smoke` takes with one and two ranks")
    args = parser.parse_args()
    program = args.program.resolve()
    with tempfile.TemporaryDirectory() as made:
        checks = Checks(program, pathlib.Path(made))
        plugins = program.parent.parent / "plugins"
        suite = ["smoke", "S-21", "S-96", "--subject", "host"]
        if args.efficiency:
            efficiency(checks, suite)
            return
        want, errors = checks.outcome(0, suite)
        checks.check("smoke", None if want[0] == 0 else f"exit {want[0]}", errors)
        folder = goes_on(checks, "one process killed", suite, want, 0, lambda pid: pid)
        found, errors = checks.outcome(0, [*suite, "--filter", "mxfp8", "--resume", folder])
        checks.check("other lines with the same folder", None if found[0] == 2 and "results of another command" in errors else f"exit {found[0]}", errors)
        if not shutil.which("mpirun"):
            print("shared tasks over MPI: skipped: no mpirun; type:  ci/setup --mpi")
            checks.tally += Tally(skipped=1)
            finish(checks.tally)
        for name, arguments in commands(plugins).items():
            alone, errors = checks.outcome(0, arguments)
            for processes in (2, 3):
                found, errors = checks.outcome(processes, arguments)
                checks.check(f"{name}, {processes} processes", difference(alone, found), errors)
        goes_on(checks, "a rank killed", suite, want, 3, lambda pid: relay_of(pid, 1))
        goes_on(checks, "a program killed", suite, want, 3, lambda pid: children(relay_of(pid, 2))[0])
        goes_on(checks, "the first rank killed", suite, want, 2, lambda pid: relay_of(pid, 0))
        alone, _ = certificate(checks, checks.folder, 0)
        found, errors = certificate(checks, checks.folder, 2)
        checks.check("certificate", None if alone == found and alone[0] == 0 else f"{alone}\n{found}", errors)
    finish(checks.tally)


if __name__ == "__main__":
    main()
