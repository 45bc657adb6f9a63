"""Bit flips told from wrong arithmetic: whether few single flipped bits, and no rule, make a case differ from the reference.

A flip may lie in a code, a scale or an amax as they were stored, in a scale before codes were made with it, or in an element of x before the
kernel read it (or after the dump copied it). What a flip would change is not estimated: the reference runs again with that bit flipped.
"""
from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Callable, Iterable

from ._arrays import numpy
from ._codes import in_order
from ._errors import AssayError
from ._flip_search import Place, Search, Side

kMost = 8             # flips in one case; more are not few
_MANTISSAS = {"e4m3": (0x7E, 0x7F), "e5m2": (0x7B, 0x7C), "e2m1": (7, 8), "e2m3": (31, 32), "e3m2": (31, 32)}   # largest finite, first that is not


@dataclass(frozen=True)
class Flip:
    """One flipped bit: where it is, counted from the lowest, what came and what would be right."""

    kind: str      # code, scale, amax: as stored; "scale in use": before codes were made with it; input: an element of x
    plane: str
    row: int       # in the plane; of an input in x
    col: int
    bit: int
    found: int
    right: int
    doubt: str = ""   # how arithmetic could have made it as well; empty: it could not

    def __str__(self) -> str:
        return f"{self.kind} {self.plane} ({self.row}, {self.col}) bit {self.bit}: {self.found:02X}, right {self.right:02X}"


@dataclass
class Flips:
    """What the search found: `verdict` is flips, arithmetic or undecided, `why` says it in words."""

    verdict: str
    why: str
    flips: list[Flip] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {"verdict": self.verdict, "why": self.why, "flips": [asdict(f) for f in self.flips]}


def single_bit(a: int, b: int) -> int | None:
    """The only bit in which two codes differ, or None."""
    apart = a ^ b
    return apart.bit_length() - 1 if apart and apart & (apart - 1) == 0 else None


def flips_of(case: Any, rule: Callable[[], str], seconds: float = 20.0) -> Flips:
    """Looks for the flips of a case of a pack that is not right. `rule` gives the rule that makes all its bytes, in words, or nothing; it is asked
    last, for it takes longest. `seconds` limit the search."""
    try:
        search = Search(case, seconds)
        found = _all(search)
    except AssayError as error:
        return Flips("undecided", f"not searched for flips: {error}")
    if isinstance(found, str):
        return Flips("arithmetic", found)
    if len(found) > kMost:
        return Flips("arithmetic", f"{len(found)} places differ, which is not few", found[:kMost])
    known = rule()
    if known:
        return Flips("arithmetic", f"a rule makes all of it: {known}", found)
    doubtful = [f for f in found if f.doubt]
    if 2 * len(doubtful) >= len(found):
        return Flips("undecided", f"single bits, but {doubtful[0].doubt}", found)
    return Flips("flips", f"single flipped bits in {len(found)} element{'s' if len(found) != 1 else ''}, and no rule makes them", found)


def _all(search: Search) -> list[Flip] | str:
    """Every flip of a case, each input once, or why it is not flips."""
    out: list[Flip] = []
    for side in search.sides:
        found = _of_tensor(search, side)
        if found is None:
            found = _of_blocks(search, side)
        if isinstance(found, str):
            return found
        out += [f for f in found if f.kind != "input" or all((f.row, f.col, f.bit) != (g.row, g.col, g.bit) for g in out if g.kind == "input")]
    out = _without_consequences(search, out)
    named = {s.data for s in search.sides} | {s.scale for s in search.sides} | {n for s in search.sides for n in s.whole}
    for name in search.got:   # planes in an order of their own: byte for byte
        if name not in named:
            more = _stored(search, name, _apart(search, name), "scale")
            if isinstance(more, str):
                return more
            out += more
    return out or "nothing differs at a place that could be a flip"


def _without_consequences(search: Search, found: list[Flip]) -> list[Flip]:
    """The flips without codes and scales that the flipped inputs among them make anyway, as of the other direction."""
    inputs = [((f.row, f.col), f.bit) for f in found if f.kind == "input"]
    if not inputs or len(inputs) == len(found):
        return found
    made = search.with_flips(inputs)
    return [f for f in found if f.kind == "input" or int(made[f.plane][f.row, f.col]) != f.found]


def _apart(search: Search, name: str) -> list[Place]:
    return [(r, c) for r, c in numpy().argwhere(search.got[name] != search.want[name]).tolist()]


