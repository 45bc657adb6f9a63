"""What makes a line impossible though each of its words is right, op by op, as contract/line/validate.cpp has it. Needs the standard library alone."""
import math

from ._dump_lines import f32_bits, kMostElements, kSlots, kWide
from ._dump_tables import kEncodings, kFlavours, kFormats

kOne, kInfinity, kMagnitude = 0x3F800000, 0x7F800000, 0x7FFFFFFF   # of binary32


def family(kind):
    return kFormats[kind][0]


def has_blocks(kind):
    return kFormats[kind][3] != "tensor"


def is_square(block):
    rows, _, cols = (block or "").partition("x")
    return rows == cols and rows != ""


def too_large(*shape):
    return max(shape, default=0) > kMostElements or math.prod(shape) > kMostElements


# ---- one direction of a quantized tensor ------------------------------------------------------------------------------
class Direction:
    """A direction of a tensor of `shape` from `source`, and its keys; `makes`: whether a quantize or a split makes it."""

    def __init__(self, facts, place, shape, source, makes):
        self.kind, self.direction, self.shape, self.source, self.makes, self.op = facts.formats[place], facts.direction(place), shape, source, makes, facts.op
        self.key = lambda name, otherwise=None: facts.key(place, name, otherwise)

    def faults(self):
        """What is wrong with it, in words; nothing where all is right."""
        key, kind = self.key, self.kind
        if key("scales") == "gemm" and kind == "fp8_block" and self.makes and key("pow2", "1") == "0":
            yield "expected pow2=1 with scales=gemm of fp8_block, found pow2=0 (N9.6)"
        if key("scale_from", "x") != "x":
            if key("four_over_six", "off") != "off":
                yield "expected scale_from=x with four_over_six, which chooses its scales"
            if key("scale_from") == "scale" and kind == "fp8_block" and key("scale_order", "encode_first") == "encode_first":
                yield "expected scale_order=decode_first or decode_divide with scale_from=scale of fp8_block, found encode_first (N17.12)"
        element = key("element", kFormats[kind][1].split("|")[0])
        narrow = kEncodings[self.source if element == "source" else element][0] < 8
        if key("nan_code") == ("negative" if narrow else "minus_zero"):
            yield "expected nan_code=negative of elements of 8 bits, nan_code=minus_zero of E2M1 alone (N17.16)"
        if key("zero_amax") == "epsilon" and family(kind) not in ("fp8_tensor", "fp8_block"):
            yield f"expected zero_amax=epsilon of fp8_current or fp8_block, found {kind} (N17.15)"
        if kind == "nvfp4":
            yield from self.nvfp4_faults()

    def nvfp4_faults(self):
        key, (rows, cols) = self.key, self.shape
        rotates, random = key("rht") == "1" or self.op == "hadamard", key("round") == "sr"
        if rotates and self.source != "bf16":
            yield f"expected a source of bf16 with rht=1, found {self.source}"
        if rotates and rows % 16:
            yield f"expected a multiple of 16 rows with rht=1, found {rows}"
        if key("row_scaled") == "1" and (is_square(key("block")) or rotates or random):
            yield "expected row_scaled=1 with blocks of 1x16, without rht and round=sr (N10.9)"
        if key("four_over_six", "off") != "off" and (rotates or random):
            yield "expected four_over_six without rht and round=sr (N10.10)"
        draw = key("draw", "logical") if random else "logical"
        if draw in ("te_t1d", "te_q2d") and (rows % 32 or cols % 32):
            yield f"expected sizes that are multiples of 32 with draw={draw}, found {rows}x{cols}"
        if draw == "te_rhtrc" and (rows % 64 or cols % 128):
            yield f"expected a multiple of 64 rows and 128 columns with draw=te_rhtrc, found {rows}x{cols}"


