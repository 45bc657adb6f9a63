"""What `assay check` would refuse of a case, said when it is dumped: the grammar of a line, the names of planes, their counts and dtypes. Needs the standard library alone."""
import difflib
import math
import re

from ._errors import PackError

# ---- tables of the contract: ci/pack_tables writes them --------------------------------------------------------------
# Family, elements, encoding of the scales, block, how columns are stored.
kFormats = {
    "identity": ("identity", "source", "none", "tensor", "as_is"),
    "fp8_delayed": ("fp8_tensor", "e4m3|e5m2", "f32", "tensor", "transposed"),
    "fp8_current": ("fp8_tensor", "e4m3|e5m2", "f32", "tensor", "transposed"),
    "fp8_block": ("fp8_block", "e4m3|e5m2", "f32", "b1x128", "transposed"),
    "mxfp8": ("mx", "e4m3|e5m2", "e8m0", "b1x32", "as_is"),
    "nvfp4": ("nvfp4", "e2m1", "e4m3", "b1x16", "transposed"),
    "mxfp6": ("mx", "e2m3|e3m2", "e8m0", "b1x32", "transposed"),
    "mxfp4": ("mx", "e2m1", "e8m0", "b1x32", "transposed"),
}
# Bits, and the word of safetensors.
kEncodings = {
    "f32": (32, "F32"),
    "bf16": (16, "BF16"),
    "f16": (16, "F16"),
    "e4m3": (8, "F8_E4M3"),
    "e5m2": (8, "F8_E5M2"),
    "e2m3": (6, "F6_E2M3"),
    "e3m2": (6, "F6_E3M2"),
    "e2m1": (4, "F4"),
    "e8m0": (8, "F8_E8M0"),
    "u8": (8, "U8"),
    "u32": (32, "U32"),
}
# The keys of each op, and their words where they have a list.
kKeysOfOp = {
    "quantize": {
        "dir": ("row", "col", "both"),
        "flavour": (),
        "arch": ("sm90", "sm100", "sm110", "sm120"),
        "dispatch": ("auto", "generic", "specialised", "t1d", "q2d", "fb", "rhtrc"),
        "col_source": ("original", "row_dequantized"),
        "noop": (),
        "element": ("e4m3", "e5m2", "e2m3", "e3m2"),
        "block": ("1x16", "16x16", "1x32", "32x32", "1x128", "128x128"),
        "packing": ("bytes", "packed"),
        "round": ("rne", "sr"),
        "rht": ("0", "1"),
        "sign_mask": (),
        "row_scaled": ("0", "1"),
        "four_over_six": ("off", "mae", "mse"),
        "e4m3_max": ("448", "256"),
        "pow2": ("0", "1"),
        "eps": (),
        "amax": (),
        "scale": (),
        "prior_amax": (),
        "scales": ("compact", "gemm"),
        "scale_from": ("x", "amax", "scale"),
        "neg_zero": ("keep", "plus", "drop", "minus"),
        "nan_amax": ("ignore", "propagate"),
        "inf_amax": ("unit", "zero"),
        "scale_limit": ("f32_max", "source_max"),
        "nan_tensor_amax": ("clamp", "unit"),
        "nan_clamp": ("drop", "propagate"),
        "multiplier": ("reciprocal", "bf16_quotient", "quotient", "decode_reciprocal", "divide_product", "divide_quotient"),
        "four_over_six_error": ("exact", "fast"),
        "element_ties": ("even", "zero", "away"),
        "element_overflow": ("saturate", "nan"),
        "pre_round": ("none", "bf16", "f16_rz"),
        "scale_order": ("encode_first", "decode_first", "decode_divide"),
        "scale_division": ("divide", "reciprocal", "in_source"),
        "mx_scale": ("up", "floor", "ceil", "even", "even_e2m1", "down", "nearest"),
        "mx_inf": ("max", "nan"),
        "nvfp4_scale": ("folded", "quotient_first", "product_first", "decode", "decode_product", "unit"),
        "nvfp4_floor": ("none", "least_normal", "one", "eighth"),
        "zero_multiplier": ("limit", "zero"),
        "scale_round": ("rne", "rp"),
        "rht_sum": ("butterfly", "tc16", "exact"),
        "sr_rule": ("integer", "fma"),
        "sr_bytes": ("ascending", "interleaved"),
        "draw": ("logical", "te_t1d", "te_q2d", "te_fb", "te_rhtrc"),
        "fill": (),
        "seed": (),
        "at": (),
        "rng": (),
        "role": (),
        "recipe": ("delayed", "current", "mxfp8", "block", "nvfp4"),
        "factory": (),
    },
    "dequantize": {
        "dir": ("row", "col", "both"),
        "out": ("f32", "bf16", "f16"),
        "input": ("quantized", "codes"),
        "element": ("e4m3", "e5m2", "e2m3", "e3m2"),
        "block": ("1x16", "16x16", "1x32", "32x32", "1x128", "128x128"),
        "packing": ("bytes", "packed"),
        "row_scaled": ("0", "1"),
        "four_over_six": ("off", "mae", "mse"),
        "e4m3_max": ("448", "256"),
        "scales": ("compact", "gemm"),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "swizzle": {
        "dir": ("row", "col", "both"),
        "flavour": (),
        "arch": ("sm90", "sm100", "sm110", "sm120"),
        "inverse": ("0", "1"),
        "block": ("1x16", "16x16", "1x32", "32x32", "1x128", "128x128"),
        "swizzle_extent": ("ceil", "floor"),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "split": {
        "dir": ("row", "col", "both"),
        "flavour": (),
        "arch": ("sm90", "sm100", "sm110", "sm120"),
        "dispatch": ("auto", "generic", "specialised", "t1d", "q2d", "fb", "rhtrc"),
        "col_source": ("original", "row_dequantized"),
        "vary": ("none", "first", "last", "both"),
        "groups": (),
        "capacity": (),
        "noop": (),
        "element": ("e4m3", "e5m2", "e2m3", "e3m2"),
        "block": ("1x16", "16x16", "1x32", "32x32", "1x128", "128x128"),
        "packing": ("bytes", "packed"),
        "round": ("rne", "sr"),
        "rht": ("0", "1"),
        "sign_mask": (),
        "row_scaled": ("0", "1"),
        "four_over_six": ("off", "mae", "mse"),
        "e4m3_max": ("448", "256"),
        "pow2": ("0", "1"),
        "eps": (),
        "amax": (),
        "scale": (),
        "prior_amax": (),
        "scales": ("compact", "gemm"),
        "neg_zero": ("keep", "plus", "drop", "minus"),
        "nan_amax": ("ignore", "propagate"),
        "inf_amax": ("unit", "zero"),
        "scale_limit": ("f32_max", "source_max"),
        "nan_tensor_amax": ("clamp", "unit"),
        "nan_clamp": ("drop", "propagate"),
        "multiplier": ("reciprocal", "bf16_quotient", "quotient", "decode_reciprocal", "divide_product", "divide_quotient"),
        "four_over_six_error": ("exact", "fast"),
        "element_ties": ("even", "zero", "away"),
        "element_overflow": ("saturate", "nan"),
        "pre_round": ("none", "bf16", "f16_rz"),
        "scale_order": ("encode_first", "decode_first", "decode_divide"),
        "scale_division": ("divide", "reciprocal", "in_source"),
        "mx_scale": ("up", "floor", "ceil", "even", "even_e2m1", "down", "nearest"),
        "mx_inf": ("max", "nan"),
        "nvfp4_scale": ("folded", "quotient_first", "product_first", "decode", "decode_product", "unit"),
        "nvfp4_floor": ("none", "least_normal", "one", "eighth"),
        "zero_multiplier": ("limit", "zero"),
        "scale_round": ("rne", "rp"),
        "rht_sum": ("butterfly", "tc16", "exact"),
        "sr_rule": ("integer", "fma"),
        "sr_bytes": ("ascending", "interleaved"),
        "draw": ("logical", "te_t1d", "te_q2d", "te_fb", "te_rhtrc"),
        "fill": (),
        "seed": (),
        "at": (),
        "rng": (),
        "role": (),
        "recipe": ("delayed", "current", "mxfp8", "block", "nvfp4"),
        "factory": (),
    },
    "scale_chain": {
        "flavour": (),
        "element": ("e4m3", "e5m2", "e2m3", "e3m2"),
        "e4m3_max": ("448", "256"),
        "pow2": ("0", "1"),
        "eps": (),
        "inf_amax": ("unit", "zero"),
        "nan_tensor_amax": ("clamp", "unit"),
        "nan_clamp": ("drop", "propagate"),
        "multiplier": ("reciprocal", "bf16_quotient", "quotient", "decode_reciprocal", "divide_product", "divide_quotient"),
        "scale_order": ("encode_first", "decode_first", "decode_divide"),
        "scale_division": ("divide", "reciprocal", "in_source"),
        "mx_scale": ("up", "floor", "ceil", "even", "even_e2m1", "down", "nearest"),
        "mx_inf": ("max", "nan"),
        "nvfp4_scale": ("folded", "quotient_first", "product_first", "decode", "decode_product", "unit"),
        "nvfp4_floor": ("none", "least_normal", "one", "eighth"),
        "zero_multiplier": ("limit", "zero"),
        "scale_round": ("rne", "rp"),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "philox": {
        "rounds": (),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "cast": {
        "round": ("rne", "rz", "rp", "sr"),
        "sr_rule": ("integer", "fma"),
        "overflow": ("sat", "nosat"),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "update": {
        "algo": ("max", "most_recent"),
        "rule": ("bulk", "api", "unfused"),
        "margin": (),
        "reduction": ("0", "1"),
        "element": ("e4m3", "e5m2", "e2m3", "e3m2"),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "gemm": {
        "op": (),
        "sum": ("f32_sequential", "exact", "hopper_fp8_split", "hopper_fp8_fast", "hopper_f16", "hopper_tf32"),
        "out": ("f32", "bf16", "f16", "e4m3", "e5m2"),
        "alpha": (),
        "beta": (),
        "bias": ("none", "f32", "bf16", "f16"),
        "source": ("f32", "bf16", "f16"),
        "element": ("e4m3", "e5m2", "e2m3", "e3m2"),
        "block": ("1x16", "16x16", "1x32", "32x32", "1x128", "128x128"),
        "packing": ("bytes", "packed"),
        "round": ("rne", "sr"),
        "rht": ("0", "1"),
        "sign_mask": (),
        "row_scaled": ("0", "1"),
        "four_over_six": ("off", "mae", "mse"),
        "e4m3_max": ("448", "256"),
        "pow2": ("0", "1"),
        "eps": (),
        "amax": (),
        "scale": (),
        "prior_amax": (),
        "neg_zero": ("keep", "plus", "drop", "minus"),
        "nan_amax": ("ignore", "propagate"),
        "inf_amax": ("unit", "zero"),
        "scale_limit": ("f32_max", "source_max"),
        "nan_tensor_amax": ("clamp", "unit"),
        "nan_clamp": ("drop", "propagate"),
        "multiplier": ("reciprocal", "bf16_quotient", "quotient", "decode_reciprocal", "divide_product", "divide_quotient"),
        "four_over_six_error": ("exact", "fast"),
        "element_ties": ("even", "zero", "away"),
        "element_overflow": ("saturate", "nan"),
        "pre_round": ("none", "bf16", "f16_rz"),
        "scale_order": ("encode_first", "decode_first", "decode_divide"),
        "scale_division": ("divide", "reciprocal", "in_source"),
        "mx_scale": ("up", "floor", "ceil", "even", "even_e2m1", "down", "nearest"),
        "mx_inf": ("max", "nan"),
        "nvfp4_scale": ("folded", "quotient_first", "product_first", "decode", "decode_product", "unit"),
        "nvfp4_floor": ("none", "least_normal", "one", "eighth"),
        "zero_multiplier": ("limit", "zero"),
        "scale_round": ("rne", "rp"),
        "rht_sum": ("butterfly", "tc16", "exact"),
        "sr_rule": ("integer", "fma"),
        "sr_bytes": ("ascending", "interleaved"),
        "draw": ("logical", "te_t1d", "te_q2d", "te_fb", "te_rhtrc"),
        "fill": (),
        "seed": (),
        "at": (),
        "rng": (),
    },
    "adam": {
        "moments": ("f32", "bf16"),
        "adam": ("plain", "fma"),
        "decoupling": ("adamw", "l2"),
        "bias_correction": ("0", "1"),
        "step": (),
        "lr": (),
        "beta1": (),
        "beta2": (),
        "eps": (),
        "decay": (),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "scale_state": {
        "inverse": ("0", "1"),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "attention": {
        "batch": (),
        "heads": (),
        "kv_heads": (),
        "kv": (),
        "layout": ("sbhd", "bshd", "thd", "sb3hd", "bs3hd", "t3hd", "sbh3d", "bsh3d", "th3d", "sbhd_sb2hd", "bshd_bs2hd", "thd_t2hd", "sbhd_sbh2d", "bshd_bsh2d", "thd_th2d"),
        "lengths": (),
        "kv_lengths": (),
        "mask": ("none", "causal", "causal_bottom_right"),
        "window": (),
        "bias": ("none", "pre_scale", "post_scale"),
        "softmax_scale": (),
        "dropout": (),
        "exp": ("exact", "ex2"),
        "sums": ("ascending", "online"),
        "codes": ("none", "e4m3", "e5m2"),
        "backward": ("0", "1"),
        "element": ("e4m3", "e5m2", "e2m3", "e3m2"),
        "block": ("1x16", "16x16", "1x32", "32x32", "1x128", "128x128"),
        "packing": ("bytes", "packed"),
        "round": ("rne", "sr"),
        "rht": ("0", "1"),
        "sign_mask": (),
        "row_scaled": ("0", "1"),
        "four_over_six": ("off", "mae", "mse"),
        "e4m3_max": ("448", "256"),
        "pow2": ("0", "1"),
        "eps": (),
        "amax": (),
        "scale": (),
        "prior_amax": (),
        "neg_zero": ("keep", "plus", "drop", "minus"),
        "nan_amax": ("ignore", "propagate"),
        "inf_amax": ("unit", "zero"),
        "scale_limit": ("f32_max", "source_max"),
        "nan_tensor_amax": ("clamp", "unit"),
        "nan_clamp": ("drop", "propagate"),
        "multiplier": ("reciprocal", "bf16_quotient", "quotient", "decode_reciprocal", "divide_product", "divide_quotient"),
        "four_over_six_error": ("exact", "fast"),
        "element_ties": ("even", "zero", "away"),
        "element_overflow": ("saturate", "nan"),
        "pre_round": ("none", "bf16", "f16_rz"),
        "scale_order": ("encode_first", "decode_first", "decode_divide"),
        "scale_division": ("divide", "reciprocal", "in_source"),
        "mx_scale": ("up", "floor", "ceil", "even", "even_e2m1", "down", "nearest"),
        "mx_inf": ("max", "nan"),
        "nvfp4_scale": ("folded", "quotient_first", "product_first", "decode", "decode_product", "unit"),
        "nvfp4_floor": ("none", "least_normal", "one", "eighth"),
        "zero_multiplier": ("limit", "zero"),
        "scale_round": ("rne", "rp"),
        "rht_sum": ("butterfly", "tc16", "exact"),
        "sr_rule": ("integer", "fma"),
        "sr_bytes": ("ascending", "interleaved"),
        "draw": ("logical", "te_t1d", "te_q2d", "te_fb", "te_rhtrc"),
        "fill": (),
        "seed": (),
        "at": (),
    },
    "hadamard": {
        "sign_mask": (),
        "rht_sum": ("butterfly", "tc16", "exact"),
        "fill": (),
        "seed": (),
        "at": (),
    },
}
kFlavours = {
    "assay",
    "te",
    "ocp",
    "ocp.away",
    "torchao.rceil",
    "torchao.ceil",
    "torchao.even",
    "compressed_tensors.mx",
    "compressed_tensors.mxfp4",
    "triton.down",
    "onnx.nearest",
    "modelopt.mxfp4",
    "deepgemm.fp4",
    "gguf.mxfp4",
    "triton.mxfp4",
    "quark.old",
    "flashinfer.bf16",
    "triton.sm89",
    "pytorch.eager",
    "te.pyref.current",
    "torchao.float8",
    "torchao.float8_tensor",
    "modelopt.fp8_in_source",
    "onnx.fp8",
    "vllm.dynamic",
    "vllm.dynamic_divide",
    "torchao.blockwise",
    "deepgemm",
    "deepgemm.ue8m0",
    "vllm.group",
    "vllm.ue8m0",
    "vllm.ue8m0_cuda",
    "triton.group",
    "deepseek.v3",
    "deepseek",
    "deepseek.ue8m0",
    "transformers.fp8",
    "transformers.ue8m0",
    "te.fastmath",
    "te.cpp2d",
    "te.cpp1d",
    "torchao.nvfp4",
    "torchao.nvfp4_one_level",
    "vllm.nvfp4",
    "vllm.nvfp4_emulated",
    "modelopt.nvfp4",
    "compressed_tensors.nvfp4",
    "compressed_tensors.nvfp4_in_source",
    "compressed_tensors.nvfp4_bf16",
    "cudnn.nvfp4",
    "torchao.floor",
    "gfloat.ties_to_even",
    "gfloat.ties_to_away",
    "microxcaling.even",
    "microxcaling.nearest",
    "ml_dtypes.floor",
    "ml_dtypes.ceil",
    "onnx.up",
    "onnx.down",
    "triton.up",
    "triton.mxfp4_down",
    "modelopt.mxfp8",
    "vllm.mxfp8",
    "jax.fp8",
    "ml_dtypes.clipped",
    "ml_dtypes.divided",
    "modelopt.fp8",
    "compressed_tensors.fp8",
    "compressed_tensors.fp8_blocks",
    "compressed_tensors.fp8_in_source",
    "pytorch.saturating",
    "vllm.group_triton",
    "vllm.deepgemm",
    "vllm.deepgemm_ue8m0",
    "vllm.deepgemm_fp4",
}
# ---- end of the tables -----------------------------------------------------------------------------------------------

# Planes of the ops whose shapes are not held here, by the part before the first dot or by name.
kOtherPlanes = {
    "cast": {"x", "bits", "y"}, "dequantize": {"row", "col", "y"}, "update": {"history", "scale", "reduced", "next"}, "swizzle": {"row", "col"},
    "scale_chain": {"x", "scale", "scale_inv", "multiplier", "decoded", "encode_scale"}, "hadamard": {"x", "y", "amax"}, "philox": {"x", "key", "y"},
    "split": {"x", "first_dims", "last_dims", "noop", "offsets", "row", "col"}, "gemm": {"a", "b", "c", "bias", "d"}, "adam": {"x", "p", "m", "v", "next"}, "scale_state": {"x", "scale", "multiplier", "y"},
    "attention": set("q k v kv qkv cu_seqlens_q cu_seqlens_kv bias keep do p s o out dq dk dv ds dp dqkv grad".split()),
}
kShape = re.compile(r"(\d+)x(\d+)\Z")
kDataPlanes = ("data", "scale_inv", "scale_gemm", "scale", "amax")   # what can be judged of a quantize
kSmallElements = {"e2m1": 4, "e2m3": 6, "e3m2": 6}


def nearest(word, words):
    found = difflib.get_close_matches(word, sorted(words), 1, 0.5)
    return f"; did you mean '{found[0]}'?" if found else ""


def up(n, m):
    return -(-n // m) * m


def bits_of_word(word):
    return 8 if word == "BOOL" else int(re.search(r"\d+", word)[0])


class LineFacts:
    """The words of a line, as far as planes depend on them. Raises PackError for what no line says."""

    def __init__(self, line, where):
        words = line.split()
        if len(words) < 3:
            raise PackError(f"{where}: expected a line such as 'quantize mxfp8 64x256 bf16 dir=row', found '{line}'")
        self.where, self.op = where, words[0]
        if self.op not in kKeysOfOp:
            raise PackError(f"{where}: expected an op ({', '.join(sorted(kKeysOfOp))}), found '{self.op}'{nearest(self.op, kKeysOfOp)}")
        self.keys = dict(self.key_and_value(word) for word in words[1:] if "=" in word)
        self.plain = [word for word in words[1:] if "=" not in word]
        self.shape = self.source = None
        self.formats = {}
        if self.op == "quantize":
            self.read_quantize()

    def key_and_value(self, word):
        key, value = word.split("=", 1)
        bare = key.split(".", 1)[1] if key.split(".")[0] in ("row", "col", "a", "b", "qkv", "s", "o", "do", "dp", "dqkv") and "." in key else key
        known = kKeysOfOp[self.op]
        if bare not in known:
            raise PackError(f"{self.where}: expected a key of {self.op}, found '{key}'{nearest(bare, known)}")
        if known[bare] and value not in known[bare]:
            raise PackError(f"{self.where}: {key}: expected one of {'|'.join(known[bare])}, found '{value}'{nearest(value, known[bare])}")
        if bare == "flavour" and value not in kFlavours:
            raise PackError(f"{self.where}: flavour: expected a name of `assay flavours`, found '{value}'{nearest(value, kFlavours)}")
        return key, value

    def read_quantize(self):
        if len(self.plain) != 3:
            raise PackError(f"{self.where}: expected 'quantize <format> <rows>x<cols> <source>' before the keys, found '{' '.join(['quantize', *self.plain])}'")
        kinds, shape, self.source = self.plain
        match = kShape.match(shape)
        if not match:
            raise PackError(f"{self.where}: expected a shape such as 64x256, found '{shape}'")
        self.shape = int(match[1]), int(match[2])
        if self.source not in ("f32", "bf16", "f16"):
            raise PackError(f"{self.where}: expected the source f32, bf16 or f16, found '{self.source}'{nearest(self.source, ('f32', 'bf16', 'f16'))}")
        direction = self.keys.get("dir", "both")
        for d, kind in zip(("row", "col"), (kinds.split("/") * 2)[:2]):
            if kind != "auto" and kind not in kFormats:
                raise PackError(f"{self.where}: expected a format ({', '.join(kFormats)}), found '{kind}'{nearest(kind, kFormats)}")
            if direction in (d, "both"):
                self.formats[d] = kind

    def key(self, direction, name, otherwise=None):
        return self.keys.get(f"{direction}.{name}", self.keys.get(name, otherwise))

    @property
    def exact(self):
        """Whether the words alone say every shape: a role, a recipe and a factory say more."""
        return self.op == "quantize" and not {"role", "recipe", "factory"} & set(self.keys) and "auto" not in self.formats.values()


def geometry(facts, d):
    """Of one direction: the stored data's shape, and the logical and the padded shape of its compact scales, in the encoding that they have."""
    family, elements, scale, block, columns = kFormats[facts.formats[d]]
    rows, cols = facts.shape[::-1] if d == "col" and columns == "transposed" else facts.shape
    block = facts.key(d, "block", block)
    length = int(block.lstrip("b").split("x")[1]) if "x" in block else 1
    if family == "fp8_tensor":
        logical = padded = (rows if facts.key(d, "row_scaled") == "1" else 1, 1)
    elif family == "fp8_block" and facts.key(d, "scales") == "gemm":
        scale, logical = "e8m0", (rows, 4 * -(-cols // length))
        padded = up(rows, 128), logical[1]
    elif family == "fp8_block":
        logical = (-(-rows // length), -(-cols // length)) if block == "128x128" else (-(-cols // length), rows)
        padded = logical[0], up(logical[1], 4)
    elif d == "col" and columns == "as_is":
        logical = -(-rows // length), cols
        padded = up(logical[0], 4), up(cols, 128)
    else:
        logical = rows, -(-cols // length)
        padded = up(rows, 128), up(logical[1], 4)
    return (rows, cols), logical, padded, scale


def counts_of_data(shape, element, packed):
    """Elements that data may come as: a byte for each code, or codes of fewer than 8 bits without a gap."""
    bits = kSmallElements.get(element)
    if not bits:
        return {math.prod(shape)}
    padded = shape[0] * up(shape[1], 2 if bits == 4 else 4 if packed else 1)
    return {math.prod(shape), padded, padded * bits // 8}


def planes_of(facts):
    """{name: (encoding, counts)} of a quantize; counts None: not held."""
    count = math.prod(facts.shape)
    out = {"x": (facts.source, {count})}
    if "noop" in facts.keys:
        out["noop"] = ("f32", {1})
    for d, kind in facts.formats.items():
        family, elements, scale, _, _ = kFormats[kind]
        data, logical, padded, scale = geometry(facts, d)
        element = facts.key(d, "element", elements.split("|")[0])
        element = facts.source if element == "source" else element
        gemm = facts.key(d, "scales") == "gemm"
        each = {data[0] if facts.key(d, "row_scaled") == "1" else 1}
        if family in ("fp8_tensor", "nvfp4"):
            out[f"{d}.amax"] = ("f32", each)
            out[f"{d}.given.amax"] = ("f32", each)
        if family == "fp8_tensor":
            out[f"{d}.scale"] = ("f32", each)
        if kind == "fp8_delayed":
            out[f"{d}.given.scale"] = out[f"{d}.prior.amax"] = ("f32", {1})
        if scale != "none":
            out[f"{d}.scale_gemm" if gemm else f"{d}.scale_inv"] = (scale, {math.prod(padded)} | (set() if gemm else {math.prod(logical)}))
            if facts.key(d, "scale_from", "x") != "x":
                amax = facts.key(d, "scale_from") == "amax"
                out[f"{d}.given.block_amax" if amax else f"{d}.given.scale_inv"] = ("f32" if amax else kFormats[kind][2], {math.prod(logical)})
        out[f"{d}.data"] = (element, counts_of_data(data, element, facts.key(d, "packing", "bytes") == "packed"))
    return out


def check_plane(where, plane, array, encoding, counts):
    bits, word = kEncodings[encoding]
    small = encoding in kSmallElements
    narrow = re.match(r"float([46])_", array.name)
    if narrow and int(narrow[1]) != kSmallElements.get(encoding):
        raise PackError(f"{where}: {plane}: expected {encoding}, found {array.name}: a tensor of {narrow[1]}-bit codes is no plane of {encoding}")
    if bits_of_word(array.dtype) != (8 if small else bits) or (array.dtype != word and array.dtype[0] not in "UI" and not (small and array.dtype == "U8")):
        raise PackError(f"{where}: {plane}: expected {word if not small else 'U8'} or an integer of its width, found {array.name}")
    if array.count not in counts:
        either = " or ".join(str(n) for n in sorted(counts))
        raise PackError(f"{where}: {plane}: expected {either} elements, found {array.count} of shape {list(array.shape)}; pass the tensor that the line describes")


def check_case(line, planes, where):
    """Raises PackError for a line, or for planes ({name: Array}), that `assay check` would refuse or leave unjudged."""
    facts = LineFacts(line, where)
    if facts.exact:
        known = planes_of(facts)
        for plane, array in planes.items():
            if plane not in known:
                raise PackError(f"{where}: expected a plane of the line ({', '.join(known)}), found '{plane}'{nearest(plane, known)}")
            check_plane(where, plane, array, *known[plane])
        if not any(p.split(".")[-1] in kDataPlanes and "given" not in p for p in planes):
            raise PackError(f"{where}: expected a plane that can be judged ({', '.join(p for p in known if p != 'x')}), found {', '.join(planes)} alone")
    elif facts.op in kOtherPlanes:
        for plane in planes:
            if plane.split(".")[0] not in kOtherPlanes[facts.op]:
                raise PackError(f"{where}: expected a plane of {facts.op} ({', '.join(sorted(kOtherPlanes[facts.op]))}), found '{plane}'{nearest(plane, kOtherPlanes[facts.op])}")
