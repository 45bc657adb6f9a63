"""Decides which sources of a room are compiled as one unit; prints `<batch number> <source>` for each of them (cmake/rooms.cmake).
    batches.py <most lines a batch> <source> ...
A batch pastes its sources one after another, so each sees the names that the ones before it keep in an anonymous namespace. Such a name must not take the place
of another one. Sources therefore share a batch only where
- no name is kept by two of them,
- no source, nor a header that it includes, calls a function or mentions a type or a constant that another source keeps,
- none after the first that opens namespaces opens others.
"""
import functools
import pathlib
import re
import sys

NOT_CODE = re.compile(r'//(?! namespace$)[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|(?<!#include )"(?:\\.|[^"\\\n])*"', re.S | re.M)
LOCAL = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.S | re.M)
# clang-format puts every declaration of a namespace at the margin.
TYPE = re.compile(r"^(?:struct|class|enum class|enum|union) (\w+)|^using (\w+) =", re.M)
CONSTANT = re.compile(r"\b(k[A-Z0-9]\w*)(?=[^\n;]*(?:[={;\[]|$))")
FUNCTION = re.compile(r"(?<![\w.>:])([A-Za-z_]\w*)\(")
OPENED = re.compile(r"^using (?:namespace |enum )?(?!std::)[\w:]+;", re.M)
CALL = re.compile(r"(?<![\w.])(?<!->)(?<!::)([A-Za-z_]\w*)(?:<[^;(){}]*>)?\(")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
NAME = re.compile(r"(?<![\w.])(?<!->)(?<!::)(?:k[A-Z0-9]|[A-Z])\w*")  # of a type or a constant; not a member, not qualified
# What stands before a parenthesis and is no function of the project's.
NO_FUNCTION = {"if", "for", "while", "switch", "return", "decltype", "alignas", "sizeof", "noexcept", "requires", "void", "bool", "int", "catch", "static_assert",
               "string", "TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P"}
ROOT = pathlib.Path(__file__).resolve().parent.parent


def kept_names(code):
    names = set()
    for part in LOCAL.findall(code):
        names |= {a or b for a, b in TYPE.findall(part)}
        for line in part.splitlines():
            if line and line[0] not in " #})":
                functions = [n for n in FUNCTION.findall(line.split("=")[0]) if n not in NO_FUNCTION]
                names |= set(CONSTANT.findall(line)) | set(functions[:1])
    return names


def used_names(code):
    """The functions that it calls, the types and constants that it mentions, and those of the headers that it includes."""
    used = (set(CALL.findall(code)) - NO_FUNCTION) | set(NAME.findall(code))
    return frozenset(used.union(*map(used_in_header, INCLUDE.findall(code))))


@functools.cache
def used_in_header(name):
    file = ROOT / name
    return used_names(NOT_CODE.sub(" ", file.read_text())) if file.is_file() else frozenset()  # else it belongs to a library


class Source:
    def __init__(self, path):
        code = NOT_CODE.sub(" ", pathlib.Path(path).read_text())  # without comments and strings; includes stay
        self.path = path
        self.lines = code.count("\n")
        self.kept = kept_names(code)
        self.used = used_names(code)
        self.opened = set(OPENED.findall(code))

    def agrees_with(self, earlier):
        # What a source uses and keeps itself is its own; were it another's as well, two would keep it.
        return earlier.opened in (set(), self.opened) and not (self.kept & (earlier.kept | earlier.used) or earlier.kept & self.used)


def batches(sources, most):
    """First fit, in the order given, so that neighbours stay together and a new file moves few others. A source that opens a namespace opens it for all after it,
    so these come last."""
    made = []
    for source in sorted(sources, key=lambda s: bool(s.opened)):
        for batch in made:
            if sum(s.lines for s in batch) + source.lines <= most and all(source.agrees_with(s) for s in batch):
                batch.append(source)
                break
        else:
            made.append([source])
    return made


if __name__ == "__main__":
    for number, batch in enumerate(batches([Source(p) for p in sys.argv[2:]], int(sys.argv[1]))):
        for source in batch:
            print(number, source.path)
