"""The scores of all rooms as docs/independence.md has them: written by ci/mutants --report, and held to the tables by ci/check."""
import mutant_suites
import mutant_table
from remembered import write_whole
from tally import ROOT

kPage = "docs/independence.md"
kMarks = ("<!-- written by ci/mutants --report -->\n", "<!-- end of what ci/mutants --report writes -->\n")


def table(root=ROOT):
    """The text of the table."""
    lines = ["| room | mutants | killed | by | equivalent | holes | without a build yet | score |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for room, known in mutant_suites.kRooms.items():
        s = mutant_table.score(room, root)
        suites = ", ".join(f"{name} {n}" for name, n in s.suites.most_common())
        percent = f"{s.percent():.1f} %" if s.killed + s.survived else "not measured yet"
        lines.append(f"| `{known.name}` | {s.killed + s.survived + s.equivalent} | {s.killed} | {suites} | {s.equivalent} | {s.survived} | {s.unfolded} | {percent} |")
    return "\n".join(lines) + "\n"


def with_table(page, root=ROOT):
    """The text of the page with the table of now in its place."""
    before, rest = page.split(kMarks[0])
    return before + kMarks[0] + table(root) + kMarks[1] + rest.split(kMarks[1])[1]


def write():
    write_whole(ROOT / kPage, with_table((ROOT / kPage).read_text()))
