"""Attention's core as a function (N20), and its line from the shapes of its tensors."""
from __future__ import annotations

from typing import Any, Mapping, Sequence

from ._arrays import SOURCES, Array, array_of, library_for
from ._errors import LineError, PlaneError
from ._lines import dtype_word, flat, line_text, words_of
from ._ops import computed, x_array
from ._quantized import Planes

_CODES = {"F8_E4M3": "e4m3", "F8_E5M2": "e5m2"}   # N20.17
kLayouts = ("sbhd", "bshd", "thd", "sb3hd", "bs3hd", "t3hd", "sbh3d", "bsh3d", "th3d", "sbhd_sb2hd", "bshd_bs2hd", "thd_t2hd", "sbhd_sbh2d",
            "bshd_bsh2d", "thd_th2d")


def held_by(layout: str) -> dict[str, str]:
    """The tensors of a layout and the letters of their axes: {"q": "bshd", "kv": "bs2hd"}."""
    if layout not in kLayouts:
        raise LineError(f"layout: expected one of {', '.join(kLayouts)}, found '{layout}'")
    parts = layout.split("_")
    if len(parts) == 2:
        return {"q": parts[0], "kv": parts[1]}
    return {"qkv": layout} if "3" in layout else {"q": layout, "k": layout, "v": layout}


def _axes(array: Array, letters: str, what: str) -> dict[str, int]:
    """The size of each axis by its letter; nothing of an array that is flattened to [tokens, columns]."""
    shape = tuple(array.shape)
    if len(shape) != len(letters):
        if len(shape) == 2:
            return {}
        raise PlaneError(f"expected {len(letters)} axes, {', '.join(letters)}, or 2 (tokens, columns), found {list(shape)}", what, letters, str(list(shape)))
    sizes = dict(zip(letters, shape))
    for count in ("2", "3"):
        if sizes.pop(count, int(count)) != int(count):
            raise PlaneError(f"expected {count} tensors along the axis '{count}' of {letters}, found {list(shape)}", what, count, str(list(shape)))
    return sizes


def sizes_of(tensors: Mapping[str, Array], layout: str) -> tuple[dict[str, int], tuple[int, int] | None]:
    """The keys of a line that the shapes tell, and the shape of Q as a line has it; None where it is flattened."""
    letters = held_by(layout)
    missing = [name for name in letters if name not in tensors]
    if missing:
        raise PlaneError(f"expected {', '.join(letters)} under layout={layout}, found {', '.join(tensors) or 'none'}", missing[0])
    q = _axes(tensors[next(iter(letters))], next(iter(letters.values())), next(iter(letters)))
    if not q:
        return {}, None
    tokens = q["t"] if "t" in q else q["b"] * q["s"]
    sizes = {"batch": q["b"], "heads": q["h"]} if "b" in q else {"heads": q["h"]}
    for name, axes in list(letters.items())[1:]:
        k = _axes(tensors[name], axes, name)
        if not k:
            raise PlaneError(f"expected the axes {', '.join(axes)}, as Q has its own, found {list(tensors[name].shape)}", name)
        if k["d"] != q["d"] or k.get("b") != q.get("b"):
            raise PlaneError(f"expected the batch and the head size of Q, found {list(tensors[name].shape)}", name)
        found = {"kv_heads": k["h"], "kv": k["s"]} if "s" in k else {"kv_heads": k["h"]}
        if any(sizes.get(key, size) != size for key, size in found.items()):
            raise PlaneError(f"expected K and V of one shape, found {list(tensors[name].shape)}", name)
        sizes.update(found)
    if len(letters) == 1:
        sizes.update({"kv_heads": q["h"], **({"kv": q["s"]} if "s" in q else {})})
    return sizes, (tokens, q["h"] * q["d"])


def attention_line(spec: str, tensors: Mapping[str, Array], source: str, settings: Mapping[str, Any], layout: str) -> str:
    """The line of an attention over these tensors. A spec says batch, heads and kv itself where the tensors are flattened."""
    sizes, shape = sizes_of(tensors, layout)
    words = words_of(spec)
    first = next(iter(held_by(layout)))
    if shape is None and words.shape is not None:
        shape = words.shape
    elif shape is None and first == "q":
        shape = flat(tuple(tensors["q"].shape), "q")
    elif shape is None:
        raise LineError(f"expected the axes of {first} ({held_by(layout)[first]}), or a spec with the size of Q, found [tokens, columns]")
    if source not in ("bf16", "f16"):
        raise PlaneError(f"expected bfloat16 or float16, found {source}", first, "bf16", source)
    return line_text("attention", spec, shape, source, {**settings, **sizes, "layout": layout if layout != "bshd" else None})


