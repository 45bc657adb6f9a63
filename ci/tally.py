"""Runs commands whose last line counts `N passed, N failed, N skipped` (bench: `N timed`), and adds the counts up."""
import argparse
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
kPipe = 5   # seconds in which the pipe of a killed process must end
COUNT = re.compile(r"^(\d+) (?:passed|timed), (\d+) failed, (\d+) skipped$")


@dataclasses.dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other):
        return Tally(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def good(self):
        return self.failed == 0 and self.passed > 0


def read_tally(text):
    """The tally on the last line that is not empty, or None."""
    lines = [line for line in text.splitlines() if line.strip()]
    match = COUNT.match(lines[-1].strip()) if lines else None
    return Tally(*map(int, match.groups())) if match else None


def read_junit(path):
    """The tally of a report that pytest wrote (--junitxml); None where there is none that can be read."""
    try:
        suite = xml.parse(path).getroot().find("testsuite").attrib
    except (OSError, xml.ParseError):
        return None
    failed, skipped = int(suite["failures"]) + int(suite["errors"]), int(suite["skipped"])
    return Tally(int(suite["tests"]) - failed - skipped, failed, skipped)


@contextlib.contextmanager
def own_temporary_folder(env=None):
    """The variables `env`, or those of this process, under which a command has a temporary folder of its own. It is removed when the command has ended."""
    with tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True) as folder:
        yield {**(os.environ if env is None else env), "TMPDIR": folder}


def children(pid):
    """The processes that a process started and that are still there."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            _, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]   # behind the name come the state and the parent
            if int(parent) == pid:
                yield int(stat.parent.name)


def kill_tree(pid):
    """Kills a process and all that it started. Each is stopped first, so that it starts nothing more."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        for child in children(pid):
            kill_tree(child)
        os.kill(pid, signal.SIGKILL)


def run_to_end(command, timeout, **options):
    """Runs one command, with the options of subprocess.Popen. Returns what it wrote, and its exit status, or `no end within <timeout> s`
    where it had to be killed. It is killed with all that it started, also when this process is interrupted."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    try:
        output, status = process.communicate(timeout=timeout)[0], process.returncode
    except BaseException as error:
        kill_tree(process.pid)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        output, status = written(process, error), f"no end within {timeout} s"
    return output.decode(errors="replace"), status


def how_it_ended(status):
    """The status of run_to_end in words."""
    return status if isinstance(status, str) else f"exit {status}"


def written(process, late):
    """What a process wrote before it was killed. A process that it started, and that lives on because its parent ended first, may hold the pipe open: the wait for the
    pipe's end is limited."""
    try:
        return process.communicate(timeout=kPipe)[0]
    except subprocess.TimeoutExpired as again:
        return again.stdout or late.stdout or b""


def run_counted(name, command, timeout, tail=60, says="", env=None):
    """Runs one command and returns its tally. No count line, an exit status that the count does not explain, nothing
    passed, running out of time, and, where nothing failed, an output without the text `says` are each one
    failure more. Prints the output's tail where something failed. What pytest or a browser leaves in the temporary folder is removed."""
    start = time.monotonic()
    with own_temporary_folder(env) as own:
        output, status = run_to_end(command, timeout, cwd=ROOT, env=own)
    tally = read_tally(output)
    trouble = None
    if isinstance(status, str):
        tally, trouble = (tally or Tally()) + Tally(failed=1), status
    elif tally is None:
        tally, trouble = Tally(failed=1), f"no count line (exit {status})"
    elif status != 0 and tally.failed == 0:
        tally, trouble = tally + Tally(failed=1), f"nothing failed, yet exit {status}"
    elif tally.passed + tally.failed == 0:
        tally, trouble = tally + Tally(failed=1), "nothing ran"
    elif tally.failed == 0 and says not in output:
        tally, trouble = tally + Tally(failed=1), f"the output does not say '{says}'"
    if tally.failed:
        print("\n".join(output.splitlines()[-tail:]))
    print(f"{name:<28} {tally}{'   ' + trouble if trouble else ''}   {time.monotonic() - start:.1f} s", flush=True)
    return tally


def build(preset, *targets):
    """Builds through ci/build and returns the path of the program, or None after printing why not."""
    start = time.monotonic()
    done = subprocess.run(["ci/build", preset, *targets], cwd=ROOT, text=True, stdout=subprocess.PIPE)
    seconds = time.monotonic() - start
    if done.returncode != 0:
        print(f"build {preset:<22} failed   {seconds:.1f} s", flush=True)
        return None
    print(f"build {preset:<22} done   {seconds:.1f} s", flush=True)
    return pathlib.Path(done.stdout.strip())


def nvcc():
    """The path of CUDA's compiler, or None on a machine without it."""
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def finish(tally):
    """Prints the count as the last line and ends the process with its status."""
    sys.stdout.flush()
    print(tally)
    sys.exit(0 if tally.good() else 1)


def part(text):
    """The type of an argument K/N: a function from a list to each N-th of its members, from the K-th on."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"expected K/N, from 1/N to N/N, found {text}")
    return lambda members: members[int(found[1]) - 1::int(found[2])]


def program_file(text):
    """The type of an argument that is a program which was built."""
    program = pathlib.Path(text).resolve()
    if not program.is_file() or not os.access(program, os.X_OK):
        raise argparse.ArgumentTypeError(f"expected a program such as build/cpu/bin/assay, found none at {text}; type:  ci/build cpu assay")
    return program


def cores():
    return len(os.sched_getaffinity(0))
