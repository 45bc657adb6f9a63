"""Which sources of a room may be compiled as one unit: prints `<batch number> <source>` for each of them (cmake/rooms.cmake).
    batches.py <most lines a batch> <source> ...
A batch pastes its sources one after another, so a name that one of them keeps to itself (in an anonymous namespace) is seen by the next. The compiler refuses a
type or a constant that two of them have, but among functions it would choose. So sources share a batch only where they keep no name in common, neither they
nor the headers that they include call by name what another keeps, and all of them open the same namespaces."""
import functools
import pathlib
import re
import sys

NOT_CODE = re.compile(r'//(?! namespace$)[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S | re.M)
LOCAL = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.S | re.M)
# clang-format puts every declaration of a namespace at the margin.
TYPE = re.compile(r"^(?:struct|class|enum class|enum|union) (\w+)|^using (\w+) =", re.M)
CONSTANT = re.compile(r"\b(k[A-Z0-9]\w*)(?=[^\n;]*(?:[={;\[]|$))")
FUNCTION = re.compile(r"(?<![\w.>:])([A-Za-z_]\w*)\(")
OPENED = re.compile(r"^using (?:namespace |enum )?(?!std::)[\w:]+;", re.M)
CALL = re.compile(r"(?<![\w.])(?<!->)(?<!::)([A-Za-z_]\w*)(?:<[^;(){}]*>)?\(")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
KEYWORDS = {"if", "for", "while", "switch", "return", "decltype", "alignas", "sizeof", "noexcept", "requires", "void", "bool", "int", "catch", "static_assert", "TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P", "std", "string"}


def kept_names(code):
    names = set()
    for part in LOCAL.findall(code):
        names |= {a or b for a, b in TYPE.findall(part)}
        for line in part.splitlines():
            if line and line[0] not in " #})":
                functions = [n for n in FUNCTION.findall(line.split("=")[0]) if n not in KEYWORDS]
                names |= set(CONSTANT.findall(line)) | set(functions[:1])
    return names - KEYWORDS


ROOT = pathlib.Path(__file__).resolve().parent.parent


@functools.cache
def called_in_header(name):
    """What a header and the headers that it includes call."""
    file = ROOT / name
    if not file.is_file():  # of a library
        return frozenset()
    text = file.read_text()
    called = set(CALL.findall(NOT_CODE.sub(" ", text))) - KEYWORDS
    return frozenset(called.union(*map(called_in_header, INCLUDE.findall(text))))


class Source:
    def __init__(self, path):
        text = pathlib.Path(path).read_text()
        code = NOT_CODE.sub(" ", text)
        self.path = path
        self.lines = code.count("\n")
        self.kept = kept_names(code)
        self.opened = set(OPENED.findall(code))
        self.called = (set(CALL.findall(code)) - KEYWORDS).union(*map(called_in_header, INCLUDE.findall(text)))

    def agrees_with(self, other):
        return self.opened == other.opened and not (self.kept & other.kept or self.kept & other.called or other.kept & self.called)


def batches(sources, most):
    """First fit, in the order given, so that neighbours stay together and a new file moves few others."""
    made = []
    for source in sources:
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
