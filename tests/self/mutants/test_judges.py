#!/usr/bin/env python3
"""What ci/mutants and ci/faults stand on: an edit that does not compile in a folded build is left to a build of its own, the sources pass before any edit is judged alone, and
runs leave nothing in the temporary folder; what ci/hunt counts; which stages of ci/run begin; and what becomes of a command that is late. With programs that are scripts and a compiler that is a function; given a test program of a build, also that it leaves nothing.

    tests/self/mutants/test_judges.py [TEST_PROGRAM]

The last line is `N passed, N failed, N skipped`.
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

kHere = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(kHere.parents[3] / "ci"))
import fold  # noqa: E402
import folded_build  # noqa: E402
import mutant_build  # noqa: E402
import mutant_suites  # noqa: E402
import stages  # noqa: E402
import tally  # noqa: E402
from tally import Tally, finish, run_counted  # noqa: E402

kSource = """int one(int n) {
  return n + 1;
}
int two(int n) {
  return n + 2;
}
"""
kScript = """#!/bin/sh
if [ "$1" = --gtest_list_tests ]; then echo "Case."; echo "  Test"; exit 0; fi
echo run >> {runs}
touch "$TMPDIR/left" && echo "wrote $TMPDIR/left"
exit {status}
"""


def blamed_in_a_folded_build(folder):
    """An edit that the compiler blames is `unfolded`, and told at once."""
    (folder / "fast").mkdir()
    (folder / "fast/a.cpp").write_text(kSource)
    told, says = [], [lambda text: f"fast/a.cpp:{text[:text.index('n - 2')].count(chr(10)) + 1}:3: error: no such thing\n", None]

    def compiled(tree, targets, errors=0):
        say = says.pop(0)
        return say is None, say((tree / "fast/a.cpp").read_text()) if say else ""

    before = folded_build.ROOT, folded_build.compiled, folded_build.source_copy.sync
    folded_build.ROOT, folded_build.compiled, folded_build.source_copy.sync = folder, compiled, lambda tree, keep=(): None
    try:
        edits = {n: {"fast/a.cpp": [fold.edit_of_line(kSource, *edit)]} for n, edit in enumerate([(2, "  return n - 1;"), (5, "  return n - 2;")], 1)}
        one = folded_build.FoldedBuild(folder / "tree", edits, [], told.append)
    finally:
        folded_build.ROOT, folded_build.compiled, folded_build.source_copy.sync = before
    return [] if (one.usable, one.unfolded, told) == ({1}, {2}, [{2}]) else [f"usable {one.usable}, unfolded {one.unfolded}, told {told}"]


def judges_of(folder, status):
    """The judges of a room with one test program, which is a script, and the file that says how often it ran."""
    (folder / "bin").mkdir(exist_ok=True)
    program, runs = folder / "bin/test_script", folder / "runs"
    program.write_text(kScript.format(runs=runs, status=status))
    program.chmod(0o755)
    (folder / "fixtures/suites").mkdir(parents=True, exist_ok=True)
    mutant_suites.ROOT, mutant_build.kBuild, mutant_build.kTree = folder, folder, folder
    mutant_suites.kRooms["script"] = mutant_suites.Room("script/", [], "$^", [], ["script"])
    return mutant_suites.Judges("script", 0, []), runs


def of_judges(case):
    """A case with the names of mutant_suites and mutant_build put back behind it."""
    def run(folder):
        before = mutant_suites.ROOT, mutant_build.kBuild, mutant_build.kTree
        try:
            return case(folder)
        finally:
            mutant_suites.ROOT, mutant_build.kBuild, mutant_build.kTree = before
            del mutant_suites.kRooms["script"]
    return run


def unedited_fails(folder):
    judges, _ = judges_of(folder, 1)
    try:
        judges.unedited_passes()
    except RuntimeError as error:
        return [] if "with nothing edited, `test_script --gtest_filter=Case.*" in str(error) else [str(error)]
    return ["a test that fails with nothing edited may kill edits"]


def unedited_passes_once(folder):
    """What passed is not run again on the same build, and is run on another."""
    counts = []
    for words in ("0", "0", "0 # another build"):
        judges, runs = judges_of(folder, words)
        judges.unedited_passes()
        counts.append(len(runs.read_text().splitlines()))
    return [] if counts == [1, 1, 2] else [f"runs: {counts}"]


def leaves_nothing(folder):
    judges, _ = judges_of(folder, 1)
    status, output, _ = judges.run(["test_script"], 0, 60)
    left = pathlib.Path(output.split("wrote ")[1].splitlines()[0])
    return [] if status == 1 and not left.exists() and left.parent != pathlib.Path(tempfile.gettempdir()) else [f"{left} is left, or was not written: {output}"]


def a_program_leaves_nothing(program):
    """One that lists its tests, runs none, or runs one twice."""
    def run(folder):
        problems = []
        for words in (["--gtest_list_tests"], ["--gtest_filter=NoSuchTest.AtAll"], ["--gtest_repeat=2"]):
            environment = {**os.environ, "TMPDIR": str(folder)}
            done = subprocess.run([program, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            left = sorted(path.name for path in folder.iterdir())
            problems += [f"{' '.join(words)}: exit {done.returncode}, left {left}: {done.stdout[-500:]}"] if left or done.returncode else []
            for path in left:
                subprocess.run(["rm", "-r", folder / path], check=True)
        return problems
    return run


def lines_of_a_hunt(folder):
    """Every line that was judged counts once, over all runs of a folder; a line that a kill cut short is no record."""
    loader = importlib.machinery.SourceFileLoader("hunt", str(kHere.parents[3] / "ci/hunt"))
    hunt = importlib.util.module_from_spec(importlib.util.spec_from_loader("hunt", loader))
    loader.exec_module(hunt)
    (folder / "hunt.jsonl").write_text('{"schema": "assay.hunt/1", "seed": 3}\n{"record": "first", "lines": 700}\n{"record": "batch", "lines": 90}\n'
                                       '{"record": "edges", "lines": 8}\n{"record": "finding", "cause": "x"}\n{"record": "batch", "li')
    counted = hunt.lines(folder), hunt.findings(folder), hunt.lines(folder / "nowhere")
    return [] if counted == (798, 1, 0) else [f"lines, findings and lines of no folder: {counted}"]


def turns_of_stages(folder):
    """Each stage is once the next after those that begin every run; the others follow it in their order."""
    names = ["check", "cpu", "tidy", "cuda", "asan", "race"]
    turns = [stages.in_turn(names, head) for head in ("9c", "9d", "9e", "")]
    wanted = [names[:3] + others for others in (["cuda", "asan", "race"], ["asan", "race", "cuda"], ["race", "cuda", "asan"], ["cuda", "asan", "race"])]
    return [] if turns == wanted and stages.in_turn(["cpu"], "9c") == ["cpu"] else [f"turns {turns}"]


def late_stages(folder):
    """A stage that does not begin in time counts as skipped and is named; one that has begun goes on."""
    now, begun = [0], []

    def stage(name, seconds):
        def run(args):
            now[0] += seconds
            begun.append(name)
            return Tally(passed=5)
        run.__doc__ = "A stage."
        return run

    known = {name: stage(name, 400) for name in ("a", "b", "c", "d")}
    with contextlib.redirect_stdout(io.StringIO()):
        late = stages.run_stages(list(known), known, None, 10, lambda: now[0])
        whole = stages.run_stages(list(known), known, None, None, lambda: now[0])
        known["tidy"] = stage("tidy", 400)
        least = stages.run_stages(["tidy", "a", "b"], known, None, 5, lambda: now[0])
    problems = [] if late[0] == Tally(passed=10, skipped=2) and begun == ["a", "b", "a", "b", "c", "d", "tidy", "a"] else [f"{late[0]}, begun {begun}"]
    problems += [] if least[0] == Tally(passed=10, skipped=1) else [f"one stage in turn: {least}"]
    problems += [] if "Not run: c, d. Type:  ci/run --only c,d" in late[1][-1] and len(late[1]) == 5 else [f"rows {late[1]}"]
    return problems + ([] if whole[0] == Tally(passed=20) and len(whole[1]) == 4 else [f"without an end: {whole}"])


def ends(pid):
    """Whether a process is gone within ten seconds. One that has ended and that its parent has not asked about (a zombie) is gone."""
    stat = pathlib.Path("/proc", str(pid), "stat")
    for _ in range(100):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def late_command(folder):
    """A command that does not end in time is one failure, shows what it wrote, and is killed with what it started."""
    inner = folder / "inner"
    inner.write_text("#!/bin/sh\nsleep 1000 &\necho $! > inner.pid\necho began\nwait\n")
    inner.chmod(0o755)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        counted = run_counted("late", ["sh", "-c", f"cd {folder} && ./inner; echo never"], 3)
    inner_pid = int((folder / "inner.pid").read_text())
    problems = [] if ends(inner_pid) else [f"the sleep that it began, {inner_pid}, is still there"]
    return problems + ([] if counted == Tally(failed=1) and "began\nlate" in said.getvalue() and "no end within 3 s" in said.getvalue() else [f"{counted}: {said.getvalue()}"])


def pipe_that_stays_open(folder):
    """What a late command left to the system holds its pipe open, and is not waited for."""
    before, tally.kPipe = tally.kPipe, 0.5
    try:
        output, status = tally.run_to_end(["sh", "-c", f"echo began; (sleep 1000 & echo $! > {folder}/pid) ; exec sleep 1000"], 3)
    finally:
        tally.kPipe = before
    left = int((folder / "pid").read_text())
    os.kill(left, signal.SIGKILL)
    return [] if (output, status) == ("began\n", "no end within 3 s") else [f"{status}: {output}"]


def main():
    cases = {
        "a command that is late": late_command,
        "a pipe that stays open": pipe_that_stays_open,
        "turns of stages": turns_of_stages,
        "stages that are late": late_stages,
        "lines of a hunt": lines_of_a_hunt,
        "what a folded build blames": blamed_in_a_folded_build,
        "a test that fails with nothing edited": of_judges(unedited_fails),
        "what passed with nothing edited": of_judges(unedited_passes_once),
        "files of a run": of_judges(leaves_nothing),
        **{f"files of {pathlib.Path(program).name}": a_program_leaves_nothing(program) for program in sys.argv[1:]},
    }
    total = Tally()
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            problems = case(pathlib.Path(folder))
        for problem in problems:
            print(f"  {name}: {problem}")
        total += Tally(passed=not problems, failed=bool(problems))
    finish(total)


if __name__ == "__main__":
    main()
