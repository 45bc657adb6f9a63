"""What `assay check` would refuse of a case, said when it is dumped: the grammar of a line, the names of planes, their counts and dtypes. Needs the standard library alone."""
import difflib
import re

from ._dump_planes import kPlanesOfOp, kSmallElements
from ._dump_tables import kEncodings, kFlavours, kFormats, kKeys
from ._errors import PackError

kShape = re.compile(r"(\d+)x(\d+)\Z")
kSizes = re.compile(r"(\d+)x(\d+)x(\d+)\Z")
# What a key may be of, before its dot: a direction, an operand of a gemm, a slot of an attention.
kPlacesOfOp = {"gemm": ("a", "b", "c"), "attention": ("qkv", "s", "o", "do", "dp", "dqkv")}
kEncodingOps = ("cast", "adam", "scale_state", "philox")   # their first word is an encoding, not a format
kPairOps = ("quantize", "split", "dequantize", "swizzle", "attention")


def keys_of_ops():
    """{op: {key: its words, or () where any value may stand}}. Rows of one key add up, unless one of them takes any value."""
    ops = {}
    for key, words, names in kKeys:
        for op in names.split():
            known = ops.setdefault(op, {})
            more = tuple(words.split("|")) if words else ()
            known[key] = tuple(dict.fromkeys((*known[key], *more))) if known.get(key) and more else more
    return ops


kKeysOfOp = keys_of_ops()


def nearest(word, words):
    found = difflib.get_close_matches(word, sorted(words), 1, 0.5)
    return f"; did you mean '{found[0]}'?" if found else ""


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
        operands = words[1:3] if self.op == "gemm" else []
        self.keys = dict(self.key_and_value(word) for word in words[1 + len(operands):] if "=" in word)
        self.plain = [word for word in words[1:] if "=" not in word]
        self.shape = self.source = self.kind = None
        self.formats = {}
        if self.op == "gemm":
            self.read_gemm(operands)
        else:
            self.read_words()

    def key_and_value(self, word):
        key, value = word.split("=", 1)
        place, _, bare = key.partition(".")
        bare = bare if bare and place in kPlacesOfOp.get(self.op, ("row", "col")) else key
        known = kKeysOfOp[self.op]
        if bare not in known:
            raise PackError(f"{self.where}: expected a key of {self.op}, found '{key}'{nearest(bare, known)}")
        if known[bare] and value not in known[bare]:
            raise PackError(f"{self.where}: {key}: expected one of {'|'.join(known[bare])}, found '{value}'{nearest(value, known[bare])}")
        if bare == "flavour" and value not in kFlavours:
            raise PackError(f"{self.where}: flavour: expected a name of `assay flavours`, found '{value}'{nearest(value, kFlavours)}")
        return key, value

    def format_of(self, word):
        if word != "auto" and word not in kFormats:
            raise PackError(f"{self.where}: expected a format ({', '.join(kFormats)}), found '{word}'{nearest(word, kFormats)}")
        return word

    def source_of(self, word):
        if word not in kEncodings:
            raise PackError(f"{self.where}: expected a source encoding ({', '.join(kEncodings)}), found '{word}'{nearest(word, kEncodings)}")
        return word

    def read_words(self):
        """<op> <format or encoding> <rows>x<cols> <source>."""
        what = "encoding" if self.op in kEncodingOps else "format"
        if len(self.plain) != 3:
            raise PackError(f"{self.where}: expected '{self.op} <{what}> <rows>x<cols> <source>' before the keys, found '{' '.join([self.op, *self.plain])}'")
        self.kind, shape, source = self.plain
        match = kShape.match(shape)
        if not match:
            raise PackError(f"{self.where}: expected a shape such as 64x256, found '{shape}'")
        self.shape = int(match[1]), int(match[2])
        if self.op in kEncodingOps:
            if self.kind not in kEncodings:
                raise PackError(f"{self.where}: expected an encoding ({', '.join(kEncodings)}), found '{self.kind}'{nearest(self.kind, kEncodings)}")
        else:
            kinds = [self.format_of(word) for word in self.kind.split("/")]
            if len(kinds) > (2 if self.op in kPairOps else 1):
                raise PackError(f"{self.where}: expected one format for {self.op}, found '{self.kind}'")
        if self.op in ("quantize", "split") and source not in ("f32", "bf16", "f16"):
            raise PackError(f"{self.where}: expected the source f32, bf16 or f16, found '{source}'{nearest(source, ('f32', 'bf16', 'f16'))}")
        self.source = self.source_of(source)
        if self.op in ("quantize", "split", "dequantize", "swizzle"):
            direction = self.keys.get("dir", "both" if self.op in ("quantize", "split") else "row")
            self.formats = {d: kind for d, kind in zip(("row", "col"), (kinds * 2)[:2]) if direction in (d, "both")}

    def read_gemm(self, operands):
        """gemm a=<format> b=<format> <M>x<N>x<K> [<source>]."""
        for side, word in zip(("a", "b"), operands):
            if not word.startswith(side + "="):
                raise PackError(f"{self.where}: expected the format of an operand, {side}=<format>, found '{word}'")
            self.formats[side] = self.format_of(word[2:])
        match = kSizes.match(self.plain[0]) if self.plain else None
        if not match:
            raise PackError(f"{self.where}: expected sizes such as 256x512x384 after the operands, found '{' '.join(self.plain)}'")
        self.shape = tuple(int(n) for n in match.groups())
        self.source = self.source_of(self.plain[1]) if len(self.plain) > 1 else "bf16"

    def key(self, place, name, otherwise=None):
        return self.keys.get(f"{place}.{name}", self.keys.get(name, otherwise))

    @property
    def exact(self):
        """Whether the words alone say every shape: a role, a recipe and a factory say more."""
        return not {"role", "recipe", "factory"} & set(self.keys) and "auto" not in self.formats.values()


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
    if not facts.exact:
        return
    inputs, outputs = kPlanesOfOp[facts.op](facts)
    known = {**inputs, **outputs}
    for plane, array in planes.items():
        if plane not in known:
            raise PackError(f"{where}: expected a plane of the line ({', '.join(known)}), found '{plane}'{nearest(plane, known)}")
        check_plane(where, plane, array, *known[plane])
    if not any(plane in outputs for plane in planes):
        raise PackError(f"{where}: expected a plane that can be judged ({', '.join(outputs)}), found {', '.join(planes)} alone")
