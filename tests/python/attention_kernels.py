"""Attention kernels with mistakes, in NumPy: what a dump of another implementation looks like. Written from the papers and the interfaces of the
libraries, not from docs/numerics.md's code: two forms, one that rounds where emulation E does and one that works tile by tile, as fused kernels do.
"""
import ml_dtypes
import numpy as np

bf16, e4m3, e5m2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
kMost = {e4m3: 448.0, e5m2: 57344.0}


def n(x):
    """Rounded to the nominal type, as binary32."""
    return np.asarray(x, np.float32).astype(bf16).astype(np.float32)


def codes_of(x, scale, element=e4m3):
    return np.clip(np.asarray(x, np.float32) * np.float32(scale), -kMost[element], kMost[element]).astype(element)


def values_of(codes, scale):
    return n(codes.astype(np.float32) * (np.float32(1) / np.float32(scale)))


def dot(a, b):
    """Sums over the last axis of a and the first of b, one product after another in binary32."""
    out = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        out = out + a[..., k, None] * b[k]
    return out


def exact_sum(x):
    out = np.zeros(x.shape[:-1], np.float32)
    for k in range(x.shape[-1]):
        out = out + x[..., k]
    return out


class Dump:
    """One forward and backward pass: sizes, tensors, scales, and what the kernel left behind."""

    def __init__(self, seed, mistake="", batch=2, heads=4, kv_heads=2, queries=8, keys=8, depth=16, causal=True, scales=None, spread=1.0, positive=False):
        self.__dict__.update(locals())
        draw = np.random.default_rng(seed)
        tensor = lambda *shape: (draw.standard_normal(shape) * spread).astype(bf16)
        self.q, self.k, self.v = tensor(batch, queries, heads, depth), tensor(batch, keys, kv_heads, depth), tensor(batch, keys, kv_heads, depth)
        if positive:   # sums that do not cancel: O is far from 0
            self.v = np.abs(self.v.astype(np.float32)).astype(bf16)
        self.do = (draw.standard_normal((batch, queries, heads, depth)) * 0.1).astype(bf16)
        self.scales = {"qkv": 64.0, "s": 256.0, "o": 96.0, "do": 512.0, "dp": 1024.0, "dqkv": 128.0, **(scales or {})}
        self.alpha = np.float32(1 / np.sqrt(depth))

    def key_head(self, h):
        return h % self.kv_heads if self.mistake == "group" else h // (self.heads // self.kv_heads)

    def visible(self):
        i, j = np.arange(self.queries)[:, None], np.arange(self.keys)[None, :]
        shift = {"mask_early": -1, "mask_late": 1}.get(self.mistake, 0)
        return j <= i + shift if self.causal else np.ones((self.queries, self.keys), bool)

    def line(self, form="fp8_delayed", more=""):
        keys = f"batch={self.batch} heads={self.heads} kv_heads={self.kv_heads} kv={self.keys} backward=1" + (" mask=causal" if self.causal else "")
        slots = " ".join(f"{slot}.scale={value:g}" for slot, value in self.scales.items())
        return f"attention {form} {self.batch * self.queries}x{self.heads * self.depth} bf16 {keys} {slots if form == 'fp8_delayed' else ''} {more}".strip()

    def inputs(self):
        return {"q": self.q, "k": self.k, "v": self.v, "do": self.do}


def rounded_like_emulation(d):
    """Forward and backward with every rounding where emulation E has one, and d.mistake in it. Returns planes by name."""
    f = lambda x: x.astype(np.float32)
    s = d.scales
    cast = lambda x, slot, scale=None: (codes_of(x, s[slot] if scale is None else scale), s[slot] if scale is None else scale)
    q, k, v = (values_of(codes_of(f(x), s["qkv"]), s["qkv"]) for x in (d.q, d.k, d.v))
    P, S, S32, Shat, O, Z = {}, {}, {}, {}, {}, {}
    visible = d.visible()
    for b in range(d.batch):
        for h in range(d.heads):
            g = d.key_head(h)
            logits = dot(q[b, :, h], k[b, :, g].T)
            for _ in range({"scale_twice": 2}.get(d.mistake, 1)):
                logits = logits * d.alpha
            P[b, h] = n(logits)
            x = np.where(visible, P[b, h], np.float32(-10000))
            e = np.exp((x - x.max(-1, keepdims=True)).astype(np.float64)).astype(np.float32)
            Z[b, h] = exact_sum(e)
            S32[b, h] = e / Z[b, h][:, None]
            S[b, h] = n(e) if d.mistake == "unnormalised" else n(S32[b, h])
            codes = codes_of(e if d.mistake == "unnormalised" else S[b, h], s["s"])
            Shat[b, h] = n(codes.astype(np.float32)) if d.mistake == "s_scale" else values_of(codes, s["s"])
            o = dot(Shat[b, h], v[b, :, g])
            O[b, h] = n(o / Z[b, h][:, None]) if d.mistake == "unnormalised" else n(o)
    order = lambda x: np.stack([np.stack([x[b, h] for h in range(d.heads)], 1) for b in range(d.batch)])   # (b, s, h, d)
    heads = lambda x: np.concatenate([x[b, h] for b in range(d.batch) for h in range(d.heads)])
    o = order(O)
    out = values_of(codes_of(o, s["o"]), s["o"])
    do_codes, do_scale = cast(f(d.do), "do", s["o"] if d.mistake == "do_by_o" else None)
    do = values_of(do_codes, do_scale)
    dV, dS, dP, dQ, dK = {}, {}, {}, {}, {}
    for b in range(d.batch):
        for h in range(d.heads):
            g = d.key_head(h)
            dV[b, h] = n(dot(Shat[b, h].T, do[b, :, h]))
            dS[b, h] = n(dot(do[b, :, h], v[b, :, g].T))
            mean = exact_sum(dS[b, h] * S32[b, h])
            dP[b, h] = np.where(visible, n(S32[b, h] * (dS[b, h] - mean[:, None])), np.float32(0))
            if d.mistake == "ds_for_dp":
                dP[b, h] = dS[b, h]
            hat = values_of(codes_of(dP[b, h], s["dp"]), s["dp"])
            times = 2 if d.mistake == "scale_twice" else 1
            dQ[b, h], dK[b, h] = n(dot(hat, k[b, :, g])), n(dot(hat.T, q[b, :, h]))
            for _ in range(times):
                dQ[b, h], dK[b, h] = n(dQ[b, h] * d.alpha), n(dK[b, h] * d.alpha)
    hat = lambda x: {key: values_of(codes_of(value, s["dqkv"]), s["dqkv"]) for key, value in x.items()}
    wide = lambda x: np.stack([np.stack([n(exact_sum(np.stack([x[b, h] for h in range(d.heads) if d.key_head(h) == g], -1)))
                                         for g in range(d.kv_heads)], 1) for b in range(d.batch)])
    planes = {"p": heads(P), "s": heads(S), "o": np.concatenate([o[:, i].reshape(d.batch, -1) for i in range(d.queries)]), "out": out,
              "do.data": np.concatenate([do_codes[:, i].reshape(d.batch, -1) for i in range(d.queries)]), "ds": heads(dS), "dp": heads(dP),
              "grad.q": order(hat(dQ)), "grad.k": wide(hat(dK)), "grad.v": wide(hat(dV))}
    return {name: x if x.dtype == e4m3 else x.astype(bf16) for name, x in planes.items()}


