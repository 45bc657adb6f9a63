"""What the library finds, as objects: they are true or false, print as the program's screens, and turn into dictionaries."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping

from . import _html


@dataclass(frozen=True)
class Divergence:
    """Where bytes part from the reference's first, in causal order."""

    claim: str
    plane: str = ""
    encoding: str = ""
    where: str = ""        # "row 0, columns 0..31"
    row: int = -1          # coordinates in the plane; -1 where none are known
    col: int = -1
    differ: int = 0
    of: int = 0
    got: int | None = None     # codes
    want: int | None = None
    apart: int | None = None   # codes that lie between them
    message: str = ""
    hint: str = ""
    after: tuple[str, ...] = ()

    @staticmethod
    def of_answer(b: Mapping[str, Any]) -> Divergence:
        return Divergence(b.get("claim", ""), b.get("plane", ""), b.get("encoding", ""), b.get("where", ""), b.get("row", -1), b.get("col", -1),
                          b.get("differ", 0), b.get("of", 0), b.get("got_code"), b.get("want_code"), b.get("apart"), b.get("message", ""),
                          b.get("hint", ""), tuple(b.get("after", ())))


@dataclass(frozen=True)
class PlaneResult:
    """How one plane that was judged came out."""

    encoding: str
    rows: int
    cols: int
    differ: int
    of: int
    first: tuple[int, int] | None = None   # the first element that differs: row and column in the plane
    where: str = ""
    got: int | None = None
    want: int | None = None
    got_value: str = ""
    want_value: str = ""
    apart: int | None = None
    in_padding: bool = False

    @property
    def ok(self) -> bool:
        """Whether no element of the plane differs."""
        return self.differ == 0


def _plane_result(p: Mapping[str, Any]) -> PlaneResult:
    return PlaneResult(**{**p, "first": tuple(p["first"]) if "first" in p else None})


@dataclass(repr=False)
class Verdict:
    """Whether bytes are the reference's. True where they are; prints as the screen of `assay check`."""

    ok: bool
    line: str
    first: Divergence | None
    planes: dict[str, PlaneResult]
    screen: str
    cause: str = ""                                     # in one line, where it was looked for and found
    missing: list[str] = field(default_factory=list)    # planes of the line that were not given, so not judged
    notes: list[str] = field(default_factory=list)
    copied_bytes: int = 0
    facts: dict[str, Any] = field(default_factory=dict, repr=False)
    case: Any = field(default=None, repr=False, compare=False)   # the arrays, where something differs: a notebook's picture is drawn of them

    @staticmethod
    def of_answer(answer: dict[str, Any], copied: int, notes: list[str], case: Any = None) -> Verdict:
        first = Divergence.of_answer(answer["first"]) if answer["first"] else None
        planes = {n: _plane_result(p) for n, p in answer["planes"].items()}
        return Verdict(answer["ok"], answer["line"], first, planes, answer["screen"].strip("\n"), answer["cause"], answer["missing"],
                       [*answer["notes"], *notes], copied, answer, None if answer["ok"] else case)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'passed' if self.ok else 'FAILED'} '{self.line}': {self.summary()}>"

    def __str__(self) -> str:
        said = self.facts.get("notes", [])   # the library's own notes are part of its screen
        return "\n".join([self.screen, *([f"  because  {self.cause}"] if self.cause else []), *(f"  note     {n}" for n in self.notes if n not in said)])

    def summary(self) -> str:
        """One line: "row.scale_inv (e8m0) 89 / 512 (17.4 %), first at (0, 4)"."""
        d = self.first
        if d is None:
            return f"equal: {', '.join(self.planes)}"
        if not d.plane:
            return d.message
        share = f" ({100 * d.differ / d.of:.1f} %)" if d.of else ""
        text = f"{d.plane} ({d.encoding}) {d.differ} / {d.of}{share}, first at ({d.row}, {d.col})"
        return text + (f"; {self.cause}" if self.cause else f"; {d.hint}" if d.hint else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {**self.facts, "copied_bytes": self.copied_bytes, "notes": self.notes}

    def _repr_html_(self) -> str:
        return _html.verdict(self)


@dataclass(repr=False)
class Coherence(Verdict):
    """Whether rows and columns can come from one tensor. True where nothing speaks against it; `undecidable` says why nothing was judged."""

    undecidable: str = ""

    @staticmethod
    def of_coherence(f: dict[str, Any], text: str) -> Coherence:
        return Coherence(f["ok"], text, None, {}, _coherence_screen(f, text), notes=f["notes"], facts={**f, "line": text}, undecidable=f["undecidable"])

    def summary(self) -> str:
        """One line: what was judged, or why nothing was."""
        f = self.facts
        return self.undecidable or f.get("verdict", "") or f"{f['of'] - f['apart']} of {f['of']} elements can come from one tensor"

    def _repr_html_(self) -> str:
        return _html.screen(str(self), self.ok)


def _coherence_screen(f: Mapping[str, Any], text: str) -> str:
    if f["undecidable"]:
        return f"skipped  {text}   {f['undecidable']}"
    if f["ok"]:
        return f"passed   {text}   {f['of']} of {f['of']} elements can come from one tensor"
    rows = [f"FAILED  {text}", "  claim    rows and columns come from one tensor"]
    rows += [f"  cause    {f['verdict']}"] if f["verdict"] else []
    rows += [f"  note     {n}" for n in f["notes"]]
    if f["first"]:
        rows += [f"  first    row {f['first'][0]}, column {f['first'][1]}: {f['first_text']}", f"  judged   {f['apart']} of {f['of']} elements apart"]
    return "\n".join(rows)


@dataclass(frozen=True)
class Cause:
    """One explanation: hypotheses by id in the order in which they act, and how much of the bytes they make."""

    ids: tuple[str, ...]
    title: str
    stage: str
    line: str      # the line that makes these bytes, where keys alone say it
    clause: str
    agree: int
    of: int
    repaired: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.title}   [{' + '.join(self.ids)}{', ' + self.clause if self.clause else ''}]"


