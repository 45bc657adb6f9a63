"""A build of a copy of the sources that serves many edits at once (ci/mutants, ci/faults): what can be folded, and what the compiler says of each."""
import os
import re
import subprocess

import fold
import source_copy
from tally import ROOT, cores

# A copy is compiled by the same paths as the sources (as ci/build says them to ccache), so what is not edited comes from the cache.
kEnvironment = {**os.environ, "CCACHE_BASEDIR": str(ROOT)}


def compiled(tree, targets, errors=0):
    """Compiles a copy up to that many errors, 0 for all of them. Returns whether it compiled, and what was said."""
    build = tree / "build/cpu"
    if not (build / "build.ninja").is_file():
        subprocess.run(["cmake", "--preset", "cpu"], cwd=tree, env=kEnvironment, stdout=subprocess.DEVNULL, check=True)
    done = subprocess.run(["cmake", "--build", str(build), "--parallel", str(cores()), "--target", *targets, "--", "-k", str(errors)], cwd=tree, env=kEnvironment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode == 0, done.stdout


def tests_of(program, tree):
    """The full names of the tests of a GoogleTest program in a copy, in its order."""
    listed = subprocess.run([program, "--gtest_list_tests"], cwd=tree, text=True, stdout=subprocess.PIPE, check=True).stdout
    names, group = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        if line[:1].strip() and word.endswith("."):
            group = word
        elif line.startswith("  "):
            names.append(group + word)
    return names


def errors_of(output):
    """The lines of a compiler's output that belong to errors: warnings and their notes name edits that compile."""
    kept, keep = [], False
    for line in output.splitlines():
        if re.search(r": (?:fatal )?error: ", line):
            keep = True
        elif re.search(r": warning: ", line):
            keep = False
        if keep or "required from" in line:
            kept.append(line)
    return "\n".join(kept)


def blamed(output, folds):
    """The numbers on whose lines an error stands, or an instantiation that led to one."""
    out = set()
    for name, line in re.findall(r"(?:^|\s|/)((?:reference|fast|contract|training|compare|fixtures)/[\w./]+):(\d+)", errors_of(output), re.M):
        for number, places in (folds[name].lines() if name in folds else {}).items():
            if any(first <= int(line) <= last for first, last in places):
                out.add(number)
    return out


class FoldedBuild:
    """Compiles `edits` into one build of the copy `tree`: of each number, edits (fold.Edit) by the names of their files. `usable` are the numbers that it holds, `unfolded` those
    that need a build of their own: what cannot be folded, and what the compiler blames here (`leave` is told of that at once). An edit may compile alone and not beside the
    line that it edits: the two `return` another type."""

    def __init__(self, tree, edits, targets, leave=lambda blamed: None):
        self.tree, self.edits, self.unfolded = tree, edits, set()
        self.names = sorted({name for files in edits.values() for name in files})
        source_copy.sync(tree, keep=(fold.kHeaderName, *self.names))
        source_copy.write(tree / fold.kHeaderName, fold.kHeader.replace("@COUNT@", str(max(edits, default=0))).encode())
        while True:
            folds = self.write()
            good, output = compiled(tree, targets)
            if good:
                break
            wrong = blamed(output, folds)
            if not wrong:
                log = tree / "build/folded.log"
                log.write_text(output)
                raise RuntimeError(f"the folded sources do not compile, and no edit is to blame: {log.relative_to(ROOT)}\n{errors_of(output)[:2000]}")
            leave(wrong)
            self.unfolded |= wrong
        self.usable = set(edits) - self.unfolded

    def write(self):
        """What cannot be folded in one file is left out of all."""
        while True:
            folds, before = {}, set(self.unfolded)
            for name in self.names:
                mine = {n: files[name] for n, files in self.edits.items() if name in files}
                folds[name] = fold.Fold((ROOT / name).read_text(), mine, without=self.unfolded)
                self.unfolded |= set(folds[name].left)
            if self.unfolded == before:
                break
        for name, one in folds.items():
            source_copy.write(self.tree / name, one.text.encode())
        return folds
