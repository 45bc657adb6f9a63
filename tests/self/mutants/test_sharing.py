#!/usr/bin/env python3
"""Processes that a launcher started share work (ci/sharing.py): each number is done once, and all of them learn every result. By processes that are told what Slurm, PMI and
Open MPI tell them, and under `mpirun` where it is installed.

The last line is `N passed, N failed, N skipped`.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

kHere = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(kHere.parents[3] / "ci"))
import sharing  # noqa: E402
from tally import Tally, finish  # noqa: E402

kCount = 30


def a_process(folder, until):
    """Prints what it did and what it learnt; the first process is slow, so that others do more."""
    with sharing.Shared(folder) as shared:
        done = []

        def task(number):
            done.append(number)
            time.sleep(0.02 if shared.rank == 0 else 0.004)
            return {"square": number * number}

        first = shared.once(lambda: [os.getpid()])
        learnt = dict(shared.each(kCount, task, time.monotonic() + until))
        again = dict(shared.each(5, lambda number: -number))
        last = shared.once(lambda: sorted(learnt))
    print(json.dumps({"rank": shared.rank, "size": shared.size, "first": first, "done": done, "learnt": learnt, "again": again, "last": last}))


def objects(said):
    """Those of JSON in a text: mpirun may join the lines of several processes."""
    decoder, out = json.JSONDecoder(), []
    while (said := said.lstrip()).startswith("{"):
        one, end = decoder.raw_decode(said)
        out.append(one)
        said = said[end:]
    return out


def told(said, count):
    """What the processes said, as problems."""
    rows = objects(said)
    problems = [] if sorted(row["rank"] for row in rows) == list(range(count)) else [f"expected {count} processes, heard {said[-1000:]}"]
    done = [number for row in rows for number in row["done"]]
    problems += [] if sorted(done) == list(range(kCount)) else [f"done: {sorted(done)}"]
    squares = {str(number): number * number for number in range(kCount)}
    for row in rows:
        got = {number: result["square"] for number, result in row["learnt"].items()}
        problems += [] if got == squares else [f"rank {row['rank']} learnt {got}"]
        problems += [] if row["first"] == rows[0]["first"] and row["last"] == list(range(kCount)) else [f"rank {row['rank']} was told {row['first']}, {row['last']}"]
        problems += [] if row["again"] == {str(n): -n for n in range(5)} else [f"rank {row['rank']}: the second share is {row['again']}"]
    return problems


def started(folder, environments, until=60):
    """The processes of one run, each with its environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
    return [subprocess.Popen([sys.executable, kHere, "--process", folder, str(until)], env={**clean, **environment}, stdout=subprocess.PIPE, text=True) for environment in environments]


def several(folder, environments):
    return told("".join(process.communicate(timeout=120)[0] for process in started(folder, environments)), len(environments))


def under_mpirun(folder):
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "--oversubscribe", "-n", "3", sys.executable, kHere, "--process", folder, "60"]
    return told(subprocess.run(command, env={**os.environ, **allowed}, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout, 3)


def time_is_over(folder):
    """After the end of its time a process begins nothing, and says so."""
    said = json.loads(started(folder, [{}], until=-1)[0].communicate(timeout=120)[0])
    return [] if said["done"] == [] and said["learnt"] == {} else [f"after the end: {said}"]


def name_is_missing(folder):
    try:
        sharing.launched({"PMI_RANK": "0", "PMI_SIZE": "2"})
    except RuntimeError as error:
        return [] if "PMI_JOBID" in str(error) else [str(error)]
    return ["a run without a name is taken"]


def a_process_dies(folder):
    """The others wait for what it had claimed, until the launcher ends them. A later run does everything."""
    two = [{"PMI_RANK": str(rank), "PMI_SIZE": "2", "PMI_JOBID": "dies"} for rank in range(2)]
    first, second = started(folder, two)
    time.sleep(0.15)
    second.kill()
    waits = still_runs(first, 1.0)
    first.kill()
    first.communicate(), second.communicate()
    later = [{**environment, "PMI_JOBID": "later"} for environment in two]
    return ([] if waits else ["the first process ends though another one died"]) + several(folder, later)


def still_runs(process, seconds):
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        return True


def main():
    if sys.argv[1:2] == ["--process"]:
        a_process(pathlib.Path(sys.argv[2]), float(sys.argv[3]))
        return
    cases = {
        "alone": lambda folder: several(folder, [{}]),
        "PMI": lambda folder: several(folder, [{"PMI_RANK": str(rank), "PMI_SIZE": "3", "PMI_JOBID": "a"} for rank in range(3)]),
        "Slurm": lambda folder: several(folder, [{"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"} for rank in range(2)]),
        "time is over": time_is_over,
        "a run without a name": name_is_missing,
        "a process dies": a_process_dies,
    }
    total = Tally()
    if shutil.which("mpirun"):
        cases["mpirun"] = under_mpirun
    else:
        total.skipped += 1
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            problems = case(pathlib.Path(folder))
            left = [] if name == "a process dies" else [f"left behind: {path.name}" for path in pathlib.Path(folder).iterdir()]
        for problem in problems + left:
            print(f"  {name}: {problem}")
        total += Tally(failed=1) if problems + left else Tally(passed=1)
    finish(total)


if __name__ == "__main__":
    main()