def _stored(search: Search, name: str, places: Iterable[Place], kind: str) -> list[Flip] | str:
    """Flips of codes as they lie in a plane; words where one place differs in several bits."""
    out = []
    for r, c in places:
        got, want = int(search.got[name][r, c]), int(search.want[name][r, c])
        bit = single_bit(got, want)
        if bit is None:
            return f"{name} at ({r}, {c}) is {got:02X}, not {want:02X}: not one bit"
        out.append(Flip(kind, name, r, c, bit, got, want))
    return out


# ---- what the whole tensor has in common -----------------------------------------------------------------------------

def _of_tensor(search: Search, side: Side) -> list[Flip] | str | None:
    """Flips that change an amax or the scale of the whole tensor; None where those are right."""
    np = numpy()
    wrong = [n for n in side.whole if (side.got[n] != side.want[n]).any()]
    if not wrong:
        return None
    rest = side.blocks_apart(side.want)
    if not rest:
        if len(wrong) > 1:
            return f"{' and '.join(wrong)} differ, which one bit does not do"
        return _stored(search, wrong[0], [(0, 0)], "amax" if wrong[0].endswith("amax") else "scale")
    for place, bit in _amax_makers(search, side, wrong):
        if search.late():
            return "the time for the search was over"
        made = search.with_flips([(place, bit)])
        if all(np.array_equal(made[n], side.got[n]) for n in (*side.whole, *([side.scale] if side.scale else []), side.data)):
            return [_input(search, place, bit)]
    return f"{wrong[0]} differs, and no flipped bit of x makes the codes that came with it"


def _amax_makers(search: Search, side: Side, wrong: list[str]) -> list[tuple[Place, int]]:
    """Bits of x whose flip could change the tensor's amax to what came."""
    np = numpy()
    codes = np.abs(in_order(side.got[side.data], search.encodings[side.data]))
    codes = codes.T if side.transposed else codes   # the largest element has the largest code
    with np.errstate(all="ignore"):
        sizes = np.abs(search.values(search.x))
        now, name = float(np.nanmax(np.where(np.isfinite(sizes), sizes, 0))), wrong[0]
        got, want = (float(np.asarray(p[name], np.uint32).view(np.float32).reshape(-1)[0]) for p in (side.got, side.want))
        target = got if name.endswith("amax") else now * (want / got if name.endswith("scale") else got / want)
        out = [((int(r), int(c)), bit) for r, c in np.argwhere(sizes == now)[:4] for bit in range(search.width)]
        for bit in range(search.width):
            new = np.abs(search.values(search.x ^ search.x.dtype.type(1 << bit)))
            near = new == target if name.endswith("amax") else np.abs(new / target - 1) < 2.0 ** -6
            places = sorted(np.argwhere(near).tolist(), key=lambda p: -codes[p[0], p[1]] if not side.rotated else 0)
            out += [((r, c), bit) for r, c in places[:64]]
    return out


def _input(search: Search, place: Place, bit: int, doubt: str = "") -> Flip:
    right = int(search.x[place])
    return Flip("input", "x", *place, bit, right ^ (1 << bit), right, doubt)


# ---- blocks ----------------------------------------------------------------------------------------------------------

def _of_blocks(search: Search, side: Side) -> list[Flip] | str:
    apart = side.blocks_apart(side.want)
    if len(apart) > kMost:
        return f"{len(apart)} blocks differ, which is not few"
    under = search.under_scales(side) if any(scales for _, scales in apart.values()) else None
    out: list[Flip] = []
    open_blocks: dict[Place, list[tuple[Place, int]]] = {}
    for block, (codes, scales) in apart.items():
        stored = _stored(search, side.data, codes, "code")
        moved = _stored(search, side.scale, scales, "scale") if side.scale else []
        if not isinstance(stored, str) and not isinstance(moved, str) and not (stored and moved):
            out += [_doubted(search, side, f) for f in [*stored, *_once(moved)]]
        elif scales and not isinstance(moved, str) and under is not None and not _wrong_under(side, under, block):
            out += [_doubted(search, side, replace(f, kind="scale in use")) for f in _once(moved)]
        elif codes:
            open_blocks[block] = _candidates(search, side, block, codes, bool(scales), under)
        else:
            return str(moved)
    if not open_blocks:
        return out
    if not search.local and len(open_blocks) > 1:
        return f"{len(open_blocks)} blocks differ in more than a bit"
    found = _flipped_inputs(search, side, open_blocks)
    return found if isinstance(found, str) else out + found


