"""What the package raises. Every message says what was expected, what was found, where, and what to do."""
from __future__ import annotations

from typing import Any, Mapping


class AssayError(ValueError):
    """The base of all errors of this package."""

    def __reduce__(self) -> tuple[Any, ...]:   # a task of another process raises it here
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[AssayError], args: tuple[Any, ...], facts: Mapping[str, Any]) -> AssayError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class LineError(AssayError):
    """A line, or the `spec` that it is made from, that cannot be read or does not fit x.

    column      where in the line, counted from 1; 0 where there is no place
    suggestion  the nearest valid word, or what to write instead; may be empty
    """

    def __init__(self, message: str, column: int = 0, suggestion: str = ""):
        super().__init__(message + (f" ({suggestion})" if suggestion else ""))
        self.column, self.suggestion = column, suggestion


def _said(message: str) -> tuple[str, str]:
    """What a message says that was expected, and what was found: "expected X, found Y; do Z" or "tensor T is Y, expected X"."""
    before, _, expected = message.partition("expected ")
    expected, _, found = expected.partition(", found ")
    if not found:
        found = before.rstrip(", ").partition(" is ")[2]
    return expected.partition(" (")[0].partition(";")[0], found.partition(" (")[0].partition(";")[0]


class PlaneError(AssayError):
    """An array that is not what its plane needs: absent, of another size, dtype or place."""

    def __init__(self, message: str, plane: str = "", expected: str = "", found: str = ""):
        super().__init__(f"{plane}: {message}" if plane and not message.startswith(plane) else message)
        said = _said(message)
        self.plane, self.expected, self.found = plane, expected or said[0], found or said[1]


class NoSuchPlane(PlaneError, KeyError):
    """A name that none of these planes has: also a KeyError, as of any mapping."""

    __str__ = ValueError.__str__   # a KeyError puts its text in quotes


class UnsupportedEncoding(AssayError, TypeError):
    """An array of a dtype that no line has, or not at this place."""

    def __init__(self, what: str, expected: str, found: str, hint: str = ""):
        super().__init__(f"{what}: encoding not judged: expected {expected}, found {found}" + (f"; {hint}" if hint else ""))
        self.plane, self.expected, self.found, self.hint = what, expected, found, hint


class NotJudged(AssayError):
    """Bytes that cannot be judged without something that was not given; `needs` names the argument."""

    def __init__(self, message: str, needs: str):
        super().__init__(message)
        self.needs = needs


class PackError(AssayError):
    """What was expected, what was found, where, and what to pass."""


def raise_answer(error: Mapping[str, Any]) -> None:
    """Raises what the library answered: {"kind", "message", "column", "hint", "plane"}."""
    message, hint, plane = error["message"], error["hint"], error["plane"]
    if error["kind"] == "line":
        raise LineError(message, int(error["column"]), hint)
    text = message + (f" ({hint})" if hint else "")
    if error["kind"] == "plane":
        raise PlaneError(text, plane)
    raise AssayError(text)
