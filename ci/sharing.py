"""Processes that a launcher (mpirun, srun) started with the same command, on one machine or several, share work through a folder that all of them see.

Each number of a task is claimed by the one process that makes its file, and the result is written beside it, whole or not at all. A process that dies ends the run, as launchers do;
what nobody finished is for the next run. Without a launcher there is one process, which does everything.
"""
import json
import os
import shutil
import time

import remembered

# Rank, number of processes, and what names the run: of Open MPI and whatever starts by PMIx, of Slurm, of what starts by PMI.
kLaunchers = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE",)),
              ("SLURM_PROCID", "SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
              ("PMI_RANK", "PMI_SIZE", ("PMI_JOBID",))]
kPoll = 0.1   # seconds between two looks at the folder


def launched(environment):
    """(rank, number of processes, a name of this run that all of them have)."""
    for rank, size, names in kLaunchers:
        if rank in environment and size in environment:
            if missing := [name for name in names if name not in environment]:
                raise RuntimeError(f"the launcher gives {rank}, but no {', '.join(missing)}: expected what tells this run from an earlier one")
            return int(environment[rank]), int(environment[size]), remembered.digest(*(environment[name] for name in names))[:16]
    return 0, 1, f"alone-{os.getpid()}"


class Shared:
    """`folder` holds what the processes tell each other; each run has one below it, which the first process removes."""

    def __init__(self, folder, environment=os.environ):
        self.rank, self.size, name = launched(environment)
        self.folder, self.calls = folder / name, 0
        if self.size == 1:
            shutil.rmtree(self.folder, ignore_errors=True)   # a killed run whose process had the same number left claims in it
        self.folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        """The first process removes the folder when nobody reads it any longer; where it fails, at once, and the launcher ends the others."""
        if self.folder.is_dir():
            (self.folder / f"{self.rank}.over").touch()
        while not error and self.rank == 0 and len(self.numbers(self.folder, "over")) < self.size:
            time.sleep(kPoll)
        if self.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def once(self, function):
        """What `function` returns to the first process, in each of them, as JSON holds it."""
        path = self.next_path().with_suffix(".json")
        if self.rank == 0:
            remembered.write_whole(path, json.dumps(function()))
        while not path.is_file():
            time.sleep(kPoll)
        return json.loads(path.read_text())

    def each(self, count, function, until=float("inf")):
        """Does what nobody else has claimed of the numbers below `count`, and yields (number, result) of all processes as they come, as JSON holds them. After `until`
        (time.monotonic()) nothing more is begun, and what is under way is waited for."""
        place = self.next_path()
        place.mkdir(exist_ok=True)
        told = set()
        for number in range(count):
            if time.monotonic() > until:
                break
            if self.claimed(place, number):
                remembered.write_whole(place / f"{number}.json", json.dumps(function(number)))
                yield from self.news(place, told)
        while told < self.numbers(place, "claim"):
            yield from self.news(place, told)
            time.sleep(kPoll)

    def next_path(self):
        """All processes make the same calls in the same order."""
        self.calls += 1
        return self.folder / str(self.calls)

    def claimed(self, place, number):
        try:
            (place / f"{number}.claim").open("x").close()
            return True
        except FileExistsError:
            return False

    def numbers(self, place, kind):
        return {int(path.stem) for path in place.glob(f"*.{kind}")}

    def news(self, place, told):
        for number in sorted(self.numbers(place, "json") - told):
            told.add(number)
            yield number, json.loads((place / f"{number}.json").read_text())
