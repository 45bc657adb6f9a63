"""Decides which sources of a room are compiled as one unit, writes those units, and prints `<unit> <source>` for each source of them (cmake/rooms.cmake).
    batches.py <folder and first letters of the units> <most lines a batch> <source> ...
A batch pastes its sources one after another, so each sees the names that the ones before it keep in an anonymous namespace. Such a name must not take the place
of another one. A batch therefore includes the headers of all its sources first, and renames by a macro, in its own source, each kept name that
- another source keeps as well, or
- another source or one of its headers calls, or mentions as a type or a constant.
A name cannot be renamed where its source also uses it for a member or behind `::`, or where a header of the source declares it. Two sources share no batch
- where one of them keeps such a name and the other one keeps or mentions it,
- or where they open different namespaces.
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
# What a macro must leave alone: a member, a name that says where it belongs, the name of a test's fixture.
FIXED = re.compile(r"(?:\.|->|::|\bTEST_[FP]\(|\bTEST_SUITE_P\([^)]*)\s*([A-Za-z_]\w*)")
HEADER = re.compile(r'^#include ("[^"]+\.h"|<[^>]+>)', re.M)
CONDITIONAL = re.compile(r"^#if.*?^#endif", re.S | re.M)
NAME = re.compile(r"(?<![\w.])(?<!->)(?<!::)(?:k[A-Z0-9]|[A-Z])\w*")  # of a type or a constant; not a member, not qualified
# What stands before a parenthesis and is no function of the project's.
NO_FUNCTION = {"if", "for", "while", "switch", "return", "decltype", "alignas", "sizeof", "noexcept", "requires", "void", "bool", "int", "catch", "static_assert",
               "string"}  # nor are macros, in capitals, and words of the compiler, behind two underscores
ROOT = pathlib.Path(__file__).resolve().parent.parent


def kept_names(code):
    names = set()
    for part in LOCAL.findall(code):
        names |= {a or b for a, b in TYPE.findall(part)}
        for line in part.splitlines():
            if line and line[0] not in " #})":
                functions = [n for n in FUNCTION.findall(line.split("=")[0]) if n not in NO_FUNCTION and not n.isupper() and n[:2] != "__"]
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


@functools.cache
def declared_in_header(name):
    """The types and functions that it and the headers it includes declare in a namespace, and the constants that they mention."""
    file = ROOT / name
    if not file.is_file():
        return frozenset()
    code = NOT_CODE.sub(" ", file.read_text())
    own = {name for line in code.splitlines() if line[:1].isalpha() for name in FUNCTION.findall(line)[:1]} | {a or b for a, b in TYPE.findall(code)}
    own.update(name for name in NAME.findall(code) if name[0] == "k")
    return frozenset(own.union(*map(declared_in_header, INCLUDE.findall(code))))


class Source:
    def __init__(self, path):
        code = NOT_CODE.sub(" ", pathlib.Path(path).read_text())  # without comments and strings; includes stay
        self.path = path
        self.lines = code.count("\n")
        self.kept = kept_names(code)
        self.used = used_names(code)
        self.opened = set(OPENED.findall(code))
        self.fixed = self.kept & set(FIXED.findall(code)).union(*map(declared_in_header, INCLUDE.findall(code)))
        self.headers = HEADER.findall(CONDITIONAL.sub("", code))

    def renamed_beside(self, other):
        return self.kept & (other.kept | other.used)

    def agrees_with(self, earlier):
        renamed = self.renamed_beside(earlier) & self.fixed | earlier.renamed_beside(self) & earlier.fixed
        return earlier.opened in (set(), self.opened) and not renamed


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


def unit_of(batch):
    """The text of the unit that compiles a batch."""
    text = "".join(f"#include {header}\n" for header in dict.fromkeys(h for source in batch for h in source.headers))
    for number, source in enumerate(batch):
        renamed = sorted(set().union(*(source.renamed_beside(other) for other in batch if other is not source)))
        text += "".join(f"#define {name} {name}_{number}\n" for name in renamed)
        text += f'#include "{pathlib.Path(source.path).resolve().relative_to(ROOT)}"\n'
        text += "".join(f"#undef {name}\n" for name in renamed)
    return text


def main(first_letters, most, *paths):
    for number, batch in enumerate(b for b in batches([Source(p) for p in paths], int(most)) if len(b) > 1):
        unit = pathlib.Path(f"{first_letters}{number}.cpp")
        unit.parent.mkdir(parents=True, exist_ok=True)
        if not unit.exists() or unit.read_text() != unit_of(batch):  # what does not change is not compiled again
            unit.write_text(unit_of(batch))
        for source in batch:
            print(unit, source.path)


if __name__ == "__main__":
    main(*sys.argv[1:])