def _once(flips: list[Flip]) -> list[Flip]:
    """One flip of the scale of a square block, which some formats keep for each row."""
    return flips[:1] if len({(f.bit, f.found) for f in flips}) == 1 else flips


def _elements(side: Side, block: Place) -> list[Place]:
    (high, wide), (rows, cols) = side.block, side.shape
    return [(r, c) for r in range(block[0] * high, min(block[0] * high + high, rows)) for c in range(block[1] * wide, min(block[1] * wide + wide, cols))]


def _wrong_under(side: Side, under: Any, block: Place) -> list[Place]:
    """The elements of a block whose codes are not the reference's under the scale that came."""
    at = [(e, e[::-1] if side.transposed else e) for e in _elements(side, block)]
    return [e for e, p in at if side.got[side.data][p] != under[p]]


def _candidates(search: Search, side: Side, block: Place, codes: list[Place], rescaled: bool, under: Any) -> list[tuple[Place, int]]:
    """Bits of x that may have been flipped, the likeliest first: those of the element whose code is wrong under the scale that came."""
    np = numpy()
    if not rescaled and not side.rotated:
        elements = [side.element(p) for p in codes]
        return [(elements[0], bit) for bit in range(search.width)] if len(elements) == 1 else []
    elements = _elements(side, block)
    if under is not None:
        wrong = _wrong_under(side, under, block)
        if len(wrong) == 1:
            return [(wrong[0], bit) for bit in range(search.width)]
        if len(wrong) > 1 and not (side.format == "fp8_block" and len(wrong) > 4):   # whose under_scales may be another order of roundings
            return []
    if len(elements) > 128 and not side.rotated:   # only the largest, and what becomes the largest, moves the scale of a large block
        rows, cols = zip(*elements)
        bits = search.x[rows, cols]
        with np.errstate(all="ignore"):
            sizes = np.abs(search.values(bits))
            order = np.argsort(-sizes)[:4]
            grown = [(elements[n], bit) for bit in range(search.width)
                     for n in np.argwhere(np.abs(search.values(bits ^ bits.dtype.type(1 << bit))) > sizes.max())[:64, 0]]
        return [(elements[n], bit) for n in order for bit in range(search.width)] + grown
    return [(e, bit) for bit in reversed(range(search.width)) for e in elements]


def _flipped_inputs(search: Search, side: Side, blocks: dict[Place, list[tuple[Place, int]]]) -> list[Flip] | str:
    """One flipped bit of x for each block, tried in all blocks at once: the reference runs as often as the longest list is."""
    found: dict[Place, Flip] = {}
    for n in range(max(map(len, blocks.values()))):
        tried = {b: c[n] for b, c in blocks.items() if b not in found and n < len(c)}
        if not tried:
            continue
        if search.late():
            return "the time for the search was over"
        wrong = side.blocks_apart(search.with_flips(tried.values(), side))
        for block, (place, bit) in tried.items():
            if block not in wrong:
                found[block] = _input_flip(search, side, block, place, bit)
        if len(found) == len(blocks):
            break
    missing = [b for b in blocks if b not in found]
    if missing:
        return f"no flipped bit of x makes the block of {side.data} that begins at element ({missing[0][0] * side.block[0]}, {missing[0][1] * side.block[1]}) of x"
    return list(found.values())


def _input_flip(search: Search, side: Side, block: Place, place: Place, bit: int) -> Flip:
    """The flip, with a doubt where only the code of one element came of it, and arithmetic on that element would do as well."""
    at = place[::-1] if side.transposed else place
    codes = [p for p in (e[::-1] if side.transposed else e for e in _elements(side, block)) if side.got[side.data][p] != side.want[side.data][p]] \
        if side.block != (1, 1) else [at]
    moved = side.scale is not None and block in {side.block_of_scale(p) for p in _apart(search, side.scale)}
    if moved and len(codes) > 1 or side.rotated or not codes:
        return _input(search, place, bit)
    return _input(search, place, bit, _doubt_of_code(search, side, codes[0]))


# ---- doubts ----------------------------------------------------------------------------------------------------------

def _doubted(search: Search, side: Side, flip: Flip) -> Flip:
    doubt = _doubt_of_code(search, side, (flip.row, flip.col)) if flip.plane == side.data else _doubt_of_scale(search, side, flip)
    return replace(flip, doubt=doubt) if doubt else flip


