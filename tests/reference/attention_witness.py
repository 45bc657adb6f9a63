"""Attention by emulation E (N20) a third time, in plain Python: every product and sum is rounded to binary32 by ctypes, the exponential comes
from 60 decimal digits. The planes go into a pack, which `assay check` judges on the reference; a corrupted copy of it must fail.

    attention_witness.py <program>

The last line is `N passed, N failed, 0 skipped`, in lines. The exit status is 1 if one failed.
"""
import ctypes
import decimal
import fractions
import math
import random
import struct

from judged_packs import judge

decimal.getcontext().prec = 60
kMantissa = {"bf16": 7, "f16": 10, "e4m3": 3, "e5m2": 2}
kLeastExponent = {"bf16": -126, "f16": -14, "e4m3": -6, "e5m2": -14}
kMost = {"bf16": float.fromhex("0x1.fep127"), "f16": 65504.0, "e4m3": 448.0, "e5m2": 57344.0}


def f32(v):
    return ctypes.c_float(v).value


def rounded(v, encoding):
    """v to the nearest value of an encoding, ties to even; FP8 saturates."""
    if v == 0:
        return v
    exponent = max(math.frexp(v)[1] - 1, kLeastExponent[encoding])
    step = 2.0 ** (exponent - kMantissa[encoding])
    near = math.copysign(round(abs(v) / step) * step, v)
    if abs(near) > kMost[encoding]:
        return math.copysign(kMost[encoding] if encoding in ("e4m3", "e5m2") else math.inf, v)
    return near


def code(v, encoding):
    """The code of a value that the encoding has."""
    if encoding == "f32":
        return struct.unpack("<I", struct.pack("<f", v))[0]
    if encoding == "bf16":
        return code(v, "f32") >> 16
    if encoding == "f16":
        return struct.unpack("<H", struct.pack("<e", v))[0]
    m, least = kMantissa[encoding], kLeastExponent[encoding]
    sign = 0x80 if math.copysign(1, v) < 0 else 0
    a = abs(v)
    if a == 0:
        return sign
    e = max(math.frexp(a)[1] - 1, least)
    return sign | int((e - least) * (1 << m) + a / 2.0 ** (e - m))


def exponential(x):
    """e^x to the nearest binary32."""
    if x < -104:
        return 0.0
    exact = fractions.Fraction(decimal.Decimal(x).exp())
    step = fractions.Fraction(2) ** (max(math.frexp(float(exact) or 2.0 ** -160)[1] - 1, -126) - 23)
    return float(round(exact / step) * step)


def dot(pairs):
    acc = 0.0
    for a, b in pairs:
        acc = f32(acc + f32(a * b))
    return acc


