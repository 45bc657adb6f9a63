"""A plugin of pytest for ci/python: a test that passed is written down at once, and is not run again while nothing changes on which it depends.

    python -m pytest -p passed_before --passed-before=FILE --passed-key=TEXT --passed-count=FILE [--reports=DIR]

--passed-before  digests of the tests that passed (remembered.py)
--passed-key     everything on which the tests depend, as a digest
--passed-count   how many tests were left out because they had passed
--reports        where sanitizers write: a test during which a report came has not passed, whatever it says itself
"""
import pathlib

import pytest

from remembered import Remembered, digest


def pytest_addoption(parser):
    for name in ("before", "key", "count"):
        parser.addoption(f"--passed-{name}")
    parser.addoption("--reports")


def pytest_configure(config):
    if config.getoption("--passed-before"):
        config.pluginmanager.register(Memory(config.getoption), "passed-before")


class Memory:
    def __init__(self, option):
        self.known = Remembered(pathlib.Path(option("--passed-before")))
        self.key, self.count = option("--passed-key"), pathlib.Path(option("--passed-count"))
        self.folder = pathlib.Path(option("--reports")) if option("--reports") else None
        self.reports, self.outcomes = set(), []

    def digest(self, nodeid):
        file, _, test = nodeid.partition("::")   # the file as seen from the current folder
        return digest(self.key, pathlib.Path(file).name, test)

    @pytest.hookimpl(trylast=True)   # after -k
    def pytest_collection_modifyitems(self, config, items):
        before = [item for item in items if self.digest(item.nodeid) in self.known]
        self.count.write_text(str(len(before)))
        config.hook.pytest_deselected(items=before)
        items[:] = [item for item in items if item not in before]

    def written(self):
        return set(self.folder.iterdir()) if self.folder else set()

    def pytest_runtest_logstart(self):
        self.reports, self.outcomes = self.written(), []

    def pytest_runtest_logreport(self, report):
        self.outcomes.append(report.outcome)

    def pytest_runtest_logfinish(self, nodeid):
        if self.outcomes == ["passed"] * 3 and self.written() == self.reports:
            self.known.add(self.digest(nodeid))
