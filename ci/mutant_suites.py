"""What judges a mutant (ci/mutants): suites in shards, third-party bytes, test programs; which parts of them reach which edit; and the first that fails."""
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import time

import folded_build
import mutant_build
from remembered import Remembered, digest, read_json, write_whole
from tally import ROOT, own_temporary_folder, read_tally, run_to_end


def judged(name, subject, shards):
    return [(name, ["assay", "run", name, "--subject", subject, "--first", "--shard", f"{k}/{shards}"]) for k in range(1, shards + 1)]


kBytes = [("vectors", ["assay", "vectors", "fixtures/vectors"]), ("vectors", ["assay", "vectors", "fixtures/vectors/kernels"])]
kRecords = [("records", ["assay", "vectors", "fixtures/witness"])]
kLines = [*judged("smoke", "host", 6), *judged("regressions", "host", 4), *kBytes, *kRecords, *judged("ci", "host", 24), *judged("tensor_core", "reference", 2)]
kFirst = ("smoke", "regressions")   # then the tests, which take seconds, then whatever takes longer
kStories = [*judged("scenarios", "reference", 8), *judged("roles", "reference", 8)]


@dataclasses.dataclass
class Room:
    name: str        # as pages call it
    files: list      # patterns of git ls-files
    without: str     # a pattern of files that are left out
    tasks: list
    tests: list
    small: tuple = ()   # of the tests those that need little of the build


kFastFiles = ["fast/*.cu", "fast/*.cuh", "fast/*.h", "fast/trace.cpp", "fast/gemm_plan.cpp", "fast/subject_lanes.cpp", "fast/subject_host.cpp"]
kRooms = {
    "reference": Room("reference/", ["reference/*.cpp", "reference/*.h"], "$^", kLines, ["reference", "fast_trace", "adam", "attention"], ("reference",)),
    # The executor (simt), the interpreter (ptx, stand_in) and the vectorised method (simd) are no kernels; what only nvcc compiles does not run here.
    "fast": Room("fast/", kFastFiles, r"fast/(simt|ptx|simd|stand_in|silicon)/|absent|subject_(gpu|ptx|cublaslt|simd)|gemm_lt|device_memory|scratch|gpu_case",
                 kLines, ["fast_lanes", "fast_trace", "fast_kernels", "fast_blocks", "fast_gemm", "adam", "attention", "diagnosis", "commands"]),
    "contract": Room("contract/", ["contract/*.cpp", "contract/*.h"], r"assay_plugin", kLines + kStories, ["contract", "fixtures", "training"], ("contract", "fixtures")),
    "training": Room("training/", ["training/*.cpp", "training/*.h"], r"training/(scenarios|parity|mpi|kit)/", kStories + kRecords, ["training"], ("training",)),
    "judge": Room("compare/judge/", ["compare/judge/*.cpp", "compare/judge/*.h"], "$^", kLines, ["compare", "judge_injection"]),
}