class Attention:
    def __init__(self, seed, q, kv, depth, batch=1, heads=1, kv_heads=1, n="bf16", fmt="fp8_current", causal=False, bias=None, scale=None, e5m2=False,
                 scales=None, lengths=None, dropout=0.0):
        self.__dict__.update(locals())
        self.draw = random.Random(seed)
        self.planes = {}
        self.alpha = f32(1 / math.sqrt(depth)) if scale is None else f32(scale)
        keys = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "kv": kv, "layout": "bshd", "backward": 1}
        if causal:
            keys["mask"] = "causal"
        if bias:
            keys["bias"] = bias
        if scale is not None:
            keys["softmax_scale"] = scale
        if dropout:
            keys["dropout"] = dropout
        if lengths:
            keys["lengths"], keys["kv_lengths"] = (",".join(map(str, one)) for one in lengths)
        if e5m2:
            keys.update({f"{slot}.element": "e5m2" for slot in ("do", "dp", "dqkv")})
        for slot, value in (scales or {}).items():
            keys[f"{slot}.scale"] = value
        self.line = f"attention {fmt} {batch * q}x{heads * depth} {n} " + " ".join(f"{k}={v}" for k, v in keys.items())

    def tensor(self, count, spread=1.0):
        return [rounded(f32(self.draw.gauss(0, spread)), self.n) for _ in range(count)]

    def put(self, name, values, encoding):
        self.planes[name] = (encoding, [code(v, encoding) if encoding not in ("u8", "u32") else v for v in values])

    def nominal(self, v):
        return rounded(v, self.n)

    def cast(self, slot, values):
        """The slot's quantize and the way back, and its planes."""
        if self.fmt == "identity":
            return values
        element = "e5m2" if self.e5m2 and slot in ("do", "dp", "dqkv") else "e4m3"
        amax = max(abs(v) for v in values)
        if self.fmt == "fp8_delayed":
            scale = (self.scales or {}).get(slot, 1.0)
            self.put(f"{slot}.given.scale", [scale], "f32")
            self.put(f"{slot}.prior.amax", [0.0], "f32")
        else:
            scale = f32(kMost[element] / amax) if amax else 1.0
            self.put(f"{slot}.scale", [scale], "f32")
        inverse = f32(1 / scale)
        codes = [rounded(f32(v * scale), element) for v in values]
        self.put(f"{slot}.amax", [amax], "f32")
        self.put(f"{slot}.scale_inv", [inverse], "f32")
        self.put(f"{slot}.data", codes, element)
        return [self.nominal(f32(v * inverse)) for v in codes]

    def head(self, values, heads, tokens, b, h):
        """[token][element] of one head of a tensor in the order (sequence, head, token, element)."""
        first = (b * heads + h) * tokens * self.depth
        return [values[first + i * self.depth:first + (i + 1) * self.depth] for i in range(tokens)]

    def from_bshd(self, values, heads, tokens):
        at = lambda b, h, i, e: values[((b * tokens + i) * heads + h) * self.depth + e]
        return [at(b, h, i, e) for b in range(self.batch) for h in range(heads) for i in range(tokens) for e in range(self.depth)]

    def to_bshd(self, values, heads, tokens):
        at = lambda b, h, i, e: values[((b * heads + h) * tokens + i) * self.depth + e]
        return [at(b, h, i, e) for b in range(self.batch) for i in range(tokens) for h in range(heads) for e in range(self.depth)]

    def masked(self, b, i, j):
        if self.lengths and (i >= self.lengths[0][b] or j >= self.lengths[1][b]):
            return True
        return self.causal and j > i

    def run(self):
        q, kv, d, batch, heads, group = self.q, self.kv, self.depth, self.batch, self.heads, self.heads // self.kv_heads
        given = {"q": self.tensor(batch * q * heads * d), "k": self.tensor(batch * kv * self.kv_heads * d), "v": self.tensor(batch * kv * self.kv_heads * d),
                 "do": self.tensor(batch * q * heads * d, 0.1)}
        for name, values in given.items():
            self.put(name, values, self.n)
        bias = self.tensor(heads * q * kv)
        if self.bias:
            self.put("bias", bias, self.n)
        keep = [int(self.draw.random() >= self.dropout) for _ in range(batch * heads * q * kv)]
        if self.dropout:
            self.put("keep", keep, "u8")
        if self.lengths:
            for name, one in zip(("cu_seqlens_q", "cu_seqlens_kv"), self.lengths):
                self.put(name, [sum(one[:b]) for b in range(batch + 1)], "u32")
        drop = f32(1 / f32(1 - f32(self.dropout)))
        dropped = lambda v, at: v if not self.dropout else self.nominal(f32(self.nominal(v) * drop)) if keep[at] else 0.0

        Q, K, V = self.from_bshd(given["q"], heads, q), self.from_bshd(given["k"], self.kv_heads, kv), self.from_bshd(given["v"], self.kv_heads, kv)
        every = self.cast("qkv", Q + K + V)
        Q, K, V = every[:len(Q)], every[len(Q):len(Q) + len(K)], every[len(Q) + len(K):]
        rows = [(b, h, i) for b in range(batch) for h in range(heads) for i in range(q)]
        keys = {(b, h): self.head(K, self.kv_heads, kv, b, h // group) for b in range(batch) for h in range(heads)}
        values = {(b, h): self.head(V, self.kv_heads, kv, b, h // group) for b in range(batch) for h in range(heads)}
        P, S, exact = [], [], []
        for b, h, i in rows:
            row = []
            for j in range(kv):
                total = dot(zip(self.head(Q, heads, q, b, h)[i], keys[b, h][j]))
                add = bias[(h * q + i) * kv + j]
                if self.bias == "pre_scale":
                    row.append(self.nominal(f32(self.nominal(f32(self.nominal(total) + add)) * self.alpha)))
                elif self.bias == "post_scale":
                    row.append(self.nominal(f32(self.nominal(f32(total * self.alpha)) + add)))
                else:
                    row.append(self.nominal(f32(total * self.alpha)))
            P += row
            x = [-10000.0 if self.masked(b, i, j) else row[j] for j in range(kv)]
            e = [exponential(f32(v - max(x))) for v in x]
            total = 0.0
            for v in e:
                total = f32(total + v)
            probability = [f32(v / total) for v in e]
            if self.lengths and i >= self.lengths[0][b]:
                probability = [0.0] * kv
            exact.append(probability)
            S += [dropped(v, len(S) + j) if self.dropout else self.nominal(v) for j, v in enumerate(probability)]
        self.put("p", P, self.n)
        self.put("s", S, self.n)
        S = self.cast("s", S)

        O = [0.0] * (q * batch * heads * d)
        for r, (b, h, i) in enumerate(rows):
            for e in range(d):
                O[((i * batch + b) * heads + h) * d + e] = self.nominal(dot((S[r * kv + j], values[b, h][j][e]) for j in range(kv)))
        self.put("o", O, self.n)
        hat = self.cast("o", O)
        at = lambda b, i, h, e: ((i * batch + b) * heads + h) * d + e
        order = [at(b, i, h, e) for b in range(batch) for i in range(q) for h in range(heads) for e in range(d)]
        self.put("out", [hat[k] for k in order], self.n)

        dO = [0.0] * len(O)
        for value, k in zip(given["do"], order):
            dO[k] = value
        dO = self.cast("do", dO)
        row_of = {place: r for r, place in enumerate(rows)}
        dV = [self.nominal(dot((S[row_of[b, h, i] * kv + j], dO[at(b, i, h, e)]) for i in range(q)))
              for b in range(batch) for h in range(heads) for j in range(kv) for e in range(d)]
        self.put("dv", dV, self.n)
        dS, dP = [], []
        for r, (b, h, i) in enumerate(rows):
            row = []
            for j in range(kv):
                total = dot((dO[at(b, i, h, e)], values[b, h][j][e]) for e in range(d))
                row.append(dropped(total, r * kv + j) if self.dropout else self.nominal(total))
            dS += row
            mean = 0.0
            for ds, s in zip(row, exact[r]):
                mean = f32(mean + f32(ds * s))
            padding = self.lengths and i >= self.lengths[0][b]
            dP += [0.0 if padding or self.masked(b, i, j) else self.nominal(f32(exact[r][j] * f32(row[j] - mean))) for j in range(kv)]
        self.put("ds", dS, self.n)
        self.put("dp", dP, self.n)
        dP = self.cast("dp", dP)
        if self.bias == "pre_scale":
            dP = [self.nominal(f32(v * self.alpha)) for v in dP]
            last = self.nominal
        else:
            last = lambda v: self.nominal(f32(self.nominal(v) * self.alpha))
        dQ = [last(dot((dP[r * kv + j], keys[b, h][j][e]) for j in range(kv))) for r, (b, h, i) in enumerate(rows) for e in range(d)]
        dK = [last(dot((dP[row_of[b, h, i] * kv + j], self.head(Q, heads, q, b, h)[i][e]) for i in range(q)))
              for b in range(batch) for h in range(heads) for j in range(kv) for e in range(d)]
        self.put("dq", dQ, self.n)
        self.put("dk", dK, self.n)
        every = self.cast("dqkv", dQ + dK + dV)
        dQ, dK, dV = every[:len(dQ)], every[len(dQ):len(dQ) + len(dK)], every[len(dQ) + len(dK):]
        self.put("grad.q", self.to_bshd(dQ, heads, q), self.n)
        for name, tensor in (("grad.k", dK), ("grad.v", dV)):
            if group > 1:
                size = kv * d
                summed = []
                for b in range(batch):
                    for h in range(self.kv_heads):
                        for k in range(size):
                            total = 0.0
                            for r in range(group):
                                total = f32(total + tensor[(b * heads + h * group + r) * size + k])
                            summed.append(self.nominal(total))
                tensor = summed
            self.put(name, self.to_bshd(tensor, self.kv_heads, kv), self.n)


kCases = [
    dict(q=6, kv=6, depth=4),
    dict(q=5, kv=9, depth=8, batch=2, heads=2, fmt="identity", n="f16"),
    dict(q=7, kv=7, depth=4, heads=4, kv_heads=2, causal=True, fmt="fp8_delayed", scales={"qkv": 16.0, "s": 256.0, "o": 32.0, "do": 64.0, "dp": 512.0}, e5m2=True),
    dict(q=4, kv=6, depth=6, batch=2, bias="pre_scale", scale=0.3),
    dict(q=4, kv=6, depth=6, heads=3, bias="post_scale", n="f16", e5m2=True),
    dict(q=5, kv=6, depth=4, batch=2, lengths=((3, 5), (6, 2))),
    dict(q=6, kv=5, depth=4, dropout=0.25, fmt="fp8_delayed", scales={"s": 128.0}),
]


def packs():
    """(line, planes, name) of each case."""
    for seed, settings in enumerate(kCases):
        case = Attention(seed, **settings)
        case.run()
        yield case.line, case.planes, "attention"


if __name__ == "__main__":
    judge(packs(), "dp")
