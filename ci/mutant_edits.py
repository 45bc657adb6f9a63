"""The edits of a room that ci/mutants tries: what universalmutator offers, less what is no edit of the program, in an order that a seed decides."""
import collections
import dataclasses
import hashlib
import json
import re
import subprocess
import sys

import fold
from tally import ROOT

kRelease = "universalmutator==1.14.1"
kVenv = ROOT / "build/mutants/venv"
# Run by the Python that has universalmutator.
kList = """
import contextlib, io, json, sys
from universalmutator import mutator
out = {}
for path in json.load(sys.stdin):
    with open(path, encoding="utf-8") as file, contextlib.redirect_stdout(io.StringIO()):
        found = mutator.mutants_regexp(file.read().splitlines(True), ["universal.rules", "c_like.rules", "cpp.rules"], ignorePatterns=[], ignoreStringOnly=True)
    out[path] = [(line, text) for line, text, rule, _ in found if "break;" not in rule[0] and "continue;" not in rule[0]]
json.dump(out, sys.stdout)
"""


@dataclasses.dataclass(frozen=True)
class Edit:
    """The line `line` of `file`, whose text `was` is the nth of its kind, reads `now` instead (both without the white space around them)."""
    file: str
    line: int
    nth: int
    was: str
    now: str

    def key(self):
        return self.file, self.nth, self.was, self.now


def tool():
    """The Python that has universalmutator, or None; installs it below build/ the first time, from the package index that pip knows."""
    python, done = kVenv / "bin/python", kVenv / kRelease
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", kVenv], check=True)
        if subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", kRelease]).returncode != 0:
            return None
        done.touch()
    return python


def is_program(source, quiet, begin, end, middle):
    """Whether an edit that puts `middle` for source[begin:end] can be one of the program: not in a comment, a text, a preprocessor line or GPU code, not a digit of a name,
    no angle bracket (a comparison has spaces around it), and no function's value taken away."""
    if any(a <= begin and end <= b for a, b in quiet):
        return False
    if middle.startswith("/*") and re.match(r"return\b[^;]", source[begin:end]):   # compilers warn of a function without its value, and what it then does is anything
        return False
    old, name = source[begin:end], re.search(r"\w*$", source[:begin])[0]
    if re.match(r"[A-Za-z_]", name) and re.fullmatch(r"[\d()+-]*", old + middle):
        return False
    sign = re.search(r"[<>=!]*$", source[:begin])[0] + old
    return not (re.fullmatch(r"[<>=!]+", sign + middle) and re.match(r"[<>]", sign) and not source[begin - len(sign) + len(old) - 1].isspace())


def offered(names):
    """Every edit of these files that can change the program and whose brackets pair, in the order of the files."""
    answer = subprocess.run([tool(), "-c", kList], input=json.dumps(names), cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True)
    out = []
    for name, found in json.loads(answer.stdout).items():
        source = (ROOT / name).read_text()
        lines, quiet, starts, nth, seen = source.splitlines(), fold.quiet_ranges(source), [0], [], collections.Counter()
        for line in lines:
            starts.append(starts[-1] + len(line) + 1)
            seen[line.strip()] += 1
            nth.append(seen[line.strip()])
        for line, text in found:
            old, new = lines[line - 1], text.rstrip("\n")
            a, b, middle = fold.changed_range(old, new)
            if is_program(source, quiet, starts[line - 1] + a, starts[line - 1] + b, middle) and old.strip() != new.strip() and balanced(old, new):
                out.append(Edit(name, line, nth[line - 1], old.strip(), new.strip()))
    return out


def balanced(old, new):
    """Whether a line opens and closes as many brackets as before, unless it is taken away whole."""
    if new.strip().startswith("/*"):
        new = ""
    count = lambda text: tuple(text.count(a) - text.count(b) for a, b in ("()", "[]", "{}"))
    return count(old) == count(new)


def ordered(edits, seed):
    """In the order of a digest of seed and edit; at first one edit for each line, then each line's second, and so on. An edit keeps its place whatever else changes."""
    order = sorted(edits, key=lambda e: hashlib.sha256(f"{seed}\0{e.key()}".encode()).digest())
    turn, out = collections.Counter(), []
    for edit in order:
        line = (edit.file, edit.nth, edit.was)
        out.append((turn[line], edit))
        turn[line] += 1
    return [edit for _, edit in sorted(out, key=lambda pair: pair[0])]


def stands(edit):
    """Whether the line of an edit is still where it was."""
    lines = (ROOT / edit.file).read_text().splitlines() if (ROOT / edit.file).is_file() else []
    return edit.line <= len(lines) and lines[edit.line - 1].strip() == edit.was
