#!/usr/bin/python3
"""Runs with --resume that are killed, interrupted, out of disk, given a damaged folder or somebody else's: what goes on from there has the output, the
reports and the exit status of one whole run, but for times, and what cannot be used is refused and left as it was.

    tests/compare/process/test_resumed_runs.py build/cpu/bin/assay [--seed N]

The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import pathlib
import random
import resource
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compared_runs import Checks, difference, signalled, without_times  # noqa: E402
from compared_runs import ROOT  # noqa: E402
from tally import finish  # noqa: E402

kKills = 20
# Lines and scenarios that pass, are skipped and, on `lanes`, fail: a third of smoke, and of these scenarios the first and the last.
kSuite = ["smoke", "--shard", "1/3", "S-21", "S-22", "S-23", "S-96", "--subject", "host,lanes", "--jobs", "2", "--budget", "0.001"]


def journal_in(folder):
    return folder / "results.journal"


def results_in(folder):
    """Numbers of the tasks of a journal, in its order, by its form alone."""
    data, numbers = journal_in(folder).read_bytes(), []
    at = data.index(b"\n") + 1
    while at < len(data):
        head, _, _ = data[at:].partition(b"\n")
        number, size, _ = head.split(b" ")
        numbers.append(int(number))
        at += len(head) + int(size) + 2
    return numbers


def killed_often(checks, draw, want, whole):
    """Killed at so many points of its way, each time gone on with at once."""
    folder = checks.folder / "killed"
    size, late = journal_in(whole).stat().st_size, 0
    for point in sorted(draw.randrange(size) for _ in range(kKills)):
        child = checks.start([checks.program, "run", *kSuite, "--resume", folder])
        status, _, errors = signalled(checks, child, journal_in(folder), point)
        late += status == "too late"
        problem = None if status in (-signal.SIGKILL, "too late") and "another run" not in errors else f"exit {status}"
        checks.check(f"killed at {point} bytes", problem, errors)
    checks.check("killed before it had ended", None if late < kKills / 2 else f"{late} of {kKills} kills came too late")
    found, errors = checks.outcome([*kSuite, "--resume", folder])
    checks.check("killed often, then whole", difference(want, found), errors)
    numbers = results_in(folder)
    checks.check("no result is kept twice", None if len(numbers) == len(set(numbers)) == len(results_in(whole)) else f"{len(numbers)} results, {len(set(numbers))} tasks")
    return folder


def interrupted(checks, want, whole):
    for name, number in (("Ctrl-C", signal.SIGINT), ("SIGTERM", signal.SIGTERM)):
        folder = checks.folder / name
        child = checks.start([checks.program, "run", *kSuite, "--resume", folder])
        status, out, errors = signalled(checks, child, journal_in(folder), journal_in(whole).stat().st_size // 3, number)
        checks.check(f"{name} ends it", None if status == 130 and "interrupted" in out else f"exit {status}", out + errors)
        kept = len(results_in(folder))
        checks.check(f"{name}: some is kept", None if 0 < kept < len(results_in(whole)) else f"{kept} results")
        found, errors = checks.outcome([*kSuite, "--resume", folder])
        checks.check(f"{name}: goes on", difference(want, found), errors)
        checks.check(f"{name}: says what it takes over", None if f"takes over {kept} results" in errors else "not said", errors)


def full_disk(checks, want):
    """A limit on the size of files, whose signal is ignored, as a full disk: writes fail at some byte."""
    folder = checks.folder / "full"
    limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20011, 20011)), "restore_signals": False}
    child = checks.start([checks.program, "run", *kSuite, "--resume", folder], **limits)
    status, out, errors = checks.end(child)
    checks.check("a full disk is said", None if status == 2 and "cannot write" in errors and "results.journal" in errors else f"exit {status}", errors)
    checks.check("the run was whole all the same", None if out.splitlines()[-1:] == want[1].splitlines()[-1:] else out)
    found, errors = checks.outcome([*kSuite, "--resume", folder])
    checks.check("goes on where the disk was full", difference(want, found), errors)
    checks.check("what was cut is said", None if "are not whole results" in errors and "takes over" in errors else "not said", errors)
    folder = checks.folder / "none"
    folder.mkdir()
    journal_in(folder).symlink_to("/dev/full")
    (status, *_), errors = checks.outcome([*kSuite, "--resume", folder])
    checks.check("no room for the first byte", None if status == 2 and "No space left" in errors else f"exit {status}", errors)


def damaged(checks, draw, want, whole):
    """One byte of the kept results is another."""
    for _ in range(8):
        folder = checks.folder / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        data = bytearray(journal_in(folder).read_bytes())
        at = draw.randrange(data.index(b"\n") + 1, len(data))
        data[at] ^= 1 << draw.randrange(8)
        journal_in(folder).write_bytes(data)
        found, errors = checks.outcome([*kSuite, "--resume", folder])
        checks.check(f"byte {at} changed", difference(want, found), errors)


def refused(checks, name, folder, arguments, words):
    before = journal_in(folder).read_bytes()
    (status, *_), errors = checks.outcome([*arguments, "--resume", folder])
    checks.check(name, None if status == 2 and words in errors else f"exit {status}", errors)
    checks.check(f"{name}: it is left as it was", None if journal_in(folder).read_bytes() == before else "it has changed")


def of_others(checks, whole):
    refused(checks, "other lines", whole, [*kSuite, "--filter", "mxfp8"], "another command")
    refused(checks, "another environment", whole, [*kSuite, "--env", "order=3"], "another command")
    suite = checks.folder / "own.cases"
    lines = ["quantize mxfp8 8x32 bf16 seed=1", "quantize mxfp8 8x32 bf16 seed=2"]
    suite.write_text("\n".join(lines) + "\n")
    folder = checks.folder / "own"
    (status, *_), errors = checks.outcome([suite, "--resume", folder])
    checks.check("a suite of one's own", None if status == 0 else f"exit {status}", errors)
    suite.write_text(f"{lines[0]}    expect unsupported\n{lines[1]}\n")
    refused(checks, "another expectation", folder, [suite], "another command")
    foreign = checks.folder / "foreign"
    foreign.mkdir()
    journal_in(foreign).write_text("somebody's notes\n")
    refused(checks, "somebody's file", foreign, kSuite, "no journal of results")
    plugin = checks.program.parent.parent / "plugins/libfaulty_plugin_rounding.so"
    if plugin.exists():
        refused(checks, "another plugin", whole, [*kSuite, "--plugin", plugin], "another command")


def two_at_once(checks, want):
    folder = checks.folder / "two"
    first = checks.start([checks.program, "run", *kSuite, "--resume", folder])
    while first.poll() is None and not (journal_in(folder).exists() and journal_in(folder).stat().st_size > 1000):
        pass
    first.send_signal(signal.SIGSTOP)
    (status, *_), errors = checks.outcome([*kSuite, "--resume", folder])
    first.send_signal(signal.SIGCONT)
    checks.check("a second run", None if status == 2 and f"another run has it open, process {first.pid}" in errors else f"exit {status}", errors)
    status, out, errors = checks.end(first)
    checks.check("the first run goes on", None if (status, without_times(out)) == want[:2] else f"exit {status}", out + errors)


def certificate_of(checks, path, *more):
    return [checks.program, "certify", "--quick", "--only", "cast e4m3", "-o", path, *more]


def certified(checks, command, path):
    status, out, errors = checks.end(checks.start(command))
    made = json.loads(path.read_text()) if path.exists() else {}
    out = [line for line in without_times(out).replace(str(path), "PATH").splitlines()]
    return (status, "\n".join(out), {k: v for k, v in made.items() if k != "run"}), errors


def certificates(checks):
    alone, path = checks.folder / "alone.json", checks.folder / "killed.json"
    want, errors = certified(checks, certificate_of(checks, alone), alone)
    checks.check("certificate", None if want[0] == 0 else f"exit {want[0]}", errors)
    results = path.with_name(path.name + ".results")
    mine = results / "mine"
    for size in (100, 4000):
        child = checks.start(certificate_of(checks, path, "--resume"))
        status, out, errors = signalled(checks, child, journal_in(results), size)
        checks.check("a certificate is killed", None if status == -signal.SIGKILL else f"exit {status}", out + errors)
        path.unlink(missing_ok=True)   # a build from uncommitted sources takes over no part, but its own results
    mine.write_text("a file of the user")
    found, errors = certified(checks, certificate_of(checks, path, "--resume"), path)
    checks.check("a certificate goes on", None if want == found else f"{want}\n{found}", errors)
    checks.check("it takes results over", None if "takes over" in errors else "not said", errors)
    checks.check("its results are gone, and nothing else", None if [p.name for p in results.iterdir()] == ["mine"] else str(list(results.iterdir())))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1, help="draws the points where runs are killed and files damaged")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as made:
        checks = Checks((ROOT / args.program).resolve(), pathlib.Path(made))
        want, errors = checks.outcome(kSuite)
        checks.check("the suite", None if want[0] == 1 else f"exit {want[0]}", errors)
        whole = checks.folder / "whole"
        found, errors = checks.outcome([*kSuite, "--resume", whole])
        checks.check("kept from the beginning", difference(want, found), errors)
        size = journal_in(whole).stat().st_size
        found, errors = checks.outcome([*kSuite, "--resume", whole])
        checks.check("nothing is missing", difference(want, found) or (None if size == journal_in(whole).stat().st_size else "something was done again"), errors)
        killed_often(checks, draw, want, whole)
        interrupted(checks, want, whole)
        full_disk(checks, want)
        damaged(checks, draw, want, whole)
        of_others(checks, whole)
        two_at_once(checks, want)
        certificates(checks)
    finish(checks.tally)


if __name__ == "__main__":
    main()
