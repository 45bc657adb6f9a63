"""A line as the program reads it: its words, its keys, and what each of them may be. Needs the standard library alone."""
import decimal
import difflib
import re
import struct

from ._dump_tables import kEncodings, kFlavours, kFormats, kKeys, kRecipes, kRoles
from ._errors import PackError

kOps = tuple(dict.fromkeys(op for row in kKeys for op in row[2].split()))
kEncodingOps = ("cast", "adam", "scale_state", "philox")   # their first word is an encoding, not a format
kPairOps = ("quantize", "split", "attention")
kDirectedOps = ("quantize", "split", "dequantize", "swizzle")
kRoleOps, kRoleKeys = ("quantize", "split"), ("role", "recipe", "factory")
kSlots = ("qkv", "s", "o", "do", "dp", "dqkv")
# What may stand before the dot of a key: a direction, an operand of a gemm, a slot of an attention.
kPlacesOfOp = {"gemm": ("a", "b", "c"), "attention": kSlots}
kMostElements = 2**31
kWide = ("f32", "bf16", "f16")


def nearest(word, words):
    found = difflib.get_close_matches(word, sorted(words), 1, 0.5)
    return f"; did you mean '{found[0]}'?" if found else ""


# ---- values -----------------------------------------------------------------------------------------------------------
def integer(text, low, high):
    """The integer of that range that this is, as the program reads one: digits alone, with a sign where its type has one. None for anything else."""
    if len(text) > 4000 or not re.fullmatch(r"-?[0-9]+" if high < 2**63 else r"[0-9]+", text):
        return None
    return int(text) if low <= int(text) <= high else None


def integers(text, separator, low=0, high=kMostElements):
    """The integers of a list; None where one of them is none, or out of range."""
    out = [integer(word, low, high) for word in text.split(separator)]
    return None if None in out else out


def f32_bits(text):
    """The bits of a number of a line, a decimal or 0x and 8 hexadecimal digits; None where it is none, or outside of binary32."""
    if text.startswith("0x"):
        return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{8}", text) else None
    if re.fullmatch(r"(?i)-?nan(\([a-z0-9_]*\))?", text):
        return 0x7FFFFFFF
    if not re.fullmatch(r"(?i)-?(inf|infinity|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)", text):
        return None
    if not re.search("(?i)inf", text):
        try:
            size = abs(decimal.Decimal(text))
        except decimal.DecimalException:   # an exponent beyond any float
            return None
        with decimal.localcontext() as exact:
            exact.prec = 200
            if size >= 2**128 - 2**103 or 0 < size <= decimal.Decimal(2)**-150:   # rounded, it would be infinite or 0
                return None
    try:
        return struct.unpack("<I", struct.pack("<f", float(text)))[0]
    except OverflowError:   # binary64 rounds it to the number halfway beyond the largest
        return 0xFF7FFFFF if text.startswith("-") else 0x7F7FFFFF


def fills(text, values):
    word, colon, data = text.partition(":")
    known = dict(v.partition(":")[::2] for v in values.split("|"))
    return word in known and bool(data if known[word] else not colon)


# Values that are no list of words and no range.
kReaders = {
    "16 bits": lambda t: bool(re.fullmatch(r"0[xX][0-9a-fA-F]+|[0-9]+", t)) and int(t, 16 if t[:2] in ("0x", "0X") else 10) < 1 << 16,
    "<row>,<col>": lambda t: len(integers(t, ",") or ()) == 2,
    "<seed>,<offset>,<member>": lambda t: t.count(",") == 2 and all(w[:1] != "-" and integer(w, 0, 2**bits - 1) is not None for w, bits in zip(t.split(","), (64, 64, 32))),
    "any|<before>,<after>": lambda t: t == "any" or len(integers(t, ",", -1) or ()) == 2,
    "full|<tokens>,...": lambda t: t == "full" or bool(integers(t, ",")),
    "<size>,... or <rows>x<cols>,...": lambda t: True,   # LineFacts.members, which knows which sides vary
    "assay|te|<name>": lambda t: t in kFlavours,
}


def allowed(values, text):
    """Whether a key whose values the table tells so may have this one."""
    if values in kReaders:
        return kReaders[values](text)
    if match := re.fullmatch(r"(-?\d+)\.\.(-?\d+)(\^\d+)?(-1)?", values):
        high = int(match[2]) ** int(match[3][1:]) if match[3] else int(match[2])
        return integer(text, int(match[1]), high + int(match[4] or 0)) is not None
    if ":<" in values:
        return fills(text, values)
    words = values.split("|")
    return text in words and text != "float" or "float" in words and f32_bits(text) is not None


