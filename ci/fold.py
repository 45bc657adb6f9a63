"""Folds edits of one source into it, each behind a number that is read at run time, so that one build serves many of them (ci/mutants, ci/faults).

An edit of a statement inside a function becomes

    if (::assay_mutants::on(17)) { the edited statement } else { the statement }

and an edit of a declaration takes the rest of its block along, so that each copy has its own. No expression is rewritten: its type, its overloads and what it refers to stay what
they were. What stands outside every function (a default argument, a table, a signature) cannot be folded, and neither can what would part a `switch` from its labels.
"""
import dataclasses
import re
import typing

kHeaderName = "assay_mutants.h"   # included by whatever has edits
kToken = re.compile(r"""
  (?P<skip>//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.)*)
 |(?P<text>R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
 |(?P<word>\.?\d(?:[eEpP][+-]|'\w|[\w.])*|[A-Za-z_]\w*)
 |(?P<sign>->|::|<=|>=|==|!=|[^\s\w])
""", re.X | re.S | re.M)
kOpen, kClose = {"(": ")", "[": "]", "{": "}"}, {")": "(", "]": "[", "}": "{"}
kBeforeCode = {")", "]", "else", "do", "try", "const", "noexcept", "override", "mutable"}
# A statement that surely declares nothing; whatever else is taken for a declaration, which is right for every statement. ASSAY_SHARED(...) declares.
kNoDeclaration = re.compile(r"(?:return|if|for|while|switch|do|break|continue|throw|else)\b|\+\+|--|\*|\(|[\w.\->:]+(?:\[[^;]*\])?\s*(?:[-+*/%&|^]|<<|>>)?=[^=]"
                            r"|(?!ASSAY_)[\w.\->:]+\(.*\)\s*;?$", re.S)


@dataclasses.dataclass
class Token:
    text: str
    begin: int
    end: int
    match: int = -1   # of a bracket, the index of the other one


def tokens(source):
    """Those that are code, brackets paired. None where they do not pair."""
    out, stack = [], []
    for found in kToken.finditer(source):
        if found.lastgroup == "skip" or found["skip"]:
            continue
        token = Token(found[0], found.start(), found.end())
        if token.text in kOpen:
            stack.append(len(out))
        elif token.text in kClose:
            if not stack or out[stack[-1]].text != kClose[token.text]:
                return None
            token.match = stack.pop()
            out[token.match].match = len(out)
        out.append(token)
    return None if stack else out


def quiet_ranges(source):
    """Where comments, preprocessor lines and texts stand, and the lines that only a GPU compiles: an edit there does not change the host's program."""
    out, hidden = [], []
    for found in kToken.finditer(source):
        if found["skip"] is not None or found["text"] is not None:
            out.append((found.start(), found.end()))
        line = (found["skip"] or "").strip()
        if re.match(r"#\s*if", line):
            hidden.append((bool(re.search(r"^#\s*if(?:def)?\s+(?:defined\()?__CUDA(?:_ARCH__|_ARCH_FEAT_|CC__)", line)), found.end()))
        elif re.match(r"#\s*(else|elif|endif)", line) and hidden:
            gpu, start = hidden.pop()
            if gpu:
                out.append((start, found.start()))
            if not re.match(r"#\s*endif", line):
                hidden.append((False, found.end()))
    return out


def is_code_block(all_tokens, i, parents):
    before = all_tokens[i - 1].text if i else ""
    if before in kBeforeCode:
        return True
    if before in (";", "{", "}", ":") and parents and parents[-1]:   # a block of its own, or one behind a label
        return True
    for back in range(i - 1, max(i - 20, 0), -1):   # `) -> type {`
        if all_tokens[back].text == "->":
            return all_tokens[back - 1].text in (")", "mutable", "const", "noexcept")
        if not re.fullmatch(r"\w+|::|[<>*&,]", all_tokens[back].text):
            return False
    return False


def code_blocks(all_tokens):
    """The blocks of statements, as pairs of indices of their braces; inner ones after outer ones."""
    out, parents = [], []
    for i, token in enumerate(all_tokens):
        if token.text == "{":
            code = is_code_block(all_tokens, i, parents)
            parents.append(code)
            if code:
                out.append((i, token.match))
        elif token.text == "}":
            parents.pop()
    return out


def statement_end(t, i):
    """The index past the statement that begins at token i."""
    word = t[i].text
    if word == "{":
        return t[i].match + 1
    if word in ("if", "for", "while", "switch"):
        while t[i].text != "(":
            i += 1
        i = statement_end(t, t[i].match + 1)
        if word == "if" and i < len(t) and t[i].text == "else":
            i = statement_end(t, i + 1)
        return i
    if word == "do":
        i = statement_end(t, i + 1)   # then: while ( ) ;
        return t[i + 1].match + 2
    if word in ("case", "default"):
        while t[i].text != ":":
            i += 1
        return i + 1
    if word == "try":
        i = t[i + 1].match + 1
        while t[i].text == "catch":
            i = t[t[i + 1].match + 1].match + 1
        return i
    while t[i].text != ";":
        i = t[i].match + 1 if t[i].text in kOpen else i + 1
        if i >= len(t) or t[i].text in kClose:
            raise IndexError("no statement")
    return i + 1


