"""The tables of mutants (tests/self/mutants/<room>.tsv): what each edit of a source met. A row belongs to the present sources as long as its line stands there."""
import collections
import dataclasses

from remembered import write_whole
from tally import ROOT

kFolder = "tests/self/mutants"
kColumns = ["file", "line", "nth", "verdict", "suite", "commit", "was", "now", "note"]
kVerdicts = ["killed", "survived", "equivalent", "unfolded"]


@dataclasses.dataclass
class Row:
    """An edit: the nth line of the file that reads `was` (without the white space around it) reads `now`. verdict: killed by `suite` (`note` is its first line),
    survived, equivalent (`note` says why), or unfolded: it needs a build of its own and has had none."""
    file: str
    line: int
    nth: int
    verdict: str
    suite: str
    commit: str
    was: str
    now: str
    note: str

    def key(self):
        return self.file, self.nth, self.was, self.now

    def text(self):
        return "\t".join(str(getattr(self, column)).replace("\t", " ").replace("\n", " ") for column in kColumns)


def load(room, root=ROOT):
    """Rows by their keys. Raises ValueError where the file is not such a table."""
    path = root / kFolder / f"{room}.tsv"
    if not path.is_file():
        return {}
    head, *lines = path.read_text().splitlines()
    if head.split("\t") != kColumns:
        raise ValueError(f"{path.name}: its columns are not {', '.join(kColumns)}")
    rows = {}
    for n, line in enumerate(lines, 2):
        cells = line.split("\t")
        if len(cells) != len(kColumns) or not (cells[1] + cells[2]).isdigit():
            raise ValueError(f"{path.name}:{n}: expected {len(kColumns)} cells, line and nth numbers")
        row = Row(*cells)
        row.line, row.nth = int(row.line), int(row.nth)
        if row.verdict not in kVerdicts or row.key() in rows:
            raise ValueError(f"{path.name}:{n}: expected one row for each edit, with a verdict of {', '.join(kVerdicts)}")
        if row.verdict == "equivalent" and not row.note:
            raise ValueError(f"{path.name}:{n}: an equivalent mutant without a reason")
        if row.verdict == "killed" and not row.suite:
            raise ValueError(f"{path.name}:{n}: a killed mutant without the suite or test that kills it")
        rows[row.key()] = row
    return rows


def save(room, rows):
    """Writes the table in one step, so that a run that is killed loses at most one row."""
    ordered = sorted(rows.values(), key=lambda r: (r.file, r.line, r.was, r.now, r.nth))
    write_whole(ROOT / kFolder / f"{room}.tsv", "\n".join(["\t".join(kColumns), *(row.text() for row in ordered)]) + "\n")


def present(rows, root=ROOT):
    """The rows whose line still stands in its file; their line numbers are those of now."""
    places = {}
    for name in {row.file for row in rows.values()}:
        file, places[name] = root / name, collections.defaultdict(list)
        for n, line in enumerate(file.read_text().splitlines() if file.is_file() else [], 1):
            places[name][line.strip()].append(n)
    out = []
    for row in rows.values():
        found = places[row.file][row.was]
        if len(found) >= row.nth:
            out.append(dataclasses.replace(row, line=found[row.nth - 1]))
    return out


@dataclasses.dataclass
class Score:
    killed: int = 0
    survived: int = 0
    equivalent: int = 0
    unfolded: int = 0
    suites: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def percent(self):
        judged = self.killed + self.survived
        return 100 * self.killed / judged if judged else 0


def score(room, root=ROOT):
    out = Score()
    for row in present(load(room, root), root):
        setattr(out, row.verdict, getattr(out, row.verdict) + 1)
        if row.verdict == "killed":
            out.suites[row.suite] += 1
    return out
