"""The pytest plugin: failures of assert_quantized with their cause, and with packs to send on.

    pytest --assay-explain=first --assay-dump=packs

    @pytest.mark.assay("mxfp8 dir=both")
    def test_kernel(assay_oracle):
        assay_oracle.assert_quantized(x, kernel(x))       # under the marker's spec
"""
from __future__ import annotations

import functools
import pathlib
from typing import Any, Iterator, Sequence

import pytest

from . import _settings

_session = pytest.StashKey[list[int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "Assay, the oracle for low-precision tensors")
    group.addoption("--assay-explain", choices=["never", "first", "all"], default="all",
                    help="which failures of assert_quantized are searched for their cause, a few seconds each (default: all)")
    group.addoption("--assay-dump", metavar="DIR", default=None, help="write each failed case of assert_quantized as a pack into this folder")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "assay(spec): the format and keys under which the fixture assay_oracle judges, such as 'mxfp8 dir=both'")
    config.stash[_session] = [0]


class Oracle:
    """assay's functions under the spec of the test's marker; each call may name another."""

    def __init__(self, spec: str | None):
        self.spec = spec

    def __getattr__(self, name: str) -> Any:
        import assay
        function = getattr(assay, name)
        if name not in ("check", "assert_quantized", "explain", "identify"):
            return functools.partial(function, spec=self.spec) if name == "quantize" and self.spec else function

        @functools.wraps(function)
        def judged(x: Any, outputs: Any, spec: str | None = None, **keys: Any) -> Any:
            __tracebackhide__ = True
            return function(x, outputs, spec if spec is not None else self.spec, **keys)
        return judged


@pytest.fixture
def assay_oracle(request: pytest.FixtureRequest) -> Oracle:
    """The oracle: assay's quantize, check, assert_quantized, explain and the others, under the spec of the marker `assay`."""
    marker = request.node.get_closest_marker("assay")
    return Oracle(marker.args[0] if marker and marker.args else None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    config = item.config
    folder = config.getoption("--assay-dump")
    settings = _settings.TestSettings(config.getoption("--assay-explain"), pathlib.Path(folder) if folder else None, item.nodeid, config.stash[_session])
    token = _settings.current.set(settings)
    try:
        return (yield)
    finally:
        _settings.current.reset(token)
        for path in settings.packs:   # in the report, and as a property in JUnit's
            item.user_properties.append(("assay_pack", path))
            item.add_report_section("call", "assay", f"pack: {path}\nassay explain {path}\n")


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: Any, right: Any) -> Sequence[str] | None:
    """`assert assay.check(...) == True` and its like: the screen instead of the object's fields."""
    from ._verdict import Diagnosis, Verdict
    for side in (left, right):
        if isinstance(side, (Verdict, Diagnosis)):
            return [f"the verdict is {bool(side)}", *str(side).splitlines()]
    return None