def _doubt_of_code(search: Search, side: Side, place: Place) -> str:
    """How arithmetic could have made one wrong code. A right code of an equal element under an equal scale says that it did not."""
    np = numpy()
    encoding, element = search.encodings[side.data], side.element(place)
    got, want = int(side.got[side.data][place]), int(side.want[side.data][place])
    if not side.rotated:
        scales = side.scales_of_elements() if side.scale is not None else None
        alike = search.x == search.x[element]
        if scales is not None:
            alike &= scales == scales[element]
        right = (side.got[side.data] == side.want[side.data])
        right = right.T if side.transposed else right
        if (alike & right).any():
            return ""
        if int((alike & ~right).sum()) > 1:
            return "equal elements are wrong in the same way"
    apart = abs(int(in_order(np.int64(got), encoding)) - int(in_order(np.int64(want), encoding)))
    low = got & ~(1 << {"e2m1": 3, "e2m3": 5, "e3m2": 5, "bf16": 15, "f16": 15, "f32": 31}.get(encoding, 7))
    largest, special = _MANTISSAS.get(encoding, (-1, 1 << 40))
    if low == 0:
        return "a code that was lost, or flushed to zero, is 0 too"
    if low in (largest, special) or want & ~(got ^ want) & (special - 1) == special - 1:
        return "saturation gives the same code"
    return _doubt_of_neighbour(search, side, place, got, want, encoding) if apart <= 1 else ""


def _doubt_of_neighbour(search: Search, side: Side, place: Place, got: int, want: int, encoding: str) -> str:
    """A neighbouring code is what another rounding gives, if x lies on its side of the right code."""
    np = numpy()
    if not side.rotated:
        try:
            value = float(np.asarray(search.values_of(side.name)[side.element(place)]))
        except AssayError:
            return "a neighbouring code is what another rounding gives"
        x = float(search.values(search.x)[side.element(place)])
        above = int(in_order(np.int64(got), encoding)) > int(in_order(np.int64(want), encoding))
        if x == value and x or x != value and (x > value) != above:
            return ""
    return "a neighbouring code is what another rounding gives"


def _doubt_of_scale(search: Search, side: Side, flip: Flip) -> str:
    """A neighbouring scale is what another rounding gives, unless a block with as large an amax has the right one."""
    np = numpy()
    encoding = search.encodings[flip.plane]
    apart = abs(int(in_order(np.int64(flip.found), encoding)) - int(in_order(np.int64(flip.right), encoding)))
    if apart > 1 and flip.found or side.scale is None:
        return ""
    right = side.got[side.scale] == side.want[side.scale]
    if flip.kind == "scale" and (right & (side.want[side.scale] == flip.right)).any():
        return ""   # codes were made with the right scale, and as large a scale is stored right elsewhere
    if not side.rotated:
        with np.errstate(all="ignore"):
            high, wide = side.block
            sizes = np.zeros((-(-side.shape[0] // high) * high, -(-side.shape[1] // wide) * wide), np.float32)
            sizes[:side.shape[0], :side.shape[1]] = np.abs(search.values(search.x))
            amaxes = np.nanmax(sizes.reshape(sizes.shape[0] // high, high, -1, wide), (1, 3))
        block = side.block_of_scale((flip.row, flip.col))
        wrong = {side.block_of_scale(p) for p in _apart(search, side.scale)}
        if any((r, c) not in wrong for r, c in np.argwhere(amaxes == amaxes[block]).tolist()):
            return ""
    return "a neighbouring scale is what another rounding of it gives"


_WINDOW = re.compile(r":(\d+)-(\d+),(\d+)-(\d+)")
_READ_OFF = re.compile(r"=[0-9A-F]{8}(@|$)")


def rule_in(diagnosis: Any) -> str:
    """The rule that makes every byte of a case, in words; nothing where there is none, or where it only describes what came: a value that was read
    off the bytes, or another element for a single one."""
    if diagnosis.verdict != "explained" or not diagnosis.causes:
        return ""
    for name in diagnosis.causes[0].ids:
        window = _WINDOW.search(name)
        if window and (int(window[2]) - int(window[1])) * (int(window[4]) - int(window[3])) == 1 or _READ_OFF.search(name):
            return ""
    return str(diagnosis.causes[0])