def faults_of_directions(facts):
    """The ops whose planes are directions of one tensor."""
    flavour = facts.keys.get("flavour", "assay")
    formats = kFlavours[flavour][0].split()
    if formats and not set(formats) & set(facts.formats.values()):
        yield f"expected a format of flavour={flavour} ({', '.join(formats)}), found {facts.kind}"
    if flavour == "te" and facts.op == "scale_chain":
        yield "expected flavour=te of quantize, split or swizzle, found scale_chain"
    if facts.op != "split":
        for d in facts.formats:
            yield from Direction(facts, d, facts.shape, facts.source, facts.op == "quantize").faults()
        yield from {"dequantize": faults_of_dequantize, "update": faults_of_update, "swizzle": faults_of_swizzle, "scale_chain": faults_of_scale_chain}.get(facts.op, lambda f: ())(facts)
        yield from faults_of_member(facts)
        yield from faults_of_hadamard(facts)


def faults_of_member(facts):
    """The number of a tensor among those that draw (N12.2)."""
    if "rng" in facts.keys and facts.op in ("quantize", "gemm") and int(facts.keys["rng"].split(",")[2]) >= 1 << 17:
        yield f"expected a member below 131072 in rng, found {facts.keys['rng']}"


def faults_of_hadamard(facts):
    if facts.op == "hadamard" and facts.formats["col"] != "nvfp4":
        yield f"expected nvfp4, whose columns are rotated, found {facts.kind}; write hadamard nvfp4 64x256 bf16"


def faults_of_dequantize(facts):
    if facts.kind == "identity" and facts.keys.get("out", facts.source) != facts.source:
        yield f"expected out={facts.source}, for identity dequantizes to its own encoding, found {facts.keys['out']}"


def faults_of_update(facts):
    if facts.kind != "fp8_delayed" or facts.source != "f32" or facts.shape[0] < 1:
        yield f"expected update fp8_delayed of at least one row of f32, found {facts.kind} {facts.shape[0]}x{facts.shape[1]} {facts.source}"


def faults_of_swizzle(facts):
    if not has_blocks(facts.kind):
        yield f"expected a format with scales of blocks, found {facts.kind}; write swizzle mxfp8 64x256 e8m0"
    elif facts.source != kFormats[facts.kind][2]:
        yield f"expected the source {kFormats[facts.kind][2]}, the scales of {facts.kind}, found {facts.source}"


def faults_of_scale_chain(facts):
    e8m0 = kFormats[facts.kind][2] == "e8m0"
    if not e8m0 and facts.kind not in ("fp8_current", "fp8_block", "nvfp4"):
        yield f"expected a format that computes scales, found {facts.kind}"
    if facts.source != "f32" and not (e8m0 and facts.source == "e8m0"):
        yield f"expected amaxes of f32{', or codes of e8m0' if e8m0 else ''}, found {facts.source}"
    if facts.kind == "nvfp4" and facts.shape[1] != 2:
        yield f"expected pairs of the tensor's and a block's amax, two columns, found {facts.shape[1]}"


def faults_of_split(facts):
    yield from faults_of_directions(facts)
    members, vary = facts.members(), facts.keys.get("vary", "first")
    if any(too_large(*m) for m in members) or len(members) >= 1 << 17:
        yield "expected fewer than 131072 members of at most 2^31 elements"
    if vary == "none" and len(set(members)) > 1:
        yield f"expected members of one size with vary=none, found {facts.keys['groups']}"
    count = sum(math.prod(m) for m in members)
    rows, cols = sum(m[0] for m in members), sum(m[1] for m in members)
    whole = (1, count) if vary == "both" else (members[0][0], cols) if vary == "last" else (rows, members[0][1])
    if whole != facts.shape:
        yield f"expected the members to make {facts.shape[0]}x{facts.shape[1]}, found {whole[0]}x{whole[1]}{' (N14.1: vary=both has 1x<elements>)' if vary == 'both' else ''}"
    if int(facts.keys.get("capacity", math.prod(facts.shape))) < count:
        yield f"expected a capacity of at least the {count} elements of the members, found {facts.keys.get('capacity', math.prod(facts.shape))}"
    if "rng" in facts.keys and facts.keys["rng"].split(",")[2].strip("0"):
        yield f"expected a member of 0 in rng, for the members of a split have the numbers 0, 1, ..., found {facts.keys['rng']}"
    for d, kind in facts.formats.items():
        if kind == "fp8_delayed" and facts.key(d, "row_scaled") == "1":
            yield "expected one scale for each member, found row_scaled=1 of fp8_delayed (N14.4)"
        if facts.key(d, "draw", "logical") != "logical":
            yield f"expected draw=logical in a split, found {facts.key(d, 'draw')} (N14.5)"
        for shape in dict.fromkeys(members):
            yield from Direction(facts, d, shape, facts.source, True).faults()


