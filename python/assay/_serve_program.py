"""The interpreter that the program starts for --python: it imports the function, and answers what comes on standard input until that ends.

A question is a line of JSON and the bytes of its input planes; an answer is a line of JSON and, where it is "ok" to a run, the bytes of the output planes.
"""
from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
from typing import IO, Any, Callable, Mapping

from ._arrays import Array, array_of, bytes_of_codes, output_array
from ._errors import AssayError, PlaneError
from ._lines import Line, Plane, line, words_of
from ._ops import computed

_DRAWN = ("fill", "seed", "at")


class Refused(Exception):
    """A line that the function does not run; the text is the reason."""


def function_of(name: str) -> Callable[..., Any]:
    """Imports "package.module:function". Raises AssayError."""
    module, _, path = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:   # whatever a user's module raises
        raise AssayError(f"cannot import {name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise AssayError(f"expected {name} to be a function, found {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def raised_text(error: BaseException) -> str:
    """What a user's function raised, and the line of it where that was: "ValueError: of a kernel (kernels.py, line 12)"."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(os.path.dirname(__file__))]
    return f"{type(error).__name__}: {error}" + (f" ({os.path.basename(frames[0].filename)}, line {frames[0].lineno})" if frames else "")


class Served:
    """A function with what it says of itself: the spec that it promises, and whether it wants to see the line."""

    def __init__(self, function: Callable[..., Any], spec: str):
        self.function = function
        self.spec = spec or str(getattr(function, "assay_spec", ""))
        if self.spec:
            own = words_of(self.spec)
            if (own.op or "quantize") == "quantize" and "dir" not in own.keys and not any("/" in word for word in own.format):
                self.spec += " dir=row"   # as quantize and Subject.from_callable take it
        try:
            kinds = [p for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
        except (TypeError, ValueError):
            kinds = []
        self.wants_line = len(kinds) == 2

    def supports(self, text: str) -> None:
        """Raises Refused with the reason for a line that the function does not run."""
        found, words = line(text), words_of(text)
        if [p.name for p in found.inputs] != ["x"]:
            raise Refused(f"a Python function takes x alone, and this line reads {', '.join(p.name for p in found.inputs)}")
        if words.keys.get("noop", "none") != "none":
            raise Refused("a Python function has no noop flag")
        if self.spec:
            own = words_of(self.spec)
            if (own.op or "quantize") != found.op or own.format != words.format:
                raise Refused(f"the function promises {self.spec}")
            keys = {**own.keys, **{k: v for k, v in words.keys.items() if k in _DRAWN or k == "dir" and "dir" not in own.keys}}   # of a pair of formats
            mine = line(" ".join([found.op, *own.format, words.sizes, found.source, *(f"{k}={v}" for k, v in keys.items())]))
            if mine.canonical != found.canonical:
                raise Refused(f"the function promises {self.spec}")
        elif found.draws and not self.wants_line:
            raise Refused("stochastic rounding needs the random state: write the function with a second argument, the line")

    def run(self, text: str, x: bytes) -> dict[str, bytes]:
        """The output planes of a line, each with its padding; the reference's where the function gives none."""
        found = line(text)
        library = "torch" if "torch" in sys.modules else "numpy"
        target, finish = output_array(library, found.source, len(x), found.shape)
        if x:
            memoryview(target.reshape(-1).view(sys.modules["torch"].uint8).numpy() if library == "torch" else target)[:] = x
        array = finish()
        return self.planes(found, self.made(found, array), x)

    def made(self, found: Line, x: Any) -> dict[str, Array]:
        """What the function makes of x, by plane."""
        return self.named(found, self.function(x, found.text) if self.wants_line else self.function(x))

    def named(self, found: Line, made: Any) -> dict[str, Array]:
        """What the function returned, by plane."""
        from ._given import Outputs
        if isinstance(made, Mapping):
            return {str(n): array_of(a, str(n)) for n, a in made.items() if n != "x"}
        if isinstance(made, (tuple, list)) or not hasattr(made, "shape") or len(found.outputs) > 1:
            spec = " ".join([*words_of(found.text).format, *(f"{k}={v}" for k, v in words_of(found.text).keys.items() if k not in _DRAWN)])
            return Outputs.of(made, spec).planes
        return {found.outputs[0].name: array_of(made, found.outputs[0].name)}

    def planes(self, found: Line, made: Mapping[str, Array], x: bytes) -> dict[str, bytes]:
        """Bytes as the line lays its planes out."""
        unknown = set(made) - {p.name for p in found.outputs}
        if unknown:
            raise PlaneError(f"expected planes of the line ({', '.join(p.name for p in found.outputs)}), found {', '.join(sorted(unknown))}", "outputs")
        if not made:
            raise PlaneError("expected a plane, found none", "outputs")
        missing = [p for p in found.outputs if p.name not in made]
        out = {p.name: laid_out(made[p.name], p) for p in found.outputs if p.name in made}
        if missing:   # as of a pack that does not hold them: not judged
            source = Array({"f32": "F32", "bf16": "BF16", "f16": "F16"}[found.source], found.shape, x, "numpy", found.source)
            given = computed(found.text, {"x": source}, "buffer")
            out.update({p.name: array_of(given[p.name], p.name).tobytes() for p in missing})
        return out


def laid_out(array: Array, plane: Plane) -> bytes:
    """The bytes of a plane: codes that come without padding get zeros, codes of 4 and 6 bits that take a byte each are packed."""
    data = array.tobytes()
    if len(data) == plane.bytes:
        return data
    (rows, cols), (all_rows, all_cols) = plane.logical, plane.padded
    width = {"f32": 4, "u32": 4, "bf16": 2, "f16": 2}.get(plane.encoding, 1)
    if plane.packed and len(data) == all_rows * all_cols:
        return bytes_of_codes(data, plane.code_bits)
    if plane.packed and len(data) == rows * cols:
        padded = b"".join(data[r * cols:(r + 1) * cols] + bytes(all_cols - cols) for r in range(rows)) + bytes((all_rows - rows) * all_cols)
        return bytes_of_codes(padded, plane.code_bits)
    if not plane.packed and not plane.members and len(data) == rows * cols * width:
        wide, spare = cols * width, (all_cols - cols) * width
        return b"".join(data[r * wide:(r + 1) * wide] + bytes(spare) for r in range(rows)) + bytes((all_rows - rows) * all_cols * width)
    raise PlaneError(f"expected {plane.encoding} of {list(plane.logical)}, or {list(plane.padded)} with its padding, found {array.name} of {list(array.shape)}", plane.name)


def answer(served: Served, question: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The answer to one question, and the bytes behind it."""
    try:
        served.supports(question["line"])
        if question["ask"] == "supports":
            return {"status": "ok"}, []
        made = served.run(question["line"], data)
        return {"status": "ok"}, [made[p["name"]] for p in question["outputs"]]
    except (Refused, NotImplementedError) as error:
        return {"status": "unsupported", "why": str(error) or "NotImplementedError"}, []
    except Exception as error:   # whatever a user's kernel raises costs its case alone
        return {"status": "raised", "why": raised_text(error)}, []


def serve(served: Served, questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answers until there is no question left."""
    while text := questions.readline():
        question = json.loads(text)
        data = b"".join(questions.read(p["bytes"]) for p in question.get("inputs", ()))
        said, planes = answer(served, question, data)
        answers.write(json.dumps(said).encode() + b"\n")
        for plane in planes:
            answers.write(plane)
        answers.flush()


def main() -> None:
    """Of the interpreter. What the function prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    name, spec = sys.argv[1:3]
    try:
        served = Served(function_of(name), spec)
    except AssayError as error:
        answers.write(json.dumps({"status": "absent", "why": str(error)}).encode() + b"\n")
        answers.flush()
        return
    answers.write(b'{"status": "ok"}\n')
    answers.flush()
    serve(served, sys.stdin.buffer, answers)
