"""A Python function as a subject: judged on suites, explained, and its failing cases made smaller.

    def quantize(x):                      # PyTorch, Triton, JAX or NumPy
        return codes, scales              # or {"row.data": codes, "row.scale_inv": scales}

    subject = assay.Subject.from_callable(quantize, "mxfp8")
    report = subject.run("smoke")
    print(report)

The function runs in a spawned interpreter, which is started again after a crash or a timeout: each costs one case.
"""
from __future__ import annotations

import importlib
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from dataclasses import dataclass, field
from typing import IO, Any, Callable, Iterable, Mapping

from ._arrays import Array
from ._errors import AssayError, LineError, NotJudged
from ._judge import check, explain
from ._lines import Words, line, line_text, words_of
from ._ops import fill
from ._serve_program import Served, raised_text
from ._suites import suite
from ._verdict import Diagnosis, Verdict

Function = Callable[..., Any]
_MOST_CASES = 200    # of a shrink
_START_S = 120.0     # that an interpreter may take to import the function: its module may import PyTorch


@dataclass
class Result:
    """One line on the function: passed, failed, crashed, timeout, raised, or unsupported (with the reason)."""

    line: str
    outcome: str
    reason: str = ""
    verdict: Verdict | None = None

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.outcome == "passed"

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return str(self.verdict) if self.verdict is not None and self.outcome == "failed" else f"{self.outcome}  {self.line}  {self.reason}".rstrip()


@dataclass(repr=False)
class Report:
    """The results of a run, in the order of its lines. True where something passed and nothing is red."""

    results: list[Result] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something passed and nothing is red."""
        return not self.failed and self.counts[0] > 0

    @property
    def failed(self) -> list[Result]:
        """The results that are neither passed nor unsupported."""
        return [r for r in self.results if r.outcome not in ("passed", "unsupported")]

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many passed, failed and were not judged."""
        passed = sum(r.outcome == "passed" for r in self.results)
        return passed, len(self.failed), len(self.results) - passed - len(self.failed)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return "<Report {} passed, {} failed, {} skipped>".format(*self.counts)

    def __str__(self) -> str:
        shown = [str(r) for r in self.failed[:3]]
        if len(self.failed) > 3:
            shown.append(f"... and {len(self.failed) - 3} more")
        return "\n\n".join([*shown, "{} passed, {} failed, {} skipped".format(*self.counts)])