# ---- ops without directions -------------------------------------------------------------------------------------------
def faults_of_cast(facts):
    source, to, keys = facts.source, facts.kind, facts.keys
    mode = keys.get("round", "rp" if to == "e8m0" else "rne")
    if not kEncodings[source][2] or not kEncodings[to][2]:
        yield f"expected a cast between floats, found {source} to {to}"
    elif source == to or (source not in kWide and to not in kWide):
        yield f"expected a cast to another encoding, from or to f32, bf16 or f16, found {source} to {to}"
    if (mode == "rp" and to != "e8m0") or (mode == "rne" and to == "e8m0") or (mode == "sr" and (to, source) != ("e2m1", "f32")):
        yield f"expected round=rp or rz to e8m0, rne or rz to the others, sr from f32 to e2m1 alone, found round={mode} from {source} to {to}"
    small, wide = kEncodings[to][0] < 8, to in kWide
    if keys.get("overflow", "") == ("nosat" if small else "sat" if wide else None):
        yield f"expected overflow={'sat' if small else 'nosat'} to {to}, found {keys['overflow']} (N2.3)"


def faults_of_philox(facts):
    if facts.kind != "u32" or facts.source != "u32" or facts.shape[1] != 4:
        yield f"expected counters of 4 u32, found {facts.kind} {facts.shape[0]}x{facts.shape[1]} {facts.source}; write philox u32 8x4 u32"


def faults_of_adam(facts):
    if facts.source not in kWide or facts.kind not in kWide:
        yield f"expected a gradient and a parameter of f32, bf16 or f16, found {facts.source} and {facts.kind}"
    for name in ("beta1", "beta2"):
        if f32_bits(facts.keys.get(name, "0")) >= kOne:
            yield f"{name}: expected a number from 0 to below 1, found {facts.keys[name]} (N19.1)"
    for name in ("lr", "eps", "decay"):
        if f32_bits(facts.keys.get(name, "0")) & kMagnitude >= kInfinity:
            yield f"{name}: expected a finite number, found {facts.keys[name]} (N19.1)"


def faults_of_scale_state(facts):
    inverse = facts.keys.get("inverse") == "1"
    if facts.kind not in ("f16", "e4m3"):
        yield f"expected f16 or e4m3, found {facts.kind}; write scale_state f16 64x256 f32"
    elif facts.source != (facts.kind if inverse else "f32"):
        yield f"expected the source {facts.kind if inverse else 'f32'}{' with inverse=1' if inverse else ''}, found {facts.source}"


# ---- gemm -------------------------------------------------------------------------------------------------------------
def faults_of_gemm(facts):
    m, n, k = facts.shape
    if too_large(n, m):
        yield f"expected at most 2^31 elements of d, found {m}x{n}"
    if facts.keys.get("out") in ("e4m3", "e5m2") and f32_bits(facts.keys.get("beta", "0")) & kMagnitude:
        yield f"expected beta=0 with out={facts.keys['out']}, which takes no c (N16.8)"
    sources = {side: facts.keys.get(f"{side}.source", facts.source) for side in ("a", "b")}
    for side, outer in (("a", m), ("b", n)):
        shape = (outer, k) if facts.direction(side) == "row" else (k, outer)
        if too_large(*shape):
            yield f"{side}: expected at most 2^31 elements, found {shape[0]}x{shape[1]}"
        yield from (f"{side}: {fault}" for fault in Direction(facts, side, shape, sources[side], True).faults())
        if facts.formats[side] == "nvfp4" and facts.key(side, "row_scaled") == "1" and set(facts.formats.values()) != {"nvfp4"}:
            yield f"expected an nvfp4 partner of {side}.row_scaled=1, found {' and '.join(facts.formats.values())} (N16.9)"
    yield from faults_of_member(facts)
    yield from faults_of_sum(facts, sources)