def files(room):
    listed = subprocess.run(["git", "ls-files", *kRooms[room].files], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout.split()
    return [name for name in listed if not re.search(kRooms[room].without, name)]


def targets_of(tests, suites):
    return [*(["assay"] if suites else []), *(f"test_{test}" for test in tests)]


def targets(room):
    return targets_of(kRooms[room].tests, suites=True)


def stages(room):
    """Of one edit: the tests that are built and run first, and then the others with the suites."""
    small = kRooms[room].small
    return [*([(small, False)] if small else []), ([test for test in kRooms[room].tests if test not in small], True)]


def first_line(output):
    """What a suite or a test program says of its first failure."""
    found = re.search(r"^(?:FAILED|CRASHED|TIMEOUT|\S* ?crashed|ERROR|error|assay:).*(?:\n +\S.*)?", output, re.M) or re.search(r"^\[  FAILED  \] ([\w./]+)", output, re.M)
    text = found[0] if found else next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    return " ".join(text.split())[:160]


kLeftOut = "not run: "


def left_out(note):
    """The suites that a note says were left for later."""
    return set(note.partition(kLeftOut)[2].split(", ")) - {""}


def nothing_ran(output):
    tally = read_tally(output)
    return tally is not None and tally.passed + tally.failed == 0


def must_pass(command, status, output):
    """RuntimeError where a part fails with nothing edited. One in which no case runs does not."""
    if status != 0 and not nothing_ran(output):
        raise RuntimeError(f"with nothing edited, `{' '.join(command)}` fails ({status}):\n{output[-2000:]}")


class Judges:
    """The parts of a room's suites, run on one build of many edits. A part is run on an edit only if it reaches that edit when nothing is edited (learn)."""

    def __init__(self, room, count, skip, tests=None, suites=True):
        """`tests`, `suites`: a part of the room's judges; all unless said otherwise."""
        self.name, self.room, self.count = room, kRooms[room], count
        self.bin = mutant_build.kBuild / "bin"
        self.path = ROOT / f"build/mutants/{room}.reach.json"
        chosen, tasks = self.room.tests if tests is None else tests, self.room.tasks if suites else []
        of_tests = [(f"test_{test}", [f"test_{test}", f"--gtest_filter={case}.*", "--gtest_fail_fast"]) for test in chosen for case in self.cases(test)]
        first = [task for task in tasks if task[0] in kFirst]
        self.parts = [*first, *of_tests, *(task for task in tasks if task not in first)]
        self.skipped = sorted({*(suite for suite, _ in self.room.tasks), *(f"test_{test}" for test in self.room.tests)} & set(skip))
        self.parts = [part for part in self.parts if part[0] not in skip]
        self.known = {}   # of the words of a part: the numbers of the edits that it reaches, and its seconds

    def cases(self, test):
        names = folded_build.tests_of(self.bin / f"test_{test}", mutant_build.kTree)
        return list(dict.fromkeys(name.split(".")[0] for name in names))

    def run(self, command, number, limit, reached=None):
        """Exit status, or "hangs"; output; seconds."""
        start = time.monotonic()
        with own_temporary_folder() as environment:   # an edit that crashes a test leaves its files
            environment = {**environment, "ASSAY_MUTANT": str(number), **({"ASSAY_MUTANTS_REACHED": str(reached)} if reached else {})}
            # In a session of its own the command does not get the terminal's Ctrl-C, which would look as if a test had noticed the edit.
            output, status = run_to_end([self.bin / command[0], *command[1:]], limit, cwd=mutant_build.kTree, env=environment, start_new_session=True)
        return "hangs" if isinstance(status, str) else status, output, time.monotonic() - start

    def build(self, names):
        """A digest of these programs and of the suites."""
        built = hashlib.sha256()
        for name in names:
            built.update((self.bin / name).read_bytes())
        for suite in sorted((ROOT / "fixtures/suites").glob("*.cases")):
            built.update(suite.read_bytes())
        return built.hexdigest()

    def unedited_passes(self):
        """Runs every part on a build with nothing edited: RuntimeError at one that fails. What passed on the same build before is not run again."""
        passed = Remembered(ROOT / "build/mutants/passed_unedited.json")
        build = self.build(sorted({command[0] for _, command in self.parts}))
        for _, command in self.parts:
            if digest(build, *command) not in passed:
                status, output, _ = self.run(command, 0, 1800)
                must_pass(command, status, output)
                passed.add(digest(build, *command))

    def learn(self, shared):
        """Runs every part with nothing edited, which must pass, and learns what it reaches. What was learnt of the same build before is known."""
        build = self.build(targets(self.name))
        before = shared.once(lambda: read_json(self.path, {}))
        self.known = before["parts"] if before.get("build") == build else {}
        commands = [command for _, command in self.parts if " ".join(command) not in self.known]
        for i, part in shared.each(len(commands), lambda i: self.reach(commands[i], f"reached.{shared.rank}")):
            self.known[" ".join(commands[i])] = part
            if shared.rank == 0:
                write_whole(self.path, json.dumps({"build": build, "parts": self.known}))

    def reach(self, command, name):
        """The numbers of the edits that a part reaches, and its seconds. Nothing is reached by a part without cases."""
        file = ROOT / "build/mutants" / name
        file.write_bytes(bytes(self.count + 1))
        status, output, seconds = self.run(command, 0, 1800, file)
        must_pass(command, status, output)
        return {"reached": [] if nothing_ran(output) else [n for n, seen in enumerate(file.read_bytes()) if seen], "seconds": round(seconds, 2)}

    def verdict(self, number):
        """(verdict, suite, note) of the edit with this number: at the first part that fails, crashes, or takes ten times its time."""
        reaching = [(suite, command, self.known[" ".join(command)]["seconds"]) for suite, command in self.parts if number in self.known[" ".join(command)]["reached"]]
        for suite, command, seconds in reaching:
            if killed := self.killed(suite, command, number, seconds):
                return killed
        notes = [*([] if reaching else ["reached by nothing that ran"]), *([kLeftOut + ", ".join(self.skipped)] if self.skipped else [])]
        return "survived", "", "; ".join(notes)

    def verdict_alone(self):
        """The same of a build that has one edit."""
        for suite, command in self.parts:
            if killed := self.killed(suite, command, 0, 60, nothing_is_killed=False):
                return killed
        return ("unfolded", "", kLeftOut + ", ".join(self.skipped)) if self.skipped else ("survived", "", "")

    def killed(self, suite, command, number, seconds, nothing_is_killed=True):
        """The verdict of one part that kills an edit, or None. `nothing_is_killed`: a part in which no case runs has one when nothing is edited."""
        status, output, _ = self.run(command, number, 30 + 10 * seconds)
        if status == "hangs":
            return "killed", suite, f"no end within ten times {seconds:.0f} s"
        if status != 0 and (nothing_is_killed or not nothing_ran(output)):
            return "killed", suite, first_line(output)
        return None
