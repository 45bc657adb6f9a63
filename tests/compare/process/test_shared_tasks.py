#!/usr/bin/python3
"""Commands whose tasks several processes share over MPI (--mpi): output, reports and exit status are those of one process, but for times, and where one
of them is killed the run ends with words that say which, and the same command goes on, with --resume where it has that: run, check, certify and hunt. Nothing may wait for ever: each command has a
time limit.

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


def outcome_of(checks, words, report, launched=()):
    """(exit status, output, report) of a command, without times; and its errors."""
    status, out, errors = checks.end(checks.start([*launched, checks.program, *words]))
    made = json.loads(report.read_text()) if report.exists() else {}
    run = made.pop("run", {})   # of a certificate: when, how long, and with how many workers
    if launched:
        checks.check("a process has one worker", None if run.get("jobs", 1) == 1 else f"{run['jobs']} workers")
    return (status, without_times(out).replace(str(report), "REPORT"), made), errors


def report_of(checks, name):
    return checks.folder / f"{name}.json"


def journal_in(report):
    return pathlib.Path(f"{report}.results") / "results.journal"


def of_check(report, *more):
    return ["check", "fixtures/packs", "--no-cause", "--json", report, *more]


def of_certify(report, *more):
    return ["certify", "--quick", "--only", "kernels: quantize mxfp4", "-o", report, *more]


def shares(checks, name, words_of, status):
    """A command that writes one report, as one process and as several. Returns what one process gave."""
    report = report_of(checks, name)
    alone, errors = outcome_of(checks, words_of(report, "--jobs", "1"), report)
    checks.check(name, None if alone[0] == status else f"exit {alone[0]}", errors)
    for processes in (1, 2, 3):
        report.unlink()
        found, errors = outcome_of(checks, words_of(report, "--mpi"), report, launcher(processes))
        checks.check(f"{name}, {processes} processes", difference(alone, found), errors)
    return alone


def killed(checks, name, words_of, size, want):
    """Rank 1 of such a command is killed; then the same command does what is missing."""
    report = report_of(checks, f"{name}_killed")
    status, out, errors = signalled(checks, checks.start([*launcher(3), checks.program, *words_of(report, "--mpi")]), journal_in(report), size,
                                    victim=lambda pid: rank_of(pid, 1))
    checks.check(f"{name}, a rank killed: it ends", None if status not in (0, "no end", "too late") else f"{status}", errors)
    checks.check(f"{name}, a rank killed: it is named", None if names_rank(1, out + errors) else "not named", out[-2000:] + errors)
    report.unlink(missing_ok=True)   # a build from uncommitted sources takes over no part of a certificate, but its results
    found, errors = outcome_of(checks, words_of(report, "--mpi"), report, launcher(2))
    checks.check(f"{name}, a rank killed: goes on", difference(want, found), errors)
    checks.check(f"{name}, a rank killed: takes over what there was", None if "takes over" in errors else "not said", errors)


def hunts(checks, plugin):
    """Lines that the first process draws while it goes on: the same, the same findings, and the same for the next run."""
    gave = []
    for launched in ([], launcher(2), launcher(3)):
        folder = checks.folder / f"hunt_{len(gave)}"
        words = ["hunt", "--plugin", plugin, "--batches", "2", "--seed", "3", "--budget", "20", "--to", folder, *(["--mpi"] if launched else [])]
        status, out, errors = checks.end(checks.start([*launched, checks.program, *words]))
        kept = {name: (folder / name).read_text() for name in ("found.cases", "kept.cases") if (folder / name).exists()}
        gave.append((status, without_times(out).replace(str(folder), "FOLDER"), kept))
        checks.check(f"hunt, {len(gave)} processes", difference(gave[0], gave[-1]) if kept and status == 1 else f"exit {status}, {list(kept)}", errors)


def batches_of(folder):
    """The numbers of the batches of which the journal of a hunt says that all lines were judged; its last line may be cut short."""
    rows = [json.loads(row) for row in (folder / "hunt.jsonl").read_text().splitlines() if row.endswith("}")]
    return [row["batch"] for row in rows if row.get("record") == "batch" and row["whole"]]


def hunt_killed(checks):
    """Rank 1 of a hunt is killed; the same command goes on with the batch that it was at, and one process after it."""
    folder = checks.folder / "hunt_killed"
    words = ["hunt", "--subject", "host", "--only", "quantize mxfp8", "--seed", "3", "--to", folder]
    status, out, errors = signalled(checks, checks.start([*launcher(3), checks.program, *words, "--mpi"]), folder / "hunt.jsonl", 1500,
                                    victim=lambda pid: rank_of(pid, 1))
    checks.check("hunt, a rank killed: it ends", None if status not in (0, "no end", "too late") else f"{status}", errors)
    checks.check("hunt, a rank killed: it is named", None if names_rank(1, out + errors) else "not named", out[-2000:] + errors)
    before = batches_of(folder)
    for launched, more in ((launcher(2), ["--mpi"]), ([], [])):
        status, out, errors = checks.end(checks.start([*launched, checks.program, *words, "--batches", "2", *more]))
        checks.check("hunt, a rank killed: goes on" + (" as one process" if not more else ""), None if status == 0 else f"exit {status}", errors)
    after = batches_of(folder)
    checks.check("hunt, a rank killed: no batch is left out or done again", None if before and after == list(range(len(before) + 4)) else f"{before}, then {after}")


def names_rank(rank, text):
    """Rank 0 says who has ended, unless the launcher ends it first; then the launcher says it."""
    return f"rank {rank}, " in text or f"rank {rank} with PID" in text


def goes_on(checks, name, want, processes, victim, said, number=signal.SIGKILL):
    folder = checks.folder / name.replace(" ", "_")
    journal = folder / "results.journal"
    arguments = [*kSuite, "--mpi", "--resume", folder]
    start = time.monotonic()
    child = checks.start([*launcher(processes), checks.program, "run", *arguments])
    status, out, errors = signalled(checks, child, journal, 4000, number, victim)
    took = time.monotonic() - start
    checks.check(f"{name}: it ends", None if status not in (0, "no end", "too late") else f"{status}, after {took:.1f} s", errors)
    checks.check(f"{name}: it says so", None if said(out + errors) else "not said", out[-2000:] + errors)
    kept = journal.stat().st_size
    found, errors = checks.outcome(arguments, launcher(processes))
    checks.check(f"{name}: goes on", difference(want, found), errors)
    whole = journal.stat().st_size
    checks.check(f"{name}: what was kept is not done again", None if 4000 <= kept < whole else f"{kept} bytes, then {whole}")
    found, errors = checks.outcome([*kSuite, "--resume", folder])
    checks.check(f"{name}: one process goes on as well", difference(want, found) or (None if whole == journal.stat().st_size else "something was done again"), errors)


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
        goes_on(checks, "a rank killed", want, 3, lambda pid: rank_of(pid, 1), lambda text: names_rank(1, text))
        goes_on(checks, "the first rank killed", want, 3, lambda pid: rank_of(pid, 0), lambda text: "signal 9" in text)
        # What rank 0 says at the end mpirun may no longer pass on.
        goes_on(checks, "the launcher told to end", want, 2, lambda pid: pid, lambda _: True, signal.SIGTERM)
        goes_on(checks, "Ctrl-C", want, 2, lambda pid: pid, lambda _: True, signal.SIGINT)
        stopped(checks, want)
        dumps = shares(checks, "check", of_check, 1)
        killed(checks, "check", lambda report, *more: of_check(report, "--resume", f"{report}.results", *more), 4000, dumps)
        hunt_killed(checks)
        hunts(checks, checks.program.parent.parent / "plugins/libfaulty_plugin_rounding.so")
        certificate = shares(checks, "certify", of_certify, 0)
        killed(checks, "certify", lambda report, *more: of_certify(report, "--resume", *more), 300, certificate)
    finish(checks.tally)


if __name__ == "__main__":
    main()