def faults_of_sum(facts, sources):
    """What each sum multiplies (N16.5)."""
    how, families = facts.keys.get("sum", "f32_sequential"), {family(kind) for kind in facts.formats.values()}
    found = f"found {facts.formats['a']} of {sources['a']} and {facts.formats['b']} of {sources['b']}"
    if how == "hopper_fp8_fast" and families != {"fp8_tensor"}:
        yield f"expected two operands of per-tensor FP8 with sum={how}, {found}"
    if how == "hopper_fp8_split":
        if families not in ({"fp8_tensor"}, {"fp8_block"}):
            yield f"expected two operands of per-tensor FP8, or two of fp8_block, with sum={how}, {found}"
        elif families == {"fp8_block"} and all(is_square(facts.key(side, "block")) for side in ("a", "b")):
            yield f"expected at most one operand in blocks of 128x128 with sum={how} (N16.7)"
    if how == "hopper_f16":
        halves = families == {"identity"} and sources["a"] == sources["b"] != "f32"
        brains = all(family(kind) in ("mx", "nvfp4") or (family(kind) == "identity" and sources[side] == "bf16") for side, kind in facts.formats.items())   # N16.12
        if not halves and not brains:
            yield f"expected operands of identity bf16, mxfp8, mxfp6, mxfp4 and nvfp4, or two of identity f16, with sum={how}, {found}"
    if how == "hopper_tf32" and not (families == {"identity"} and set(sources.values()) == {"f32"}):
        yield f"expected two identity operands of f32 with sum={how}, {found}"


# ---- attention (N20) --------------------------------------------------------------------------------------------------
def lengths_of(facts, key, otherwise):
    text = facts.keys.get(key)
    return otherwise if text is None else [] if text == "full" else [int(n) for n in text.split(",")]