def site(source, all_tokens, blocks, begin, end):
    """The part of the source that is to be doubled for an edit of source[begin:end], or None."""
    around = [b for b in blocks if all_tokens[b[0]].end <= begin and end <= all_tokens[b[1]].begin]
    for block in reversed(around):
        try:
            i, touched, labels = block[0] + 1, [], []
            while i < block[1]:
                after = statement_end(all_tokens, i)
                first, last = all_tokens[i], all_tokens[after - 1]
                if first.begin < end and begin < last.end or begin == end and first.begin <= begin <= last.end:
                    touched.append((first.begin, last.end, first.text))
                if first.text in ("case", "default"):
                    labels.append(first.begin)
                i = after
        except IndexError:
            return None
        if not touched or any(word in ("case", "default") for _, _, word in touched):
            continue   # the label of a switch: the whole switch, in the block around
        if touched[0][0] > begin or touched[-1][1] < end:
            continue
        start, stop, _ = touched[0]
        if len(touched) == 1 and kNoDeclaration.match(source[start:stop]):
            return start, stop
        stop = all_tokens[block[1] - 1].end
        return None if any(label > start for label in labels) or touched[0][2] == "static" else (start, stop)
    return None


def changed_range(old, new):
    """The part of the old line that is another in the new one, and what stands there."""
    a = 0
    while a < min(len(old), len(new)) and old[a] == new[a]:
        a += 1
    b = 0
    while b < min(len(old), len(new)) - a and old[-1 - b] == new[-1 - b]:
        b += 1
    return a, len(old) - b, new[a:len(new) - b]


class Edit(typing.NamedTuple):
    """source[begin:end] becomes `new`."""
    begin: int
    end: int
    new: str


def edit_between(old, new, at=0):
    """The edit that makes the text `old`, which stands at `at`, the text `new`: no longer than it must be."""
    begin, end, middle = changed_range(old, new)
    return Edit(at + begin, at + end, middle)


def edit_of_line(source, line, new):
    """The edit that gives a line of the source another text."""
    lines = source.splitlines(True)
    return edit_between(lines[line - 1].rstrip("\n"), new, sum(map(len, lines[:line - 1])))


def overlap(a, b):
    return a[0] < b[1] and b[0] < a[1]


class Fold:
    """A source with numbered edits: of each number one, or several that are made together. `text` is the source with those that could be folded, `left` has the numbers of the
    others; those of `without` are left out as well."""

    def __init__(self, source, edits, without=()):
        self.source, self.tokens = source, tokens(source)
        self.blocks = code_blocks(self.tokens) if self.tokens else []
        self.left, sites = [], {}
        for number, several in edits.items():
            copies = self.copies(sorted(several))
            if copies is None:
                self.left.append(number)
            elif number not in without:
                for place, edited in copies:
                    sites.setdefault(place, []).append((number, edited))
        body = self.rendered(0, len(source), sorted(sites.items(), key=lambda s: (s[0][0], -s[0][1])))
        once = re.search(r"^#pragma once\n", body, re.M)
        at = once.end() if once else 0
        self.text = body[:at] + f'#include "{kHeaderName}"\n' + body[at:]

    def copies(self, edits):
        """The parts of the source that are to be doubled for these edits, each with its other text, or None. Edits whose parts overlap are made in one."""
        places = [site(self.source, self.tokens, self.blocks, e.begin, e.end) for e in edits] if self.tokens else [None]
        if None in places:
            return None
        for i, (e, later) in enumerate(zip(edits, edits[1:])):
            if overlap(places[i], places[i + 1]):
                joined = Edit(e.begin, later.end, e.new + self.source[e.end:later.begin] + later.new)
                return self.copies([*edits[:i], joined, *edits[i + 2:]])
        out = [(place, self.source[place[0]:e.begin] + e.new + self.source[e.end:place[1]]) for place, e in zip(places, edits)]
        return None if any(tokens(text) is None for _, text in out) else out

    def rendered(self, begin, end, sites):
        out, i = [], 0
        while i < len(sites):
            (start, stop), edits = sites[i]
            inner = [s for s in sites[i + 1:] if s[0][0] >= start and s[0][1] <= stop]
            out.append(self.source[begin:start])
            for number, edited in edits:
                out.append(f"\nif (::assay_mutants::on({number})) {{  // edit {number}\n{edited}\n}} else  // end {number}\n")
            out.append("{\n" + self.rendered(start, stop, inner) + "\n}\n")
            begin = stop
            i += 1 + len(inner)
        return "".join(out) + self.source[begin:end]

    def lines(self):
        """Of each number, the lines of `text` on which its copies stand, as pairs."""
        out, number, first = {}, None, 0
        for n, line in enumerate(self.text.splitlines(), 1):
            if found := re.search(r"// edit (\d+)$", line):
                number, first = int(found[1]), n
            elif re.search(r"// end (\d+)$", line) and number is not None:
                out.setdefault(number, []).append((first, n))
                number = None
        return out


kHeader = """// What ci/mutants and ci/faults fold into the sources of their copies.
#pragma once
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
namespace assay_mutants {
inline constexpr int kCount = @COUNT@;
inline int current = 0;
inline unsigned char* reached = nullptr;   // a file that all processes of a run share, where ASSAY_MUTANTS_REACHED names one
inline void start() {
  static bool done = false;
  if (done) return;
  done = true;
  if (const char* text = std::getenv("ASSAY_MUTANT")) current = std::atoi(text);
  const char* path = std::getenv("ASSAY_MUTANTS_REACHED");
  const int file = path ? open(path, O_RDWR) : -1;
  if (file < 0) return;
  void* at = mmap(nullptr, kCount + 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at != MAP_FAILED) reached = static_cast<unsigned char*>(at);
}
__attribute__((constructor(101), used)) static void start_early() { start(); }
inline bool hit(int number) {
  if (reached && !reached[number]) reached[number] = 1;
  return current == number;
}
constexpr bool on(int number) {
  if (__builtin_is_constant_evaluated()) return false;
  return hit(number);
}
}  // namespace assay_mutants
"""