def _lengths(q: Sequence[int] | None, kv: Sequence[int] | None) -> dict[str, Any]:
    if q is None and kv is None:
        return {}
    if q is None:
        raise LineError("expected lengths= beside kv_lengths=, found none")
    return {"lengths": [int(n) for n in q], "kv_lengths": None if kv is None else [int(n) for n in kv], **({"batch": len(q)})}


def attention(q: Any, k: Any = None, v: Any = None, spec: str = "fp8_current", *, do: Any = None, bias: Any = None, keep: Any = None,
              layout: str | None = None, lengths: Sequence[int] | None = None, kv_lengths: Sequence[int] | None = None, out: str = "like",
              x_dtype: Any = None, descales: Sequence[Any] | None = None, given: Mapping[str, Any] | None = None, threads: int = 0,
              **keys: Any) -> Planes:
    """softmax(Q K^T) V with the casts of an FP8 recipe, and its gradients where `do` is given, by emulation E (docs/attention.md).

    q, k, v   of bfloat16 or float16, with the axes that `layout` names: (b, s, h, d) under bshd. Packed layouts: q alone has all three
              (bs3hd: (b, s, 3, h, d)), or k holds K and V (bshd_bs2hd). Flattened to [tokens, columns] they need the keys batch, heads,
              kv_heads and kv
    spec      a format and keys of a line: "fp8_current mask=causal", "fp8_delayed s.scale=448", "mxfp8", "identity"
    do        the gradient of the result, with its axes: computes the gradients as well
    bias      of the logits, [heads * queries, keys], with bias=pre_scale or post_scale in the spec (default: post_scale)
    keep      1 for each probability that dropout keeps, [batch * heads * queries, keys], with dropout= among the keys
    layout    of TransformerEngine (default: that of the spec, else bshd); thd and its packed forms need lengths
    lengths, kv_lengths   tokens of each sequence (kv_lengths: default as lengths)
    descales  of Q, K and V, each [batch, kv_heads] of float32, where q, k and v are FP8 codes (N20.17); x_dtype is then the type of the
              result (default: bf16), and the spec leaves Q, K and V alone: "identity/fp8_delayed s.scale=256"
    given     more input planes of the line, by name
    out, x_dtype, threads   as of quantize

    Returns a mapping of planes: "p", "s", "s.data", "o", "out", "grad.q", ...; out has the axes of Q's heads, and grad.* those of their
    tensors. Raises LineError, PlaneError.
    """
    words = words_of(spec)
    named = layout or words.keys.get("layout", "bshd")
    if words.keys.get("layout", named) != named:
        raise LineError(f"expected one layout, found layout={words.keys['layout']} in the spec and layout={named} beside it")
    letters = held_by(named)
    tensors: dict[str, Array] = {}
    for name, value in zip(letters, (q, k, v)):
        if value is None:
            raise PlaneError(f"expected {' and '.join(letters)} under layout={named}, found no {name}", name)
        tensors[name] = array_of(value, name)
        if tensors[name].word not in _CODES:
            tensors[name] = x_array(value, x_dtype, what=name)[0]
    array = tensors[next(iter(letters))]
    source = SOURCES.get(array.word) or dtype_word(x_dtype or "bf16")
    planes = {**tensors, **{name: array_of(value, name) for name, value in (("do", do), ("bias", bias), ("keep", keep)) if value is not None}}
    settings = {"backward": 1 if do is not None else None, "codes": _CODES.get(array.word), **_lengths(lengths, kv_lengths), **keys}
    if descales is not None:
        if len(descales) != 3:
            raise PlaneError(f"expected descales of Q, K and V, found {len(descales)}", "q.descale")
        planes.update({f"{name}.descale": array_of(value, f"{name}.descale") for name, value in zip("qkv", descales)})
    if bias is not None and "bias" not in {**words.keys, **settings}:
        settings["bias"] = "post_scale"
    text = attention_line(spec, tensors, source, settings, named)
    planes.update({name: array_of(value, name) for name, value in (given or {}).items()})
    made = computed(text, planes, library_for(out, array.library), threads=threads)
    return _with_axes(made, tensors, letters)


def _with_axes(made: Planes, tensors: Mapping[str, Array], letters: Mapping[str, str]) -> Planes:
    """out and the gradients with the axes that the tensors came with."""
    arrays = dict(made)
    first, axes = next(iter(letters.items()))
    if len(tensors[first].shape) != len(axes):
        return made
    shapes = {f"grad.{name}": tuple(a.shape) for name, a in tensors.items()}
    shapes["out"] = tuple(size for letter, size in zip(axes, tensors[first].shape) if letter not in "23")
    for name, shape in shapes.items():
        if name in arrays and hasattr(arrays[name], "reshape"):
            arrays[name] = arrays[name].reshape(shape)
    return Planes(made._line, arrays, made.library, made.copied_bytes)