_VERDICTS = {"equal": "equal", "certain": "explained", "equivalent": "explained", "partial": "partly", "unexplained": "unexplained", "random": "unexplained"}


@dataclass(repr=False)
class Diagnosis:
    """Why bytes differ. `causes` make every byte that came; `equivalents` are those beside the first, which this input cannot tell from it."""

    verdict: str                # equal, explained, partly or unexplained
    headline: str
    causes: list[Cause]
    equivalents: list[Cause]
    next_best: Cause | None
    stage: str                  # the first that differs
    where: list[str]            # coordinates that tell where the differences lie
    coverage: float             # of the differences, the share that the best cause makes
    screen: str
    facts: dict[str, Any] = field(repr=False, default_factory=dict)
    html: str = field(repr=False, default="")
    case: Any = field(repr=False, default=None)

    @staticmethod
    def of_answer(answer: dict[str, Any], case: Any) -> Diagnosis:
        d = answer["diagnosis"]
        found = [_cause(e) for e in d.get("explanations", [])]
        exact = [c for c in found if c.exact]
        best = found[0] if found else None
        differ = best.repaired / max(_differ(d), 1) if best else 0.0
        verdict = _VERDICTS.get(d["confidence"], "unexplained")
        return Diagnosis(verdict, answer["headline"], exact or found[:1], exact[1:], next((c for c in found if not c.exact and c is not best), None),
                         d["first_stage"] or "", [w["what"] for w in d.get("where", [])],
                         1.0 if verdict in ("equal", "explained") else min(1.0, differ), answer["screen"].rstrip("\n"), d, answer["html"], case)

    def __bool__(self) -> bool:
        """Whether nothing differs."""
        return self.verdict == "equal"

    def __repr__(self) -> str:
        return f"<Diagnosis {self.verdict} '{self.facts.get('line', '')}': {self.headline}>"

    def __str__(self) -> str:
        return self.screen

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `assay explain --json` (docs/reading-a-report.md)."""
        return self.facts

    def reproduce(self, folder: Any) -> str:
        """Writes the case as a pack, and a script that judges it again, into a folder. Returns the pack's path."""
        from ._reproduce import write
        return write(self, folder)

    def _repr_html_(self) -> str:
        return _html.diagnosis(self)


def _cause(e: Mapping[str, Any]) -> Cause:
    agree, of = e.get("agree", 0), e.get("of", 0)
    return Cause(tuple(e.get("ids", ())), e.get("title", ""), e.get("stage", ""), e.get("line", ""), e.get("clause", ""), agree, of,
                 e.get("repaired", 0), agree == of)


def _differ(d: Mapping[str, Any]) -> int:
    return max((e.get("differ", 0) for e in d.get("explanations", [])), default=0)


@dataclass(frozen=True)
class Choice:
    """One way to quantize: Assay's defaults, TransformerEngine's kernels, or a named flavour."""

    name: str
    keys: str
    exact: bool
    agreement: float             # the mean over the planes of the share of elements that agree
    same_as: tuple[str, ...]     # choices that make equal bytes of this input


