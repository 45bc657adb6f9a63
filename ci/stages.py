"""The stages of continuous integration (ci/run): each prints its count, and the last line adds them up."""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import time

import mutant_edits
from tally import ROOT, Tally, build, cores, finish, how_it_ended, nvcc, run_counted, run_to_end
from tests import run_program


def side_by_side(steps):
    """Runs several steps, each of one core, at once. Each is the arguments of run_counted(). Returns their tally."""
    with concurrent.futures.ThreadPoolExecutor(cores()) as pool:
        return sum(pool.map(lambda step: run_counted(*step), steps), Tally())


def hide_cuda():
    """An environment in which neither PATH nor a variable leads to a CUDA toolkit."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "NVCC"))}
    folders = env["PATH"].split(os.pathsep)
    env["PATH"] = os.pathsep.join(f for f in folders if not (pathlib.Path(f) / "nvcc").exists())
    return env


def warnings(preset):
    """One failure for each compiler warning in the log of a build from nothing."""
    log = (ROOT / "build" / preset / "build.log").read_text(errors="replace")
    found = sorted({line for line in log.splitlines() if "warning:" in line})
    for line in found[:20]:
        print(f"  {line}")
    return Tally(passed=not found, failed=len(found))


def stage_check(args):
    """The sources themselves, and the scripts."""
    sharing = run_counted("shared work of scripts", [sys.executable, "tests/self/mutants/test_sharing.py"], 300)
    sharing += run_counted("judges of scripts", [sys.executable, "tests/self/mutants/test_judges.py"], 300)
    return sharing + run_counted("check", ["ci/check"], 900, tail=40)


def stage_tidy(args):
    """clang-tidy on the sources of the last 10 commits, for two minutes; with --nightly on all."""
    if not shutil.which("clang-tidy-14"):
        print("tidy                         skipped: no clang-tidy 14 on this machine; type:  ci/setup --ci")
        return Tally(skipped=1)
    return run_counted("tidy", ["ci/tidy", *(["--all"] if args.nightly else [])], 6 * 3600, tail=40)


def stage_cpu(args):
    """With no CUDA in sight: every test program, the vectors, the suite `ci`, scenarios and roles on the host executor, a third of the latter
    two, which moves on with every commit, on the reference as well, the sums of tensor cores by their laws, the generated pages, the schemas of
    JSON outputs, the installation; with --nightly all of them on the reference, and the long form of the arithmetic of PTX."""
    tally = run_counted("test", ["ci/test"], 3600, tail=80, env=hide_cuda())
    tally += warnings("cpu")
    program = ROOT / "build/cpu/bin/assay"
    tally += run_counted("parity", ["ci/parity"], 1800, env=hide_cuda())
    tally += run_counted("training on the reference", [program, "run", "scenarios", "roles", "--subject", "reference", *third(args)], 1800)
    tally += run_counted("sums of the reference", [program, "run", "tensor_core", "--subject", "reference"], 600)
    if args.nightly:
        tally += run_counted("ptx arithmetic", ["ci/ptx_long", "arithmetic", ROOT / "build/cpu/bin/test_fast_ptx"], 8 * 3600)
    return tally + side_by_side([("generated pages", ["ci/check", "--generated", program], 600), ("schemas", ["ci/schemas", program], 600),
                                 ("install", ["ci/install", "build/cpu"], 600)])


def count_of_commits():
    return int(subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip() or "0")


def third(args):
    """Arguments for a third of a suite, which moves on with every commit; none with --nightly."""
    return [] if args.nightly else ["--shard", f"{count_of_commits() % 3 + 1}/3"]


def stage_ptx(program, args):
    """What nvcc made of the kernels, run on the CPU for every architecture: the suite `smoke`, and, for one that moves on with every commit, the
    scenarios, some of whose ranks are threads, and a twentieth of `ci`; with --nightly all of `ci`, `gemm`, the scenarios and the parity matrix, in parts that are not run again once they passed."""
    tally = Tally()
    commits = count_of_commits()
    for n, arch in enumerate(("sm_90a", "sm_100a", "sm_120a")):
        run = [program, "run", "--subject", "ptx", "--require", "ptx", "--timeout", "300", "--env", f"arch={arch}"]
        tally += run_counted(f"ptx smoke {arch}", [*run, "smoke"], 600)
        if not args.nightly and n == commits % 3:
            tally += run_counted(f"ptx ci {arch}", [*run, "ci", "--shard", f"{commits % 20 + 1}/20"], 1800)
            tally += run_counted(f"ptx scenarios {arch}", [*run, "scenarios"], 600)
    return tally + run_counted("ptx suites", ["ci/ptx_long", "suites", program], 8 * 3600) if args.nightly else tally


def stage_cuda(args):
    """The kernels by nvcc, for every architecture, what it makes of them run on the CPU, their counts for the model of one of two GPUs, by turns, and the lint of it;
    with --nightly the counts for both."""
    if not nvcc():
        print("cuda                         skipped: no nvcc on this machine")
        return Tally(skipped=1)
    tests = ("test_fast_stand_in", "test_fast_silicon")
    program = build("cuda", "assay", "example_plugin_cuda", *tests)
    if program is None:
        return Tally(failed=1)
    tally = Tally()
    for test in tests:
        counted, seconds, notes = run_program(program.parent / test)
        print(*notes, f"{test:<28} {counted}   {seconds:.1f} s", sep="\n", flush=True)
        tally += counted
    # The GPU is absent as a rule; the program must still build, say so, and judge.
    tally += run_counted("cuda smoke", [program, "run", "smoke", "--subject", "host,gpu"], 1800)
    tally += stage_ptx(program, args)
    gpu = [] if args.nightly else ["--gpu", ("h200", "b200")[count_of_commits() % 2]]
    tally += run_counted("model counts", ["ci/model_counts", program, *gpu], 3600)
    return tally + warnings("cuda") + run_counted("ptx lint", ["ci/ptx_lint"], 1800)


def stage_asan(args):
    """Under AddressSanitizer and UndefinedBehaviorSanitizer: the suite `smoke`, the interpreter of PTX, the corpora of hostile bytes, and of the
    scenarios and the records a third, and a hunt of one kernel with a planted bug, which move on with every commit; with --nightly all of them and a tenth
    of the kernels, the Python module, with all of its tests, and two minutes of hostile bytes for each reader."""
    program = build("asan", "assay", "test_fast_ptx", "test_fuzz")
    if program is None or build("cpu", "planted_plugins") is None:
        return Tally(failed=1)
    tally = Tally()
    for name in ("test_fast_ptx", "test_fuzz"):
        counted, seconds, notes = run_program(program.parent / name)
        print(*notes, f"{'asan ' + name:<28} {counted}   {seconds:.1f} s", sep="\n", flush=True)
        tally += counted
    tally += run_counted("asan smoke", [program, "run", "smoke", "--subject", "host"], 1800)
    tally += run_counted("asan scenarios", [program, "run", "scenarios", "--subject", "reference", "--timeout", "300", *third(args)], 1800)
    records = sorted(path.name for path in (ROOT / "fixtures/witness").glob("*.json") if path.name != "index.json")
    for name in records if args.nightly else records[count_of_commits() % 3::3]:
        tally += run_counted(f"asan records {name}", [program, "vectors", "fixtures/witness", "--subject", "reference", "--filter", f"{name}#"], 900)
    kernels = 10 if args.nightly else 120
    hunted = ["ci/hunted", "--crashes", "--minutes", "0.5", "--part", f"{count_of_commits() % kernels + 1}/{kernels}"]
    tally += run_counted("asan hunted", [*hunted, "--plugins", ROOT / "build/cpu/plugins", program], 3600)
    if args.nightly:
        tally += run_counted("asan python", ["ci/python", "--asan-whole"], 8 * 3600)
        tally += run_counted("fuzz", ["ci/fuzz", "--minutes", "30"], 2 * 3600)
    return tally


def stage_race(args):
    """The race checker: it finds every planted race, and nothing in clean kernels and in those of the suite `smoke`."""
    program = build("race", "assay", "test_race")
    if program is None:
        return Tally(failed=1)
    tally, seconds, notes = run_program(program.parent / "test_race")
    print(*notes, f"{'test_race':<28} {tally}   {seconds:.1f} s", sep="\n", flush=True)
    return tally + warnings("race") + run_counted("race smoke", [program, "run", "smoke", "--subject", "host"], 1800)


def stage_certify(args):
    """The certificate: every rounding boundary, every 16-bit source and every code; with --nightly every float. The same of the vectorised method,
    and with --nightly what ARM's NEON makes of it: every rounding boundary, the suite `smoke` and its tests."""
    program = build("cpu", "assay")
    if program is None:
        return Tally(failed=1)
    quick = [] if args.nightly else ["--quick"]
    tally = run_counted("certify", [program, "certify", *quick, "-o", ROOT / "build/cpu/certificate.json"], 3600)
    tally += run_counted("certify simd", [program, "certify", *quick, "--subject", "simd"], 3600)
    if not args.nightly:
        return tally
    if not (shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64")):
        print("neon                         skipped: no cross compiler for 64-bit ARM, or no emulator, on this machine; type:  ci/setup --neon")
        return tally + Tally(skipped=1)
    return tally + run_counted("neon", ["ci/neon"], 2 * 3600, tail=80)


def stage_mpi(args):
    """Ranks that are processes: the suite `ranks` over MPI with 2 and 4 of them against virtual ranks, on the reference or the host, by turns, and ranks that
    die, hang and disagree. Commands whose tasks several processes share: the output of one process, also where one of them is killed. With --nightly both."""
    if not (shutil.which("mpirun") and shutil.which("mpicc")):
        print("mpi                          skipped: no Open MPI on this machine; type:  ci/setup --mpi")
        return Tally(skipped=1)
    program = build("mpi", "assay", "faulty_ranks", "faulty_plugin_rounding", "faulty_plugin_crash")
    if program is None:
        return Tally(failed=1)
    subject = "reference,host" if args.nightly else ("reference", "host")[count_of_commits() % 2]
    test = [sys.executable, "tests/training/mpi/test_ranks.py", program, program.parent / "faulty_ranks", "--subject", subject]
    shared = [sys.executable, "tests/compare/process/test_shared_tasks.py", program]
    return side_by_side([("ranks over MPI", test, 1200), ("shared tasks over MPI", shared, 1200)]) + warnings("mpi")


def stage_python(args):
    """The Python package in a fresh environment: installed without a package index, its program's suite `smoke`, its tests; with --nightly
    the tests of PyTorch, torchao, compressed-tensors and JAX too."""
    tally = run_counted("python", ["ci/python"], 3600, tail=80)
    return tally + run_counted("python beside PyTorch", ["ci/python", "--torch"], 3 * 3600, tail=80) if args.nightly else tally


def stage_faults(args):
    """Injected faults: the judge must find each, and name the plane where it begins. With --nightly half an hour of mutants, others after every commit, in the room
    that has the fewest: one that survives is a failure until it has a verdict."""
    sample = [] if args.nightly else ["--sample", "20"]
    tally = run_counted("faults", ["ci/faults", *sample], 6 * 3600, tail=80)
    if not args.nightly:
        return tally
    tally += run_counted("mutants folded", [sys.executable, "tests/self/mutants/test_fold.py"], 300)
    if not mutant_edits.tool():
        print("mutants                      skipped: pip installs no universalmutator on this machine")
        return tally + Tally(skipped=1)
    return tally + run_counted("mutants", ["ci/mutants", "--minutes", "30", "--seed", str(count_of_commits())], 2 * 3600, tail=80)


def rounding_cases(program):
    """Whether the lines of three suites reach every rounding case together, on the reference."""
    command = [program, "coverage", "smoke", "pairs", "ci", "--cases", "--whole"]
    output, status = run_to_end(command, 1800, cwd=ROOT)
    if status != 0:
        print(output)
    said = output.splitlines()[-1] if output else "nothing was said"
    print(f"rounding cases               {said}, {how_it_ended(status)}", flush=True)
    return Tally(passed=status == 0, failed=status != 0)


def stage_hunt(args):
    """Hunts kernels with one planted bug each, runs a right one and the suite `pairs`, and asks whether the suites reach every rounding case. Each commit takes a
    thirtieth of the kernels and a fifth of the suite `pairs`, which move on with every commit; with --nightly all, whether libFuzzer sees into plugins of two compilers, whether
    the suite still has every valid pair, and three minutes for each hunt of our own two sides."""
    program = build("cpu", "assay")
    if program is None or build("cpu", "planted_plugins") is None:
        return Tally(failed=1)
    turn = count_of_commits()
    shard = [] if args.nightly else ["--shard", f"{turn % 5 + 1}/5"]
    pairs = run_counted("pairs", [program, "run", "pairs", "--subject", "host", *shard], 1800)
    hunt = ["--minutes", "0.5", "--resume"] if args.nightly else ["--minutes", "0.3", "--part", f"{turn % 30 + 1}/30"]
    right = run_counted("a right kernel", [program, "run", "smoke", "--plugin", program.parent.parent / "plugins/libplanted_no_slip.so"], 600)
    tally = pairs + rounding_cases(program) + Tally(right.passed, right.failed) + run_counted("hunted", ["ci/hunted", *hunt, program], 2 * 3600)
    if not args.nightly:
        return tally
    tally += run_counted("edges of plugins", [sys.executable, "tests/self/hunt/test_edges.py"], 1800)
    tally += run_counted("pairs are whole", ["ci/pairs", "--check", program], 2 * 3600)
    return tally + run_counted("hunt", ["ci/hunt", "--minutes", "3"], 3600)


STAGES = {"check": stage_check, "cpu": stage_cpu, "tidy": stage_tidy, "cuda": stage_cuda, "certify": stage_certify, "hunt": stage_hunt, "asan": stage_asan,
          "race": stage_race, "mpi": stage_mpi, "python": stage_python, "faults": stage_faults}


# These begin every run. Which of the others comes next changes with the commit.
ALWAYS = ("check", "cpu", "tidy")


def in_turn(names, head):
    """The stages `names` in the order in which one commit runs them: ALWAYS first, the others from the one on that its id `head` chooses."""
    first, others = [name for name in names if name in ALWAYS], [name for name in names if name not in ALWAYS]
    turn = int(head or "0", 16) % max(1, len(others))
    return first + others[turn:] + others[:turn]


def run_stages(names, stages, args, minutes, clock=time.monotonic):
    """Runs stages. ALWAYS and one more begin in any case, the others only until `minutes` are over (None: no end). Returns their tally, in which each that did not
    begin counts as skipped, and the rows of a table of them all."""
    begun, total, rows, skipped, in_turn_begun = clock(), Tally(), [], [], False
    for name in names:
        start = clock()
        if minutes is not None and in_turn_begun and start - begun >= 60 * minutes:
            tally = Tally(skipped=1)
            skipped.append(name)
        else:
            print(f"\n== {name}: {stages[name].__doc__.strip()}", flush=True)
            tally = stages[name](args)
            in_turn_begun |= name not in ALWAYS
        total += tally
        rows.append(f"{name:<10} {str(tally):<40} {clock() - start:7.1f} s")
    if skipped:
        rows.append(f"No further stage begins after {minutes:g} minutes. Not run: {', '.join(skipped)}. Type:  ci/run --only {','.join(skipped)}")
    return total, rows


def main():
    parser = argparse.ArgumentParser(prog="ci/run", description=__doc__)
    parser.add_argument("--only", help=f"stages, in this order, of {','.join(STAGES)}")
    parser.add_argument("--nightly", action="store_true", help="every stage, each with all that it has, not a rotating few")
    parser.add_argument("--minutes", type=float, help="no stage but the first ones begins after so many minutes; 25 without --only and --nightly, else no end")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(STAGES)
    if unknown := set(names) - set(STAGES):
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    if not args.only and not args.nightly:
        args.minutes = 25 if args.minutes is None else args.minutes
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        names = in_turn(names, head)
    total, rows = run_stages(names, STAGES, args, args.minutes)
    print("\n== all stages", *rows, sep="\n")
    finish(total)


if __name__ == "__main__":
    main()