class Inference:
    """What a kernel of an inference library gets: FP8 codes with a descale for each sequence and head of keys."""

    def __init__(self, seed, mistake="", batch=2, heads=4, kv_heads=2, queries=8, keys=24, depth=32, causal=False, equal=False):
        self.__dict__.update(locals())
        draw = np.random.default_rng(seed)
        self.codes, self.descales = {}, {}
        for name, count, tokens in (("q", heads, queries), ("k", kv_heads, keys), ("v", kv_heads, keys)):
            x = draw.standard_normal((batch, tokens, count, depth)).astype(np.float32)
            if name == "v":
                x = np.abs(x) + 1   # far from 0, so that a wrong factor shows beyond the bound
            if equal and name == "q":
                x[:] = 0
            if equal and name == "v":
                x = np.round(np.clip(x, 0, 3) * 8) / 8
            self.codes[name] = x.astype(e4m3)
            self.descales[name] = (2.0 ** draw.integers(-3, 4, (batch, kv_heads)) * (1 if equal else 1.3)).astype(np.float32)
        self.alpha = np.float32(1 / np.sqrt(depth))

    def line(self):
        mask = " mask=causal_bottom_right" if self.causal else ""
        return (f"attention identity/fp8_delayed {self.batch * self.queries}x{self.heads * self.depth} bf16 batch={self.batch} heads={self.heads} "
                f"kv_heads={self.kv_heads} kv={self.keys} codes=e4m3 s.scale=256{mask}")

    def inputs(self):
        return {**self.codes, **{f"{name}.descale": value for name, value in self.descales.items()}}

    def run(self, tile=16):
        """An online kernel: tile by tile with a running maximum, exponentials cast before they are divided by their sum. Returns O as (b, s, h, d)."""
        f, group = (lambda x: x.astype(np.float32)), self.heads // self.kv_heads
        out = np.zeros((self.batch, self.queries, self.heads, self.depth), np.float32)
        for b in range(self.batch):
            for h in range(self.heads):
                g = h % self.kv_heads if self.mistake == "group" else h // group
                gv = {"v_next": (g + 1) % self.kv_heads, "v_first": 0}.get(self.mistake, g)
                logit_scale = self.descales["q"][b, g] * self.descales["k"][b, g] * self.alpha * (self.alpha if self.mistake == "scale_twice" else 1)
                v_scale = self.descales["k" if self.mistake == "v_of_k" else "v"][b, gv]
                largest, total = np.full(self.queries, -np.inf, np.float32), np.zeros(self.queries, np.float32)
                acc = np.zeros((self.queries, self.depth), np.float32)
                for first in range(0, self.keys, tile):
                    x = (f(self.codes["q"][b, :, h]) @ f(self.codes["k"][b, first:first + tile, g]).T) * logit_scale
                    j = np.arange(first, min(first + tile, self.keys))
                    last = np.arange(self.queries) + self.keys - self.queries + {"mask_late": 1, "mask_early": -1}.get(self.mistake, 0)
                    x = np.where(j[None, :] <= last[:, None], x, -np.inf) if self.causal else x
                    now = np.maximum(largest, x.max(-1))
                    e = np.exp(x - now[:, None])
                    again = np.exp(largest - now)
                    total, largest = total * again + e.sum(-1), now
                    codes = f(codes_of(e, 256.0))
                    acc = acc * again[:, None] + codes @ f(self.codes["v"][b, first:first + tile, g])
                scale = np.float32(1) if self.mistake == "s_scale" else np.float32(1 / 256)
                out[b, :, h] = acc / total[:, None] * v_scale * scale
        return out.astype(bf16)