@dataclass(repr=False)
class Identification:
    """Whose choices made these bytes: `ranking` has the best first. True where one makes every byte."""

    named: bool
    ranking: list[Choice]
    facts: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def best(self) -> Choice | None:
        """The first of the ranking; None where nothing was judged."""
        return self.ranking[0] if self.ranking else None

    @staticmethod
    def of_answer(answer: dict[str, Any]) -> Identification:
        ranking: list[Choice] = []
        for group in answer["groups"]:
            for klass in [*group["with_more_keys"], *group["ranking"]]:
                shares = [p["agree"] / p["of"] if p["of"] else 1.0 for p in klass["planes"]]
                names = [c["name"] for c in klass["choices"]]
                for c in klass["choices"]:
                    ranking.append(Choice(c["name"], c["keys"], klass["exact"], sum(shares) / len(shares) if shares else 0.0,
                                          tuple(n for n in names if n != c["name"])))
        return Identification(bool(answer["groups"]) and all(g["named"] for g in answer["groups"]), ranking, answer)

    def __bool__(self) -> bool:
        return self.named

    def __repr__(self) -> str:
        best = [c.name for c in self.ranking if c.exact] or [f"nearest {c.name}, {100 * c.agreement:.1f} %" for c in self.ranking[:1]]
        return f"<Identification {'named' if self.named else 'not named'}: {', '.join(best) or 'nothing was judged'}>"

    def __str__(self) -> str:
        rows = []
        for group in self.facts["groups"]:
            rows.append(f"{group['formats']}{' ' + group['direction'] if group['direction'] else ''}")
            for klass in [*group["with_more_keys"], *group["ranking"]][:8]:
                shares = " ".join(f"{p['plane']} {'all' if p['agree'] == p['of'] else format(100 * p['agree'] / p['of'], '.2f') + ' %'}" for p in klass["planes"])
                rows.append(f"  {'=' if klass['exact'] else ' '} {shares}   {', '.join(c['name'] for c in klass['choices'])}")
            rows += [f"  = {f['name']}, with {f['plane']} in another layout: {f['description']}" for f in group["layouts"]]
            rows += [f"  ~ consistent with {k}" for k in group["consistent"]]
            rows += [f"    not judged: {m}" for m in group["not_judged"]]
        return "\n".join([*rows, "named" if self.named else "not named"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return self.facts

    def _repr_html_(self) -> str:
        return _html.screen(str(self), self.named)


@dataclass(frozen=True)
class Step:
    """One row of a trace; a side that has no such step is None. Codes are {"encoding", "code", "hex", "value"}."""

    clause: str
    what: str
    reference: Mapping[str, Any] | None
    outputs: Mapping[str, Any] | None
    differs: bool


@dataclass(repr=False)
class Trace:
    """One element, clause by clause: the reference's steps, and the bytes that came beside its own."""

    line: str
    direction: str
    row: int
    col: int
    steps: list[Step]
    outputs: list[Step]
    facts: dict[str, Any] = field(repr=False, default_factory=dict)

    @staticmethod
    def of_answer(t: dict[str, Any]) -> Trace:
        steps, outputs = ([Step(**r) for r in t[name]] for name in ("steps", "outputs"))
        return Trace(t["line"], t["direction"], t["row"], t["col"], steps, outputs, t)

    def __bool__(self) -> bool:
        """Whether no output of this element differs."""
        return not any(s.differs for s in self.outputs)

    def __repr__(self) -> str:
        wrong = [s.what for s in self.outputs if s.differs]
        return f"<Trace of ({self.row}, {self.col}) {self.direction} '{self.line}': {', '.join(wrong) + ' differs' if wrong else 'equal'}>"

    def __str__(self) -> str:
        cell = lambda c: f"{c['hex']:<8}  {c['value']}" if c else "-"
        rows: list[tuple[Any, ...]] = [(s.clause, s.what, cell(s.reference), cell(s.outputs), s.differs) for s in [*self.steps, *self.outputs]]
        widths = [max([len(r[i]) for r in rows] + [5]) for i in range(4)]
        text = [f"trace    {self.line}", f"  element  ({self.row}, {self.col}) {self.direction}", ""]
        text += [f"{'->' if r[4] else '  '} " + "  ".join(str(v).ljust(w) for v, w in zip(r, widths)).rstrip() for r in
                 [("clause", "step", "reference", "outputs", False), *rows]]
        return "\n".join(text)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return self.facts

    def _repr_html_(self) -> str:
        return _html.trace(self)


def as_json(value: Any) -> str:
    return json.dumps(value.to_dict())
