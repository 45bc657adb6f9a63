"""Builds one preset and runs every test program, the third-party vectors and the plugin example (ci/test)."""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

from tally import ROOT, Tally, build, cores, finish, how_it_ended, own_temporary_folder, run_counted, run_to_end

kTimeout = 900   # seconds for one program
kLong = ("test_commands", "test_compare", "test_diagnosis", "test_diagnosis_benchmark", "test_every_key")   # half a minute and more


def run_program(program, launcher=()):
    """Runs one GoogleTest program, by the words `launcher` where it cannot start itself. A file that it leaves in the temporary folder is one failure more.
    Returns its tally, seconds, and what to print when something failed."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, own_temporary_folder() as env:
        report = pathlib.Path(folder) / "report.json"
        try:
            words = [*launcher, program, f"--gtest_output=json:{report}", "--gtest_color=no", "--gtest_brief=1"]
            output, status = run_to_end(words, kTimeout, cwd=ROOT, env=env)
        except OSError as error:
            output, status = str(error), "cannot be started"
        seconds, left = time.monotonic() - start, sorted(os.listdir(env["TMPDIR"]))
        tally, notes = Tally(), []
        try:
            suites = json.loads(report.read_text())["testsuites"]
        except (OSError, ValueError, KeyError):
            return Tally(failed=1), seconds, [f"wrote no report ({how_it_ended(status)})", *output.splitlines()[-40:]]
    for case in (case for suite in suites for case in suite["testsuite"]):
        if "failures" in case:
            tally.failed += 1
            notes += [f"{case['classname']}.{case['name']}", *(f["failure"] for f in case["failures"])]
        elif case.get("status") == "NOTRUN" or case.get("result") == "SKIPPED":
            tally.skipped += 1
        else:
            tally.passed += 1
    if tally.passed + tally.failed == 0:
        tally.failed += 1
        notes.append("ran no test at all")
    elif status != 0 and tally.failed == 0:
        tally.failed += 1
        notes += [f"every test passed, yet {how_it_ended(status)}", *output.splitlines()[-40:]]
    if left:
        tally.failed += 1
        notes.append(f"left in the temporary folder: {', '.join(left)}")
    return tally, seconds, notes


def python_with_numpy():
    """The interpreter that runs this if it has NumPy, else Debian's, for which ci/setup installs it."""
    return sys.executable if importlib.util.find_spec("numpy") else "/usr/bin/python3"


def browser_pages(program):
    """The pages in a Chromium, which is too large to be installed for it: where there is none, that counts as one skip."""
    if not any(map(shutil.which, ["chromium", "chromium-browser", "google-chrome", "chrome"])):
        print("browser pages                skipped: no chromium on this machine")
        return Tally(skipped=1)
    return run_counted("browser pages", [sys.executable, "tests/browser/test_pages.py", program], timeout=kTimeout)


def other_judges(program, vectors):
    """What judges besides the test programs: functions that print what they counted, and return it."""
    def counted(name, *command):
        return lambda: run_counted(name, command, timeout=kTimeout)

    for folder in [ROOT / "fixtures/vectors", ROOT / "fixtures/vectors/kernels", ROOT / "fixtures/witness", *map(pathlib.Path, vectors)]:
        yield counted(f"vectors {folder.name}", program, "vectors", folder.resolve())
    yield counted("python assay_pack", python_with_numpy(), "tests/python/test_assay_pack.py", program)
    yield counted("attention witness", sys.executable, "tests/reference/attention_witness.py", program)
    yield counted("KV cache witness", sys.executable, "tests/reference/kv_cache_witness.py", program)
    yield counted("scripts", sys.executable, "tests/self/mutants/test_judges.py", program.parent / "test_env")
    yield counted("resumed runs", sys.executable, "tests/compare/process/test_resumed_runs.py", program)
    yield lambda: browser_pages(program)


def main():
    parser = argparse.ArgumentParser(prog="ci/test", description=__doc__)
    parser.add_argument("--preset", default="cpu", help="of CMakePresets.json (default: cpu)")
    parser.add_argument("--vectors", action="append", default=[], metavar="DIR",
                        help="one more folder of vectors with an index.json; may be repeated")
    parser.add_argument("--filter", default="", help="only the test programs whose name contains this")
    args = parser.parse_args()

    program = build(args.preset)
    if program is None:
        finish(Tally(failed=1))
    total = Tally()
    programs = sorted(p for p in program.parent.glob("test_*") if args.filter in p.name)
    if not programs:
        print("no test program was built")
        total.failed += 1
    with concurrent.futures.ThreadPoolExecutor(cores()) as pool:
        # Most of them use one core. Those that take long begin first, so that none is left alone at the end.
        started = {path: pool.submit(run_program, path) for path in sorted(programs, key=lambda p: (p.name not in kLong, p.name))}
        rest = [] if args.filter else [pool.submit(judge) for judge in other_judges(program, args.vectors)]
        for path in programs:
            tally, seconds, notes = started[path].result()
            for note in notes:
                print(f"  {note}")
            print(f"{path.name:<28} {tally}   {seconds:.1f} s", flush=True)
            total += tally
        for judge in rest:
            total += judge.result()
    finish(total)


if __name__ == "__main__":
    main()
