"""The planes of every op: their names, encodings and element counts, as contract/planes.h has them. Needs the standard library alone."""
import math

from ._dump_lines import f32_bits
from ._dump_rules import AttentionSizes, kMagnitude
from ._dump_tables import kFormats

kSmallElements = {"e2m1": 4, "e2m3": 6, "e3m2": 6}


def up(n, m):
    return -(-n // m) * m


# ---- one direction of a quantized tensor -----------------------------------------------------------------------------
class Quantized:
    """One direction of one tensor: `kind` of `shape` (as x has it) from `source`, under the keys that key(name, otherwise) gives."""

    def __init__(self, kind, direction, shape, source, key):
        self.kind, self.key = kind, key
        self.family, elements, self.scale, block, columns, *_ = kFormats[kind]
        self.as_is = direction == "col" and columns == "as_is"
        self.rows, self.cols = shape[::-1] if direction == "col" and columns == "transposed" else shape
        self.block = key("block", block)
        self.element = key("element", elements.split("|")[0])
        if self.element == "source":
            self.element = source
        self.slots = self.rows if key("row_scaled") == "1" else 1   # of an amax: one, or one for each stored row
        self.amax_is_given = key("amax", "computed") != "computed"

    def scales(self, gemm):
        """The logical and the padded shape of the scales in one layout, and their encoding."""
        length = int(self.block.lstrip("b").split("x")[1]) if "x" in self.block else 1
        if self.family == "fp8_tensor":
            return (self.slots, 1), (self.slots, 1), self.scale
        if self.family == "fp8_block" and gemm:
            logical = self.rows, 4 * -(-self.cols // length)
            return logical, (up(self.rows, 128), logical[1]), "e8m0"
        if self.family == "fp8_block":
            across = -(-self.cols // length)
            logical = (-(-self.rows // length), across) if self.block == "128x128" else (across, self.rows)
            return logical, (logical[0], up(logical[1], 4)), self.scale
        if self.as_is:
            logical = -(-self.rows // length), self.cols
            return logical, (up(logical[0], 4), up(self.cols, 128)), self.scale
        logical = self.rows, -(-self.cols // length)
        return logical, (up(self.rows, 128), up(logical[1], 4)), self.scale

    def scale_plane(self, gemm):
        """(name, encoding, counts). Compact scales may come without their padding."""
        logical, padded, encoding = self.scales(gemm)
        return ("scale_gemm", encoding, {math.prod(padded)}) if gemm else ("scale_inv", encoding, {math.prod(padded), math.prod(logical)})

    @property
    def packed(self):
        return kSmallElements.get(self.element) == 4 or self.key("packing") == "packed"

    def data_counts(self):
        return counts_of_codes((self.rows, self.cols), self.element, self.packed)

    def as_read(self):
        """What a reader of the tensor takes: {name: (encoding, counts)}."""
        out = {}
        if self.family == "nvfp4":
            out["amax"] = "f32", {self.slots}
        if self.scale != "none":
            name, *plane = self.scale_plane(self.key("scales") == "gemm")
            out[name] = tuple(plane)
        out["data"] = self.element, self.data_counts()
        return out

    def outputs(self):
        """What a quantize writes. An amax that the line gives is none of its results."""
        out = {}
        if self.family in ("fp8_tensor", "nvfp4") and not self.amax_is_given:
            out["amax"] = "f32", {self.slots}
        if self.kind == "fp8_current":
            out["scale"] = "f32", {self.slots}
        return {**out, **{name: plane for name, plane in self.as_read().items() if name != "amax" or name in out}}

    def givens(self):
        """What a quantize reads beside x."""
        out = {}
        if self.amax_is_given:
            out["given.amax"] = "f32", {1}
        if self.kind == "fp8_delayed":
            out["given.scale"] = out["prior.amax"] = "f32", {self.slots}
        source = self.key("scale_from", "x")
        if self.scale != "none" and source != "x":
            counts = {math.prod(self.scales(False)[0])}
            out.update({"given.block_amax": ("f32", counts)} if source == "amax" else {"given.scale_inv": (self.scale, counts)})
        return out


def counts_of_codes(shape, encoding, packed=False):
    """Elements that codes may come as: a byte for each, or codes of fewer than 8 bits without a gap, in `packed` planes with whole bytes in each row (N6.8)."""
    bits = kSmallElements.get(encoding)
    codes = shape[0] * up(shape[1], codes_of_whole_bytes(bits)) if bits and packed else math.prod(shape)
    return {codes, -(-codes * bits // 8)} if bits else {codes}


def codes_of_whole_bytes(bits):
    return {4: 2, 6: 4}[bits]


def named(name, planes):
    return {f"{name}.{stem}": plane for stem, plane in planes.items()}


# ---- the ops -----------------------------------------------------------------------------------------------------------
# Each gives {plane: (encoding, counts)} of its inputs, and of its outputs.
def directions(facts):
    for d, kind in facts.formats.items():
        yield d, Quantized(kind, d, facts.shape, facts.source, lambda name, otherwise=None, d=d: facts.key(d, name, otherwise))


def of_quantize(facts):
    inputs, outputs = {"x": (facts.source, {math.prod(facts.shape)})}, {}
    if facts.keys.get("noop", "none") != "none":
        inputs["noop"] = "f32", {1}
    for d, q in directions(facts):
        inputs.update(named(d, q.givens()))
        outputs.update(named(d, q.outputs()))
    return inputs, outputs


def of_records(facts, planes):
    """What a quantize has that is dumped as a record of bytes for each token, `row.record`: E4M3 codes, a binary32 scale for each 128 of them, and 16-bit values that are not cast,
    made from the plane `rotary` (docs/flavours.md, KV caches). Nothing where the line has no such records."""
    tokens, codes = facts.shape
    quantized = dict(directions(facts)) if facts.op == "quantize" else {}
    row = quantized.get("row")
    if len(quantized) != 1 or not row or row.family != "fp8_block" or row.block.lstrip("b") != "1x128" or row.element != "e4m3" or not tokens or codes % 128:
        return {}, {}
    least = tokens * (codes + 4 * (codes // 128))
    rotary = planes["rotary"].count if "rotary" in planes else max(0, planes["row.record"].count - least) // (2 * tokens) * tokens
    return {"x": (facts.source, {tokens * codes}), "rotary": (facts.source, {rotary // tokens * tokens})}, {"row.record": ("u8", {least + 2 * rotary})}


def of_dequantize(facts):
    inputs = {}
    for d, q in directions(facts):
        inputs.update(named(d, q.as_read()))
    return inputs, {"y": (facts.keys.get("out", facts.source), {math.prod(facts.shape)})}


def of_swizzle(facts):
    inverse = facts.keys.get("inverse") == "1"
    planes = {}
    for d, q in directions(facts):
        for gemm in (False, True):
            name, encoding, counts = q.scale_plane(gemm)
            every_byte = inverse and not gemm and q.family != "fp8_block"   # N6.5
            planes[gemm] = {f"{d}.{name}": (encoding, {max(counts)} if every_byte else counts)}
    return planes[inverse], planes[not inverse]


def of_cast(facts):
    count = math.prod(facts.shape)
    inputs = {"x": (facts.source, counts_of_codes(facts.shape, facts.source))}
    if facts.keys.get("round") == "sr":
        inputs["bits"] = "u8", {count}
    return inputs, {"y": (facts.kind, counts_of_codes(facts.shape, facts.kind))}


def of_update(facts):
    slots = {facts.shape[1]}
    inputs = {"history": ("f32", {math.prod(facts.shape)}), "scale": ("f32", slots)}
    if facts.keys.get("reduction") == "1":
        inputs["reduced"] = "f32", slots
    return inputs, {"next.history": inputs["history"], "next.scale": ("f32", slots)}


def of_scale_chain(facts):
    count, rows = {math.prod(facts.shape)}, {facts.shape[0]}
    family, _, scale, *_ = kFormats[facts.kind]
    if family == "nvfp4":
        outputs = {"encode_scale": ("f32", rows), "scale_inv": ("e4m3", rows), "multiplier": ("f32", rows)}
    elif scale == "f32":
        outputs = {"scale": ("f32", count), "scale_inv": ("f32", count)}
    else:
        outputs = {"scale_inv": ("e8m0", count)} if facts.source == "f32" else {}
        outputs.update(multiplier=("f32", count), decoded=("f32", count))
    return {"x": (facts.source, count)}, outputs


def of_hadamard(facts):
    count = {math.prod(facts.shape)}
    return {"x": (facts.source, count)}, {"y": ("bf16", count), "amax": ("f32", {1})}


def of_philox(facts):
    count = {math.prod(facts.shape)}
    return {"x": ("u32", count), "key": ("u32", {2 * facts.shape[0]})}, {"y": ("u32", count)}


def of_adam(facts):
    count, moments = {math.prod(facts.shape)}, facts.keys.get("moments", "f32")
    held = {"m": (moments, count), "v": (moments, count), "p": (facts.kind, count)}
    return {"x": (facts.source, count), **held}, named("next", held)


def of_scale_state(facts):
    count, one = {math.prod(facts.shape)}, ("f32", {1})
    if facts.keys.get("inverse") == "1":
        return {"x": (facts.source, count), "scale": one}, {"y": ("f32", count)}
    return {"x": (facts.source, count)}, {"scale": one, "multiplier": one, "y": (facts.kind, count)}


def of_gemm(facts):
    m, n, k = facts.shape
    op, inputs = facts.keys.get("op", "TN"), {}
    for side, outer in (("a", m), ("b", n)):
        rows = op == "TN" if side == "a" else op != "NT"
        q = Quantized(facts.formats[side], "row" if rows else "col", (outer, k) if rows else (k, outer), facts.keys.get(f"{side}.source", facts.source),
                      lambda name, otherwise=None, side=side: facts.key(side, name, otherwise))
        inputs.update(named(side, q.as_read()))
    out = facts.keys.get("out", "bf16")
    if f32_bits(facts.keys.get("beta", "0")) & kMagnitude:
        inputs["c"] = out, {m * n}
    if facts.keys.get("bias", "none") != "none":
        inputs["bias"] = facts.keys["bias"], {m}
    return inputs, {"d": (out, {m * n})}


def of_split(facts):
    members = facts.members()
    active = sum(math.prod(m) for m in members)
    spare = int(facts.keys.get("capacity", math.prod(facts.shape))) - active
    inputs, outputs = {}, {"offsets": ("u32", {len(members) + 1})}
    vary = facts.keys.get("vary", "first")
    for word, varies in (("first_dims", ("first", "both")), ("last_dims", ("last", "both"))):
        if vary in varies:
            inputs[word] = "u32", {len(members)}
    if facts.keys.get("noop", "none") != "none":
        inputs["noop"] = "f32", {1}

    inputs["x"] = facts.source, {active + spare_codes(spare, 1)}
    for d, kind in facts.formats.items():
        members_of_d = [Quantized(kind, d, m, facts.source, lambda name, otherwise=None, d=d: facts.key(d, name, otherwise)) for m in members]
        blocks = kFormats[kind][2] != "none" and kFormats[kind][0] != "fp8_tensor"
        if blocks:
            outputs[f"{d}.scale_offsets"] = "u32", {len(members) + 1}
        for into, planes in ((inputs, [q.givens() for q in members_of_d]), (outputs, [q.outputs() for q in members_of_d])):
            for stem, (encoding, _) in planes[0].items():
                if stem == "data":
                    into[f"{d}.data"] = encoding, grouped_codes(members_of_d, spare)
                    continue
                beyond = 512 if spare > 0 and blocks and stem.startswith("scale_") else 0
                into[f"{d}.{stem}"] = encoding, {sum(of(p[stem][1]) for p in planes) + beyond for of in (max, min)}
    return inputs, outputs


def spare_codes(spare, width):
    """N14.6: an even number of spare elements, which fill whole bytes."""
    return up(spare, max(2, width)) if spare > 0 else 0


def grouped_codes(members, spare):
    """Elements that the codes of all members may come as, one member after the other (counts_of_codes)."""
    first = members[0]
    bits = kSmallElements.get(first.element)
    width = codes_of_whole_bytes(bits) if bits and first.packed else 1
    codes = sum(q.rows * up(q.cols, width) for q in members) + spare_codes(spare, width)
    return {codes, -(-codes * bits // 8)} if bits else {codes}


# ---- attention (N20) ---------------------------------------------------------------------------------------------------
def packed_planes(n):
    """{plane: elements} of Q, K and V as the layout packs them."""
    kv = n.kv_tokens * n.kv_heads * n.depth
    packing = n.layout.split("_")[-1]
    if "3" in packing:
        return {"qkv": 3 * n.tokens * n.heads * n.depth}
    q = {"q": n.tokens * n.heads * n.depth}
    return {**q, "kv": 2 * kv} if "2" in packing else {**q, "k": kv, "v": kv}


def casts_of(facts, n, slot, kind):
    """(name, shape, direction) of what a slot quantizes."""
    if kind == "identity":
        return []
    if slot in ("s", "dp"):
        return [(slot, (n.rows, n.kv), "row")]
    if slot in ("o", "do"):
        return [(slot, (n.q * n.batch, n.heads * n.depth), "row")]
    gradient = slot == "dqkv"
    kv_rows = n.repeated if gradient else n.kv_rows
    if kFormats[kind][0] == "fp8_tensor":
        return [(slot, (n.rows + 2 * kv_rows, n.depth), "row")]
    prefix = "d" if gradient else ""
    return [(prefix + "q", (n.rows, n.depth), "row"), (prefix + "k", (kv_rows, n.depth), "row"), (prefix + "v", (kv_rows, n.depth), "col")]


def of_attention(facts):
    n = AttentionSizes(facts)
    outer, *inner = facts.kind.split("/")
    inner = inner[0] if inner else outer if kFormats[outer][0] in ("fp8_tensor", "identity") else "identity"
    backward, x = facts.keys.get("backward") == "1", facts.source
    codes = facts.keys.get("codes", "none")
    inputs = {name: (x if codes == "none" else codes, {count}) for name, count in packed_planes(n).items()}
    if codes != "none":
        inputs.update({f"{name}.descale": ("f32", {n.batch * n.kv_heads}) for name in "qkv"})
    result, logits = n.q * n.batch * n.heads * n.depth, n.rows * n.kv
    outputs = {name: (x, {count}) for name, count in (("p", logits), ("s", logits), ("o", result), ("out", math.prod(facts.shape)))}
    if n.has_lengths:
        inputs["cu_seqlens_q"] = inputs["cu_seqlens_kv"] = "u32", {n.batch + 1}
    if facts.keys.get("bias", "none") != "none":
        inputs["bias"] = x, {n.heads * n.q * n.kv}
    if f32_bits(facts.keys.get("dropout", "0")):
        inputs["keep"] = "u8", {logits}
    if backward:
        inputs["do"] = x, {math.prod(facts.shape)}
        outputs.update({name: (x, {count}) for name, count in (
            ("dv", n.repeated * n.depth), ("ds", logits), ("dp", logits), ("dq", n.rows * n.depth), ("dk", n.repeated * n.depth))})
        outputs.update({f"grad.{name}": (x, {count}) for name, count in packed_planes(n).items()})
    for slot in (*(("qkv",) if codes == "none" else ()), "s", "o", *(("do", "dp", "dqkv") if backward else ())):
        kind = inner if slot in ("s", "dp") else outer
        for name, shape, d in casts_of(facts, n, slot, kind):
            q = Quantized(kind, d, shape, x, lambda key, otherwise=None, slot=slot: facts.key(slot, key, otherwise))
            inputs.update(named(name, q.givens()))
            outputs.update(named(name, q.outputs()))
    return inputs, outputs


kPlanesOfOp = {
    "quantize": of_quantize, "dequantize": of_dequantize, "swizzle": of_swizzle, "cast": of_cast, "update": of_update, "scale_chain": of_scale_chain,
    "hadamard": of_hadamard, "philox": of_philox, "adam": of_adam, "scale_state": of_scale_state, "gemm": of_gemm, "split": of_split, "attention": of_attention,
}
