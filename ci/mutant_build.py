"""A build that serves many edits at once (ci/mutants): the copy of the sources, what of the edits can be folded into it, and what the compiler says of each."""
import os
import re
import subprocess

import mutant_fold
import source_copy
from tally import ROOT, cores

kTree = ROOT / "build/mutants/tree"
kBuild = kTree / "build/cpu"
kHeader = "assay_mutants.h"
# The copy is compiled by the same paths as the sources (as ci/build says them to ccache), so what is not edited comes from the cache.
kEnvironment = {**os.environ, "CCACHE_BASEDIR": str(ROOT)}


def compiled(targets):
    """Compiles the copy. Returns whether it compiled, and what was said."""
    if not (kBuild / "build.ninja").is_file():
        subprocess.run(["cmake", "--preset", "cpu"], cwd=kTree, env=kEnvironment, stdout=subprocess.DEVNULL, check=True)
    done = subprocess.run(["cmake", "--build", str(kBuild), "--parallel", str(cores()), "--target", *targets, "--", "-k", "0"], cwd=kTree, env=kEnvironment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode == 0, done.stdout


def plain(targets, edit=None):
    """The copy without edits, or with one."""
    source_copy.sync(kTree)
    if edit:
        source_copy.write(kTree / edit.file, edited(edit).encode())
    return compiled(targets)


def edited(edit):
    lines = (ROOT / edit.file).read_text().split("\n")
    old = lines[edit.line - 1]
    lines[edit.line - 1] = old[:len(old) - len(old.lstrip())] + edit.now
    return "\n".join(lines)


def blamed(output, folds, compiling):
    """The edits on whose lines an error stands, or an instantiation that led to one."""
    out = set()
    for name, line in re.findall(r"(?:^|\s|/)((?:reference|fast|contract|training|compare)/[\w./]+):(\d+)", compiling(output), re.M):
        for number, (first, last) in (folds[name].lines() if name in folds else {}).items():
            if first <= int(line) <= last:
                out.add(number)
    return out


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


class Folded:
    """Compiles `edits` (by number) into one build. `usable` are those that it holds, `unfolded` those that need one of their own; what is in neither does not compile, and
    `forget` is told of it at once."""

    def __init__(self, edits, targets, forget):
        self.unfolded, self.invalid = set(), set()
        source_copy.sync(kTree, keep=(kHeader, *{e.file for e in edits.values()}))
        source_copy.write(kTree / kHeader, mutant_fold.kHeader.replace("@COUNT@", str(max(edits))).encode())
        while True:
            folds = self.write(edits)
            good, output = compiled(targets)
            if good:
                break
            wrong = blamed(output, folds, errors_of)
            if not wrong:
                (ROOT / "build/mutants/build.log").write_text(output)
                raise RuntimeError(f"the folded sources do not compile, and no edit is to blame: build/mutants/build.log\n{errors_of(output)[:2000]}")
            forget([edits[n] for n in wrong])
            self.invalid |= wrong
        self.usable = set(edits) - self.unfolded - self.invalid

    def write(self, edits):
        folds = {}
        for name in sorted({e.file for e in edits.values()}):
            mine = [(n, e.line, self.line(e)) for n, e in edits.items() if e.file == name and n not in self.invalid]
            folds[name] = mutant_fold.Fold((ROOT / name).read_text(), mine)
            self.unfolded |= set(folds[name].left)
            source_copy.write(kTree / name, folds[name].text.encode())
        return folds

    @staticmethod
    def line(edit):
        return edited(edit).split("\n")[edit.line - 1]
