"""The copy of the sources in which ci/mutants edits: one build of many edits (folded_build.py), or one of a single edit."""
import folded_build
import source_copy
from fold import edit_of_line
from tally import ROOT

kTree = ROOT / "build/mutants/tree"
kBuild = kTree / "build/cpu"


def edited_line(edit):
    """The line of the source that is edited, as it is then."""
    old = (ROOT / edit.file).read_text().split("\n")[edit.line - 1]
    return old[:len(old) - len(old.lstrip())] + edit.now


def put(edit):
    """Makes the copy the sources with one edit."""
    unedited()
    source = (ROOT / edit.file).read_text()
    begin, end, new = edit_of_line(source, edit.line, edited_line(edit))
    source_copy.write(kTree / edit.file, (source[:begin] + new + source[end:]).encode())


def compiles(targets):
    return folded_build.compiled(kTree, targets, errors=1)[0]   # the first error tells that it is no mutant


def unedited():
    """Makes the copy the sources."""
    source_copy.sync(kTree)


def folded(edits, targets, leave):
    """One build of many edits, by number; `leave` is told which do not compile in it."""
    by_file = {n: {e.file: [edit_of_line((ROOT / e.file).read_text(), e.line, edited_line(e))]} for n, e in edits.items()}
    return folded_build.FoldedBuild(kTree, by_file, targets, lambda blamed: leave([edits[n] for n in blamed]))