def _sent(function: Function) -> bytes:
    """What makes the function in another interpreter: its name, or cloudpickle's bytes."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module not in (None, "__main__") and "<" not in name:
        try:
            found: Any = importlib.import_module(str(module))
            for part in name.split("."):
                found = getattr(found, part)
            if found is function:
                return pickle.dumps(("name", module, name, sys.path))
        except (ImportError, AttributeError):
            pass
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise AssayError(f"expected a function that can be imported by its name, found {module}.{name}; put it into a module, install cloudpickle, "
                         "or pass isolate=False") from None
    try:
        return pickle.dumps(("bytes", cloudpickle.dumps(function), "", sys.path))
    except Exception as error:
        raise AssayError(f"expected a function that cloudpickle can send to another interpreter, found {error}; pass isolate=False") from error


def _call(served: Served, text: str, out: str) -> tuple[str, Any]:
    """(ok, planes) or (raised, text)."""
    try:
        return "ok", {n: (a.word, a.shape, a.name, a.tobytes()) for n, a in served.made(line(text), fill(text, out=out)).items()}
    except NotImplementedError as error:
        return "unsupported", str(error) or "NotImplementedError"
    except Exception as error:   # whatever a user's kernel raises costs its case alone
        return "raised", raised_text(error)


def _write(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    size = pipe.read(8)
    return pickle.loads(pipe.read(struct.unpack("<Q", size)[0])) if len(size) == 8 else None


class _Worker:
    """A spawned interpreter that runs the function on lines."""

    def __init__(self, sent: bytes, out: str):
        self.process = subprocess.Popen([sys.executable, "-c", "from assay._subject import serve; serve()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.errors: list[bytes] = []
        self.reader = threading.Thread(target=self._keep_errors, daemon=True)
        self.reader.start()
        self.ready = False
        self._send((pickle.dumps(sys.path), sent, out))

    def _send(self, value: Any) -> None:
        assert self.process.stdin is not None
        try:
            _write(self.process.stdin, value)
        except BrokenPipeError:
            pass   # it has ended: ask() says how

    def _keep_errors(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.errors = [*self.errors[-20:], text]

    def _answer(self, timeout: float) -> tuple[Any, bool]:
        """What it says next, None where it ended; and whether the time was over."""
        assert self.process.stdout is not None
        late = threading.Timer(timeout, self.process.kill)
        late.start()
        answer = _read(self.process.stdout)
        expired = not late.is_alive()
        late.cancel()
        return answer, expired

    def ask(self, text: str, timeout: float) -> tuple[str, Any]:
        self._send(text)
        answer, expired = None, False
        if not self.ready:
            start = max(timeout, _START_S)
            said, expired = self._answer(start)
            self.ready = said is not None
            timeout = timeout if self.ready else start
        if self.ready:   # the time of a case begins here
            answer, expired = self._answer(timeout)
        if answer is not None:
            return answer  # type: ignore[no-any-return]
        status = self.process.wait()
        self.reader.join(1)
        if expired:
            return "timeout", f"no answer within {timeout:g} s"
        last = b"".join(self.errors).decode(errors="replace").strip().splitlines()
        return "crashed", f"the interpreter ended with {f'signal {-status}' if status < 0 else f'exit {status}'}" + (f": {last[-1]}" if last else "")

    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join(1)
        # A child of the function may still have the standard error: then the reader waits for it, and to close what it reads would wait too.
        for pipe in (self.process.stdin, self.process.stdout, None if self.reader.is_alive() else self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


def serve() -> None:
    """The loop of a spawned interpreter. What the function prints goes to standard error."""
    answers, questions = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    path, sent, out = _read(questions)
    sys.path[:] = pickle.loads(path)
    kind, first, name, _ = pickle.loads(sent)
    if kind == "name":
        function: Any = importlib.import_module(first)
        for part in name.split("."):
            function = getattr(function, part)
    else:
        function = pickle.loads(first)
    served = Served(function, "")
    _write(answers, "ready")
    while (text := _read(questions)) is not None:
        _write(answers, _call(served, text, out))


class Subject:
    """A quantizer of the user's, judged as the program judges its subjects. Close it, or use it in a `with`."""

    _worker: _Worker | None = None
    _at_exit: Callable[[], Any] | None = None   # ends the worker with this object, or with the interpreter while its threads still run

    def __init__(self, function: Function, spec: str, out: str, isolate: bool, timeout: float):
        self.function, self.spec, self.out, self.isolate, self.timeout = function, spec, out, isolate, timeout
        self._sent = _sent(function) if isolate else b""

    @staticmethod
    def from_callable(function: Function, spec: str = "mxfp8", *, out: str = "like", isolate: bool = True, timeout: float = 60.0) -> Subject:
        """function(x) returns (codes, scales), a mapping of planes, or what quantize returns; a NotImplementedError says that it does not run a shape.

        spec     what it promises: a format and keys
        out      the library of x: numpy, torch or jax (default: PyTorch where it is imported here, else NumPy)
        isolate  False: in this process, where a crash is the end; timeout: seconds for one call, beside the start of its interpreter
        """
        if not callable(function):
            raise AssayError(f"expected a function, found {type(function).__name__}")
        own = words_of(spec)
        if own.op not in (None, "quantize"):
            raise LineError(f"expected a spec of quantize, found {own.op}", 1, f"the program judges a function of other ops: assay run '{own.op} ...' --python module:function")
        line(line_text("quantize", _sizeless(own), (128, 128), own.source or "bf16", {}))
        chosen = ("torch" if "torch" in sys.modules else "numpy") if out == "like" else out
        return Subject(function, spec, chosen, isolate, timeout)

    def _asked(self, text: str) -> tuple[str, Any]:
        if not self.isolate:
            return _call(Served(self.function, ""), text, self.out)
        if self._worker is None or not self._worker.alive():
            self.close()
            self._worker = _Worker(self._sent, self.out)
            self._at_exit = weakref.finalize(self, self._worker.close)
        answer = self._worker.ask(text, self.timeout)
        if answer[0] in ("timeout", "crashed"):
            self.close()
        return answer

    def _outputs(self, planes: Mapping[str, tuple[str, tuple[int, ...], str, bytes]]) -> Any:
        return {n: Array(word, tuple(shape), data, "numpy", name) for n, (word, shape, name, data) in planes.items()}

    def line_of(self, text: str) -> str:
        """The tensor of a line (its text) under the subject's own spec: sizes, source and fill of the line, format and keys of the spec."""
        words, own = words_of(text), words_of(self.spec)
        drawn = {k: v for k, v in words_of(line(text).canonical).keys.items() if k in ("fill", "seed", "at")}
        keys = {**own.keys, **drawn}
        return " ".join(["quantize", *own.format, words.sizes, words.source or "bf16", *(f"{k}={v}" for k, v in keys.items())])

    def check(self, text: str) -> Result:
        """One line (its text): its x goes through the function, and the planes that come out are judged. Raises LineError."""
        line(text)
        status, planes = self._asked(text)
        if status != "ok":
            return Result(text, status, planes)
        try:
            verdict = check(fill(text), self._outputs(planes), text)
        except NotJudged:
            raise
        except AssayError as error:
            return Result(text, "failed", str(error))
        return Result(text, "passed" if verdict.ok else "failed", "" if verdict.ok else verdict.summary(), verdict)

    def run(self, what: str | Iterable[str] = "smoke", *, most: int | None = None) -> Report:
        """Runs `what`: a suite by name, or lines: those of quantize in the subject's format, each tensor once, under the subject's spec; at most `most` of them.

        Raises AssayError where no line is left, LineError.
        """
        lines = suite(what) if isinstance(what, str) and " " not in what else [what] if isinstance(what, str) else list(what)
        own, texts = words_of(self.spec).format, []
        for text in lines:
            words = words_of(text)
            if words.op == "quantize" and words.format == own:
                texts.append(self.line_of(text))
        texts = list(dict.fromkeys(texts))[:most]
        if not texts:
            raise LineError(f"expected lines of quantize in the format {' '.join(own)}, found none among {len(lines)}")
        return Report([self.check(text) for text in texts])

    def explain(self, text: str, **settings: Any) -> Diagnosis:
        """The cause of what differs on one line (its text); settings as of assay.explain. Raises AssayError where the function gave no planes."""
        status, planes = self._asked(text)
        if status != "ok":
            raise AssayError(f"expected planes of '{text}', found: {status}: {planes}")
        return explain(fill(text), self._outputs(planes), text, **settings)

    def shrink(self, text: str) -> Result:
        """A smaller line that ends as this one does: fewer rows and columns, windows of the same tensor.

        text is the line. Raises AssayError where it does not fail.
        """
        best = self.check(text)
        if best or best.outcome == "unsupported":
            raise AssayError(f"expected a line that fails, found {best.outcome}: '{text}'")
        for _ in range(_MOST_CASES):
            found = next((r for r in map(self.check, _smaller(best.line)) if r.outcome == best.outcome), None)
            if found is None:
                break
            best = found
        return best

    def hunt(self, minutes: float = 1.0, *, to: Any = None) -> Report:
        """Draws lines and judges them for so many minutes, as `assay hunt` does (docs/hunt.md). The results are one line for each cause that was found, made
        small, with the cause as its reason; and those of earlier hunts in the same folder that still fail.

        to  the folder that keeps what is found, and in which a second hunt goes on (default: none is left)

        The program calls the function by its name: raises AssayError for one that cannot be imported.
        """
        kind, module, name, _ = pickle.loads(self._sent or _sent(self.function))
        program = pathlib.Path(__file__).resolve().parent / "bin/assay"
        if kind != "name" or not program.is_file():
            raise AssayError(f"expected a function that can be imported by its name, found {name or self.function!r}; put it into a module" if kind != "name" else
                             f"expected the program at {program}, found none; install the package again: python3 -m pip install .")
        with tempfile.TemporaryDirectory() as spare:
            folder, records = pathlib.Path(to or spare), pathlib.Path(spare) / "records.jsonl"
            command = [str(program), "hunt", "--python", f"{module}:{name}", "--python-spec", self.spec, "--minutes", str(minutes), "--to", str(folder), "--jsonl", str(records)]
            env = {**os.environ, "ASSAY_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            if done.returncode not in (0, 1):
                raise AssayError(f"expected a hunt, found exit {done.returncode}: {(done.stderr or done.stdout).strip()}")
            all_runs, this_run = ([json.loads(text) for text in file.read_text().splitlines()] for file in (folder / "hunt.jsonl", records))
        headlines = {f["line"]: f["headline"] for f in all_runs if f.get("record") == "finding"}
        red = [r["line"] for r in this_run if r.get("record") == "finding" or r.get("outcome") == "still fails"]
        return Report([Result(line, "failed", headlines.get(line, "a line of found.cases")) for line in dict.fromkeys(red)])

    def close(self) -> None:
        """Ends the interpreter in which the function runs. Twice does no harm."""
        if self._at_exit is not None:
            self._at_exit()
            self._worker = self._at_exit = None

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _sizeless(words: Words) -> str:
    return " ".join([*words.format, *(f"{k}={v}" for k, v in words.keys.items())])


def _smaller(text: str) -> list[str]:
    """The halves of a line's tensor, as windows, and one row or column less."""
    words = words_of(text)
    rows, cols = words.shape or (0, 0)
    at = tuple(int(n) for n in words.keys.get("at", "0,0").split(","))
    out = []
    for size, axis in ((rows, 0), (cols, 1)):
        for keep in dict.fromkeys((size // 2, size - size // 2, size - 1)):
            for start in (0, size - keep):
                if 0 < keep < size:
                    shape, origin = [rows, cols], list(at)
                    shape[axis], origin[axis] = keep, origin[axis] + start
                    keys = {**words.keys, "at": f"{origin[0]},{origin[1]}"}
                    out.append(" ".join(["quantize", *words.format, f"{shape[0]}x{shape[1]}", words.source or "bf16", *(f"{k}={v}" for k, v in keys.items())]))
    return list(dict.fromkeys(out))