def expected(values):
    """What a message says of a key's values."""
    return "a name of `assay flavours`" if values == "assay|te|<name>" else f"one of {values}" if "|" in values and "<" not in values else values


def words_of(line, where):
    """The words of a line. Raises PackError for what is no text of one line."""
    if not isinstance(line, str):
        raise PackError(f"{where}: expected a line as a str, found {type(line).__name__}")
    if found := re.search("[\0-\x08\n-\x1f\x7f\ud800-\udfff]", line):
        raise PackError(f"{where}: expected one line of printable characters, found {found[0]!r} in {line!r}")
    return [word for word in re.split(r"[ \t]+", line) if word]


# ---- a line -----------------------------------------------------------------------------------------------------------
class LineFacts:
    """The words of a line, and what they say. Raises PackError for what the program does not read."""

    def __init__(self, line, where):
        words = words_of(line, where)
        self.where, self.line, self.op = where, line, words[0] if words else ""
        if len(words) < 3:
            raise PackError(f"{where}: expected a line such as 'quantize mxfp8 64x256 bf16 dir=row', found '{line}'")
        if self.op not in kOps:
            raise PackError(f"{where}: expected an op ({', '.join(sorted(kOps))}), found '{self.op}'{nearest(self.op, kOps)}")
        self.rows = {row[0]: [r for r in kKeys if r[0] == row[0] and self.op in r[2].split()] for row in kKeys if self.op in row[2].split()}
        self.shape = self.source = self.kind = None
        self.kinds, self.formats, self.keys, self.settings = [], {}, {}, {}
        self.read_keys(self.read_gemm(words[1:]) if self.op == "gemm" else self.read_words(words[1:]))
        self.read_role()
        self.read_places()
        self.check_keys()

    def refuse(self, message):
        raise PackError(f"{self.where}: {message}")

    # ---- the words before the keys
    def format_of(self, word):
        if word == "auto":
            self.refuse("expected a format, found 'auto': a pack holds the line that a factory makes; `assay list '<line>' --canonical` prints it")
        if word not in kFormats:
            self.refuse(f"expected a format ({', '.join(kFormats)}), found '{word}'{nearest(word, kFormats)}")
        return word

    def source_of(self, word, wide):
        known = kWide if wide else kEncodings
        if word not in known:
            self.refuse(f"expected {'the source f32, bf16 or f16' if wide else 'a source encoding, ' + ', '.join(known)}, found '{word}'{nearest(word, known)}")
        return word

    def sizes_of(self, word, count, form):
        sizes = integers(word, "x")
        if not sizes or len(sizes) != count:
            self.refuse(f"expected {form}, found '{word}'")
        return tuple(sizes)

    def read_words(self, words):
        """<op> <format or encoding> <rows>x<cols> <source>. Returns the words behind them."""
        what = "encoding" if self.op in kEncodingOps else "format"
        if len(words) < 3 or any("=" in word for word in words[:3]):
            self.refuse(f"expected '{self.op} <{what}> <rows>x<cols> <source>' before the keys, found '{' '.join([self.op, *(w for w in words if '=' not in w)])}'")
        self.kind, shape, source = words[:3]
        self.shape = self.sizes_of(shape, 2, "a shape such as 64x256")
        if self.shape[0] * self.shape[1] > kMostElements:
            self.refuse(f"expected at most 2^31 elements, found '{shape}'")
        if self.op in kEncodingOps and self.kind not in kEncodings:
            self.refuse(f"expected an encoding ({', '.join(kEncodings)}), found '{self.kind}'{nearest(self.kind, kEncodings)}")
        elif self.op not in kEncodingOps:
            self.kinds = [self.format_of(word) for word in self.kind.split("/")]
            if len(self.kinds) > (2 if self.op in kPairOps else 1):
                self.refuse(f"expected one format for {self.op}, found '{self.kind}'")
        self.source = self.source_of(source, self.op in ("quantize", "split", "dequantize"))
        return words[3:]

    def read_gemm(self, words):
        """gemm a=<format> b=<format> <M>x<N>x<K> [<source>]. Returns the words behind them."""
        for side, word in zip(("a", "b"), words):
            if not word.startswith(side + "="):
                self.refuse(f"expected the format of an operand, {side}=<format>, found '{word}'")
            self.formats[side] = self.format_of(word[2:])
        self.shape = self.sizes_of(words[2] if len(words) > 2 else "", 3, "sizes such as 256x512x384 after the operands")
        words = words[3:]
        if words and "=" not in words[0]:
            self.keys["source"] = self.source_of(words.pop(0), True)
        self.source = self.keys.get("source", "bf16")
        return words

    # ---- the keys
    def read_keys(self, words):
        places = kPlacesOfOp.get(self.op, ("row", "col"))
        for word in words:
            key, equals, value = word.partition("=")
            if not equals:
                self.refuse(f"expected key=value, found '{word}'")
            place, dot, bare = key.partition(".")
            if not dot or place not in places:
                place, bare = "", key
            if bare not in self.rows:
                known = [f"{p}.{k}" for p in ([place] if place else []) for k in self.rows] or list(self.rows)
                self.refuse(f"expected a key of {self.op}, found '{key}'{nearest(key, known)}")
            if place and not self.may_have_places(bare):
                self.refuse(f"expected '{bare}' without '{place}.', for it is not a key of one {'operand' if self.op == 'gemm' else 'slot' if self.op == 'attention' else 'direction'}")
            if key in self.keys:
                self.refuse(f"expected each key once, found '{key}' twice")
            self.keys[key] = value

    def may_have_places(self, name):
        return any(row[4] for row in self.rows[name])

    def read_role(self):
        """What role= and recipe= set, of each direction."""
        role, recipe = self.keys.get("role"), self.keys.get("recipe")
        if "factory" in self.keys:
            self.refuse("expected no factory= in a pack, for the line that it makes has to stand there; `assay list '<line>' --canonical` prints it")
        if role is None and recipe is None:
            return
        if role is None:
            self.refuse("recipe: expected the role of the tensor beside it, such as role=linear/input, found none")
        module, _, tensor = role.partition("/")
        tensor = tensor.partition("/")[0]
        if tensor not in kRoles.get(module, "").split("|") or not tensor:
            self.refuse(f"role: expected <module>/<tensor> such as linear/grad_output ({', '.join(f'{m}/{t}' for m, t in kRoles.items())}), found '{role}'")
        if recipe is not None and recipe not in kRecipes:
            self.refuse(f"recipe: expected one of {'|'.join(kRecipes)}, found '{recipe}'{nearest(recipe, kRecipes)}")
        for d, kind in zip(("row", "col"), (self.kinds * 2)[:2]):
            if recipe is not None and kRecipes[recipe][0] != kind:
                self.refuse(f"recipe: expected the format {kRecipes[recipe][0]} of recipe={recipe}, found {kind}")
            for of, tensors in kRecipes.values():
                if of == kind and tensor in tensors:
                    self.settings[d] = tensors[tensor]
        if not self.settings:
            self.refuse(f"role: expected a tensor that a recipe quantizes by {self.kind}, found '{role}'")

    def read_places(self):
        """The format of each direction, operand or slot."""
        if self.op in kDirectedOps:
            direction = self.keys.get("dir", "both" if self.op in ("quantize", "split") else "row")
            if direction not in ("row", "col", "both"):
                self.refuse(f"dir: expected one of row|col|both, found '{direction}'{nearest(direction, ('row', 'col', 'both'))}")
            if direction != "both" and len(set(self.kinds)) > 1:
                self.refuse(f"dir: expected one format with dir={direction}, found the pair '{self.kind}'")
            if direction == "both" and self.op in ("dequantize", "swizzle"):
                self.refuse(f"dir: expected row or col for {self.op}, found both")
            self.formats = {d: kind for d, kind in zip(("row", "col"), (self.kinds * 2)[:2]) if direction in (d, "both")}
        elif self.op == "hadamard":
            self.formats = {"col": self.kinds[0]}
        elif self.op == "attention":   # formats with blocks leave S and dP as they are (N20.9)
            inner = self.kinds[-1] if len(self.kinds) > 1 or kFormats[self.kind][3] == "tensor" else "identity"
            slots = kSlots if self.keys.get("backward") == "1" else kSlots[:3]
            self.formats = {slot: inner if slot in ("s", "dp") else self.kinds[0] for slot in slots}
        elif self.kinds:
            self.formats = {"row": self.kinds[0]}

    def direction(self, place):
        """The direction of a place: which side of an operand is read, rows of a slot."""
        if self.op == "gemm":
            return "row" if self.keys.get("op", "TN") in (("TN",) if place == "a" else ("TN", "NN")) else "col"
        return "row" if self.op == "attention" else place

    # ---- where keys apply
    def fits(self, row, place):
        """Whether a row of the table is of this place; "" stands for a key that has none."""
        _, _, _, formats, directions, need = row
        if place in ("row", "col", *kSlots) or (place in ("a", "b") and formats):
            if self.formats.get(place) not in formats.split() or self.direction(place) not in directions.split("|"):
                return False
        if not need:
            return True
        name, _, words = need.lstrip("!").partition("=")
        among = words.split("|")
        told = [self.key(p, name) for p in ([place] if formats else ["", *self.formats])]
        return not any(t in among for t in told) if need[0] == "!" else any(t in among for t in told)

    def places(self, name):
        """Where a key has a value."""
        rows = self.rows.get(name, [])
        if any(row[3] for row in rows):   # of formats: of directions, operands, slots
            return [p for p in self.formats if any(self.fits(row, p) for row in rows)]
        if rows and rows[0][4]:   # of a gemm's operands, and of what it adds
            added = f32_bits(self.keys.get("beta", "0")) or 0
            return [p for p in rows[0][4].split("|") if p != "c" or added & 0x7FFFFFFF or self.keys.get("bias", "none") != "none"]
        return [""] if any(self.fits(row, "") for row in rows) else []

    def key(self, place, name, otherwise=None):
        """The value of a key at a place: written there, or for all; set by the role or the flavour; else `otherwise`."""
        if name in self.rows and (not place or place in self.places(name)):
            for written in (f"{place}.{name}", name):
                if written in self.keys:
                    return self.keys[written]
            formats, set_by_flavour = kFlavours.get(self.keys.get("flavour"), ("", ""))
            for words in (self.settings.get(place, ""), set_by_flavour if self.formats.get(place) in formats.split() else ""):
                told = dict(word.split("=") for word in words.split())
                if name in told or f"{place}.{name}" in told:
                    return told.get(name, told.get(f"{place}.{name}"))
        return otherwise

    def check_keys(self):
        for written, value in self.keys.items():
            place, _, name = written.rpartition(".")
            if name in kRoleKeys:
                continue
            where = self.places(name)
            if (place not in where) if place else not where:
                self.refuse(f"{written}: expected a key that applies here, found '{written}={value}'; {self.why_not(name)}")
            used = [place] if place else [p for p in where if f"{p}.{name}" not in self.keys]
            for p in used:
                self.check_value(name, p, value)
            if not used and not any(allowed(self.values(name, p), value) for p in where):   # each place has its own, and yet it must be a value
                self.check_value(name, where[0], value)

    def values(self, name, place):
        """What a key may be at a place, as the table writes it."""
        kind = self.formats.get(place)
        if kind and name in ("element", "block", "packing"):
            return kFormats[kind][{"element": 1, "block": 5, "packing": 6}[name]]
        return self.rows[name][0][1]

    def check_value(self, name, place, value):
        values = self.values(name, place)
        if not allowed(values, value):
            among = kFlavours if name == "flavour" else values.split("|")
            self.refuse(f"{name}: expected {expected(values)}, found '{value}'{nearest(value, among)}")

    def why_not(self, name):
        """Of what a key is that does not apply."""
        formats = list(dict.fromkeys(f for row in self.rows[name] for f in row[3].split()))
        rows = [row for row in self.rows[name] if not row[3] or any(kind in row[3].split() for kind in self.formats.values())]
        if not rows:
            return f"it is of {', '.join(formats)}"
        needs = [row[5] for row in rows if row[5]]
        if needs:
            other, _, words = needs[0].lstrip("!").partition("=")
            return f"it needs {other} {'other than' if needs[0][0] == '!' else '='} {' or '.join(words.split('|'))}".replace(" = ", "=")
        return f"it is of {'columns' if 'row' not in rows[0][4] else 'a direction, an operand or a slot that is not here'}"

    # ---- what the planes of a line depend on
    def members(self):
        """The shapes of a split's members."""
        rows, cols = self.shape
        vary = self.keys.get("vary", "first")
        if "groups" not in self.keys:
            return [self.shape]
        out = []
        for word in self.keys["groups"].split(","):
            n = integers(word, "x")
            if not n or len(n) != (2 if vary == "both" else 1):
                self.refuse(f"groups: expected {'<rows>x<cols>,...' if vary == 'both' else '<size>,...'}, found '{self.keys['groups']}'")
            out.append(tuple(n) if vary == "both" else (rows, n[0]) if vary == "last" else (n[0], cols))
        return out
