"""The tables of injected faults (tests/self/faults/*.toml), and how one of their edits is applied."""
import pathlib
import re
import tomllib

from fold import edit_between


def load(root):
    """Every fault of every table, in the order of the files."""
    return [fault for table in sorted((pathlib.Path(root) / "tests/self/faults").glob("*.toml"))
            for fault in tomllib.loads(table.read_text())["fault"]]


def places(edit, source):
    """Where the text of an edit stands in a source. White space does not count, so that a row survives a new layout."""
    letters = re.sub(r"\s", "", edit["text"])
    return list(re.finditer(r"\s*".join(map(re.escape, letters)), source))


def edit_in(edit, source):
    """Where the edit stands in the source, and what stands there then: a fold.Edit. Raises ValueError where its text does not stand there once."""
    found = places(edit, source)
    if len(found) != 1:
        raise ValueError(f"its text is {len(found)} times in {edit['file']}, not once")
    replacement = edit["with"]
    if edit["text"][:1].isspace():
        replacement = replacement.lstrip()
    if edit["text"][-1:].isspace():
        replacement = replacement.rstrip()
    return edit_between(found[0][0], replacement, found[0].start())


def applied(edit, source):
    """The source with the edit."""
    begin, end, new = edit_in(edit, source)
    return source[:begin] + new + source[end:]
