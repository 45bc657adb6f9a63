#!/usr/bin/python3
"""Commands whose tasks several processes share over MPI (--mpi): output, reports and exit status are those of one process, but for times, and where one
of them is killed the run ends with words that say which, and goes on with --resume. Nothing may wait for ever: each command has a time limit.

    tests/compare/process/test_shared_tasks.py build/mpi/bin/assay

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compared_runs import ROOT, Checks, difference, signalled, without_times  # noqa: E402
from tally import Tally, finish  # noqa: E402

# Root and fewer cores than processes are what a container has.
kEnvironment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
kSuite = ["smoke", "S-21", "S-96", "--subject", "host"]


def launcher(processes):
    return ["mpirun", "-n", str(processes)]


def commands(plugins):
    """Lines that pass, fail, and crash their worker; training cases; a command that every process refuses. With the exit status of each."""
    faulty = ["smoke", "--filter", "mxfp8", "--budget", "0.001", "--plugin"]
    return {"smoke and scenarios": (["smoke", "S-21", "S-96", "--subject", "host,lanes", "--budget", "0.001"], 1),
            "a plugin that is wrong": ([*faulty, plugins / "libfaulty_plugin_rounding.so"], 1),
            "a plugin that crashes": ([*faulty, plugins / "libfaulty_plugin_crash.so"], 1),
            "the first failure": ([*faulty, plugins / "libfaulty_plugin_rounding.so", "--first"], 1),
            "no such suite": (["smork"], 2)}


def rank_of(mpirun, rank):
    for task in pathlib.Path(f"/proc/{mpirun}/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            if f"OMPI_COMM_WORLD_RANK={rank}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text() + "\0":
                return pid
    raise LookupError(f"no process of rank {rank}")


def goes_on(checks, name, want, processes, victim, words, number=signal.SIGKILL):
    folder = checks.folder / name.replace(" ", "_")
    journal = folder / "results.journal"
    arguments = [*kSuite, "--mpi", "--resume", folder]
    start = time.monotonic()
    child = checks.start([*launcher(processes), checks.program, "run", *arguments])
    status, out, errors = signalled(checks, child, journal, 4000, number, victim)
    took = time.monotonic() - start
    checks.check(f"{name}: it ends", None if status not in (0, "no end", "too late") else f"{status}, after {took:.1f} s", errors)
    checks.check(f"{name}: it says so", None if words in out + errors else f"nothing of '{words}'", out[-2000:] + errors)
    kept = journal.stat().st_size
    found, errors = checks.outcome(arguments, launcher(processes))
    checks.check(f"{name}: goes on", difference(want, found), errors)
    whole = journal.stat().st_size
    checks.check(f"{name}: what was kept is not done again", None if 4000 <= kept < whole else f"{kept} bytes, then {whole}")
    found, errors = checks.outcome([*kSuite, "--resume", folder])
    checks.check(f"{name}: one process goes on as well", difference(want, found) or (None if whole == journal.stat().st_size else "something was done again"), errors)


def certificate(checks, launched):
    path = checks.folder / f"certificate_{len(launched)}.json"
    command = [*launched, checks.program, "certify", "--quick", "--only", "cast e4m3", "-o", path, *(["--mpi"] if launched else [])]
    status, out, errors = checks.end(checks.start(command))
    made = json.loads(path.read_text()) if path.exists() else {}
    return (status, without_times(out).replace(str(path), "PATH"), {k: v for k, v in made.items() if k != "run"}), errors


def stopped(checks, want):
    """A rank that a debugger or a page fault holds up is waited for."""
    child = checks.start([*launcher(2), checks.program, "run", *kSuite, "--mpi"])
    time.sleep(1)
    pid = rank_of(child.pid, 1)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        os.kill(pid, number)
        time.sleep(1)
    status, out, errors = checks.end(child)
    checks.check("a rank that is held up", None if (status, without_times(out)) == want[:2] else f"exit {status}", errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    args = parser.parse_args()
    if not shutil.which("mpirun"):
        print("shared tasks over MPI: skipped: no mpirun; type:  ci/setup --mpi")
        finish(Tally(skipped=1))
    with tempfile.TemporaryDirectory() as made:
        checks = Checks((ROOT / args.program).resolve(), pathlib.Path(made), kEnvironment)
        want, errors = checks.outcome(kSuite)
        checks.check("smoke", None if want[0] == 0 else f"exit {want[0]}", errors)
        for name, (arguments, status) in commands(checks.program.parent.parent / "plugins").items():
            alone, errors = checks.outcome(arguments)
            checks.check(name, None if alone[0] == status else f"exit {alone[0]}", errors)
            for processes in (1, 2, 3):
                found, errors = checks.outcome([*arguments, "--mpi"], launcher(processes))
                checks.check(f"{name}, {processes} processes", difference(alone, found), errors)
        goes_on(checks, "a rank killed", want, 3, lambda pid: rank_of(pid, 1), "rank 1, ")
        goes_on(checks, "the first rank killed", want, 3, lambda pid: rank_of(pid, 0), "signal 9")
        # What rank 0 says at the end mpirun may no longer pass on.
        goes_on(checks, "the launcher told to end", want, 2, lambda pid: pid, "", signal.SIGTERM)
        goes_on(checks, "Ctrl-C", want, 2, lambda pid: pid, "", signal.SIGINT)
        stopped(checks, want)
        alone, _ = certificate(checks, [])
        found, errors = certificate(checks, launcher(2))
        checks.check("certificate", None if alone == found and alone[0] == 0 else f"{alone}\n{found}", errors)
    finish(checks.tally)


if __name__ == "__main__":
    main()
