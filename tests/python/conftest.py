"""What the tests of the package share."""
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
collect_ignore = ["test_assay_pack.py"]   # a program of its own (ci/test), with stand-ins for torch
pytest_plugins = ["pytester"]


@pytest.fixture
def x():
    import assay
    return assay.fill((64, 256), "normal", 3)