class AttentionSizes:
    """Tokens, heads and lengths of an attention line."""

    def __init__(self, facts):
        one = lambda key, otherwise: int(facts.keys.get(key, otherwise))
        self.batch, self.heads = one("batch", 1), one("heads", 1)
        self.kv_heads = one("kv_heads", self.heads)
        self.layout = facts.keys.get("layout", "bshd")
        self.tokens, cols = facts.shape
        self.depth = cols // max(self.heads, 1)
        self.lengths = lengths_of(facts, "lengths", [])
        self.kv_lengths = lengths_of(facts, "kv_lengths", self.lengths)
        self.has_lengths, self.ragged = bool(self.lengths), self.layout.startswith("t")
        self.q = max(self.lengths, default=0) if self.ragged else self.tokens // max(self.batch, 1)
        self.kv = max(self.kv_lengths, default=0) if self.ragged else one("kv", self.tokens // max(self.batch, 1))
        self.kv_tokens = sum(self.kv_lengths) if self.ragged else self.batch * self.kv
        self.rows, self.kv_rows, self.repeated = self.batch * self.heads * self.q, self.batch * self.kv_heads * self.kv, self.batch * self.heads * self.kv


def faults_of_attention(facts):
    n, cols = AttentionSizes(facts), facts.shape[1]
    if facts.source not in ("bf16", "f16"):
        yield f"expected a source of bf16 or f16, found {facts.source}"
    if cols == 0 or cols % n.heads:
        yield f"expected columns of Q that are {n.heads} heads of one size, found {cols}; write heads="
    if n.heads % n.kv_heads:
        yield f"expected heads to be a multiple of kv_heads, found {n.heads} and {n.kv_heads} (N20.1)"
    if not n.ragged and n.tokens % n.batch:
        yield f"expected tokens that are {n.batch} sequences of one length, found {n.tokens}; write batch=, or layout=thd with lengths="
    yield from faults_of_lengths(n)
    if "3" in n.layout and (n.heads != n.kv_heads or n.q != n.kv or n.lengths != n.kv_lengths):
        yield f"expected Q, K and V of one shape with layout={n.layout}, which packs all three (N20.1)"
    if too_large(n.batch, n.heads) or too_large(n.batch * n.heads, max(n.q, n.kv)) or too_large(n.rows, n.kv) or too_large(n.rows + 2 * n.repeated, n.depth):
        yield "expected at most 2^31 logits and gradients"
    if f32_bits(facts.keys.get("dropout", "0")) >= kOne:
        yield f"dropout: expected a number from 0 to below 1, found {facts.keys['dropout']} (N20.10)"
    yield from faults_of_slots(facts, n)


def faults_of_lengths(n):
    if bool(n.lengths) != bool(n.kv_lengths):
        yield "expected lengths and kv_lengths together, such as lengths=5,3 kv_lengths=8,8"
    if n.ragged and not n.lengths:
        yield f"expected the tokens of each sequence with layout={n.layout}, lengths=5,3,8 for instance (N20.1)"
    if n.lengths and (len(n.lengths) != n.batch or len(n.kv_lengths) != n.batch):
        yield f"expected lengths and kv_lengths of batch={n.batch} sequences, found {len(n.lengths)} and {len(n.kv_lengths)}"
    if too_large(sum(n.lengths), 1) or too_large(sum(n.kv_lengths), n.kv_heads * n.depth):
        yield "expected lengths of at most 2^31 elements"
    if n.ragged and n.lengths and sum(n.lengths) != n.tokens:
        yield f"expected lengths that make the {n.tokens} tokens of the shape, found {sum(n.lengths)}"
    if not n.ragged and any(q > n.q or kv > n.kv for q, kv in zip(n.lengths, n.kv_lengths)):
        yield f"expected at most {n.q} queries and {n.kv} keys of a sequence"


def faults_of_slots(facts, n):
    # Slots of the backward pass have formats even where they take no part.
    kinds = {slot: facts.formats.get(slot, facts.formats["s" if slot == "dp" else "qkv"]) for slot in kSlots}
    for slot, kind in kinds.items():
        inner = slot in ("s", "dp")
        if family(kind) not in ("fp8_tensor", "identity") and (kind != "mxfp8" or inner):
            yield f"expected fp8_delayed, fp8_current or identity{'' if inner else ', or mxfp8'} of the slot {slot}, found {kind}"
    for slot, kind in facts.formats.items():
        if facts.key(slot, "row_scaled") == "1" or facts.key(slot, "amax", "computed") != "computed" or is_square(facts.key(slot, "block")):
            yield f"{slot}: expected one computed or given scale, or blocks of 1x32 (N20.3)"
        if kind == "fp8_delayed" and facts.key(slot, "scale_order", "encode_first") != "encode_first":
            yield f"{slot}: expected scale_order=encode_first, found {facts.key(slot, 'scale_order')} (N20.3)"
        yield from (f"{slot}: {fault}" for fault in Direction(facts, slot, (n.rows, n.depth), facts.source, True).faults())
    if facts.keys.get("codes", "none") != "none" and kinds["qkv"] != "identity":
        yield f"expected identity/... with codes={facts.keys['codes']}, for Q, K and V have been cast, found {facts.kind} (N20.17)"
    if kinds["qkv"] == "mxfp8" and (n.q % 128 or n.kv % 128 or n.depth % 32 or n.ragged):
        yield "expected multiples of 128 queries and keys and of 32 elements of a head, and no ragged layout, with mxfp8 (N20.3)"


kRulesOfOp = {"cast": faults_of_cast, "philox": faults_of_philox, "adam": faults_of_adam, "scale_state": faults_of_scale_state, "gemm": faults_of_gemm, "attention": faults_of_attention, "split": faults_of_split}


def fault_of(facts):
    """Why the program refuses a line whose words are all right; None where it does not."""
    return next(iter(kRulesOfOp.get(facts.op, faults_of_directions)(facts)), None)
