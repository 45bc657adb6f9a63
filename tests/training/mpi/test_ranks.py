#!/usr/bin/python3
"""Ranks as threads and as MPI processes: the suite `ranks` gives the same bytes and the same collectives both ways, and a rank that dies,
hangs, comes with something else or hands out wrong bytes ends the run with who waited for whom.

    tests/training/mpi/test_ranks.py build/mpi/bin/assay build/mpi/bin/faulty_ranks [--subject reference,host]

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "ci"))
from tally import ROOT, Tally, finish, read_tally  # noqa: E402

kDeadline = 3   # seconds that a rank of a faulty run waits
# Root and fewer cores than processes are what a container has.
kEnvironment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "NO_COLOR": "1"}


def run(processes, command, limit, variables={}):
    """(exit status, output, error output, seconds) of the command as so many processes; as itself where that is 0."""
    start = time.monotonic()
    launched = ["mpirun", "-n", str(processes), *map(str, command)] if processes else [str(c) for c in command]
    try:
        done = subprocess.run(launched, cwd=ROOT, env={**kEnvironment, **variables}, capture_output=True, text=True, errors="replace", timeout=limit)
    except subprocess.TimeoutExpired as late:
        return "no end", (late.stdout or b"").decode(errors="replace"), (late.stderr or b"").decode(errors="replace"), limit
    return done.returncode, done.stdout, done.stderr, time.monotonic() - start


def transcript_of(path):
    """What ranks did, by line and subject; without what names engine and process, and the processes apart."""
    told, processes = {}, {}
    for text in path.read_text().splitlines():
        record = json.loads(text)
        key = (record["line"], record["subject"])
        processes[key] = {tuple(sorted({rank["process"] for rank in run["ranks"]})) for run in record["runs"] if run["ranks"]}
        for one in record["runs"]:
            for rank in one["ranks"]:
                del rank["process"]
        told[key] = record["runs"]
    return told, processes


class Checks:
    def __init__(self):
        self.tally = Tally()

    def check(self, name, problem, output=""):
        self.tally += Tally(passed=not problem, failed=bool(problem))
        if problem:
            print(f"{name}: {problem}\n{output}", flush=True)


def same_both_ways(checks, program, subjects, folder):
    """The suite `ranks`: as threads, and as 2 and 4 processes."""
    def judged(processes):
        path = folder / f"{processes}.jsonl"
        status, output, errors, _ = run(processes, [program, "run", "ranks", "--subject", subjects, "--transcript", path], 600)
        tally = read_tally(output)
        checks.check(f"ranks, {processes} processes", None if status == 0 and tally and tally.good() else f"exit {status}", output + errors)
        return tally or Tally(), *(transcript_of(path) if path.exists() else ({}, {}))

    threads, told, _ = judged(0)
    for processes in (2, 4):
        tally, told_here, where = judged(processes)
        needed = {key: max(run["size"] for run in runs) for key, runs in told.items()}
        possible = {key for key, size in needed.items() if size <= processes}
        checks.check(f"{processes} processes: cases", None if set(told_here) == possible and possible else f"expected {sorted(possible)}, found {sorted(told_here)}")
        checks.check(f"{processes} processes: counts", None if (tally.passed, tally.skipped) == (len(possible), len(needed) - len(possible)) else f"{tally}, of {threads} as threads")
        for key in sorted(possible & set(told_here)):
            checks.check(f"{processes} processes: {key}", None if told_here[key] == told[key] else "other collectives or shards than as threads")
            alone = [group for group in where[key] if len(group) < 2]
            checks.check(f"{processes} processes: {key} in processes of their own", f"one process has all of {alone}" if alone or not where[key] else None)


def carried_by_nccl(checks, program, subjects, folder):
    """One scenario over NCCL against threads; skipped where the program says why NCCL cannot be. Another word is refused."""
    def judged(processes, by):
        path = folder / f"carried by {by}.jsonl"
        status, output, errors, _ = run(processes, [program, "run", "S-96", "--subject", subjects, "--transcript", path], 300, {"ASSAY_RANKS": by})
        return status, output + errors, transcript_of(path)[0] if path.exists() else {}

    status, output, _ = judged(2, "pigeons")
    checks.check("another word", None if status == 2 and "expected mpi or nccl" in output else f"exit {status}", output)
    status, output, told = judged(2, "nccl")
    if status == 2 and (why := re.search(r"ASSAY_RANKS=nccl: (expected .*found .*)", output)):
        print(f"ranks over NCCL: skipped: {why[1]}", flush=True)
        checks.tally += Tally(skipped=1)
        return
    checks.check("ranks over NCCL", None if status == 0 and told and told == judged(0, "threads")[2] else f"exit {status}", output)


# The fault; on which ranks; what its scenario's screen says, with RANK for the faulty rank; whether ranks meet again afterwards.
kFaults = [
    ("none", [0], None, True),
    ("delay", [0, 1, 2], None, True),
    ("corrupt", [0, 1, 2], r"what rank RANK gathered", True),
    ("throw", [0, 2], r"a shard that cannot be", True),
    ("kind", [1], r"the ranks disagree: .*rank 0 has all_gather uint8 4 of dp, meeting 5; rank 1 has all_reduce_max float32 1 of dp, meeting 5", True),
    ("dtype", [2], r"the ranks disagree: .*rank 1 has all_gather uint8 4 of dp, meeting 5; rank 2 has all_gather int16 4 of dp, meeting 5", True),
    ("shape", [0], r"the ranks disagree: .*rank 0 has all_gather uint8 5 of dp, meeting 5; rank 1 has all_gather uint8 4 of dp, meeting 5", True),
    ("leave", [1], r"the ranks disagree: .*rank 1 has the end of its work of dp, meeting 5", True),
    ("hang", [0, 1, 2], r"rank \d of 3 waited [\d.]+ s for rank RANK in meeting 5 \(all_gather uint8 4 of dp\)", False),
    ("kill", [0, 1, 2], r"rank \d of 3 waited [\d.]+ s for rank RANK in meeting 5 \(all_gather uint8 4 of dp\)", False),
    ("exit", [1], r"rank \d of 3 waited [\d.]+ s for rank RANK in meeting 5 \(all_gather uint8 4 of dp\)", False),
]


# What the repro of a failure begins with, as threads and as processes.
kRepro = (r"repro +assay run ", r"repro +mpirun -n 3 \S*faulty_ranks run ")


def problem_of(fault, rank, processes, words, again, status, output, errors, seconds):
    if status == "no end":
        return "it hung"
    tally = read_tally(output)
    said = output if rank != 0 or again else output + errors   # the first process cannot report its own end
    if words and not re.search(words.replace("RANK", str(rank)), said):
        return f"expected /{words}/"
    if fault in ("none", "delay"):
        return None if status == 0 and tally == Tally(passed=2) else f"expected 2 passed, found {tally}, exit {status}"
    if status == 0:
        return "exit 0"
    if tally and tally.failed and not re.search(kRepro[processes > 0], output):
        return f"expected /{kRepro[processes > 0]}/"
    if again:
        return None if tally == Tally(passed=1, failed=1) else f"expected 1 passed, 1 failed, found {tally}"
    if seconds > kDeadline + 12:
        return f"it took {seconds:.0f} s"
    return None if rank == 0 or tally == Tally(failed=1) else f"expected 1 failed, found {tally}"


def ends_well(checks, program):
    for fault, ranks, words, again in kFaults:
        for rank in ranks:
            # As threads only what a thread can do and its process survives.
            for processes in [3, 0] if again and rank == ranks[-1] else [3]:
                status, output, errors, seconds = run(processes, [program, fault, rank, kDeadline], 60)
                problem = problem_of(fault, rank, processes, words, again, status, output, errors, seconds)
                checks.check(f"{fault} on rank {rank}, {processes} processes", problem, output + errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("faulty", type=pathlib.Path)
    parser.add_argument("--subject", default="reference")
    args = parser.parse_args()
    if not shutil.which("mpirun"):
        print("ranks: skipped: no mpirun; type:  ci/setup --mpi")
        finish(Tally(skipped=1))
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        same_both_ways(checks, args.program.resolve(), args.subject, pathlib.Path(folder))
        carried_by_nccl(checks, args.program.resolve(), args.subject, pathlib.Path(folder))
    ends_well(checks, args.faulty.resolve())
    finish(checks.tally)


if __name__ == "__main__":
    main()
