"""What the tests of the package share."""
import pathlib

import numpy   # noqa: F401   before pytester, which forgets the modules that its sessions loaded: NumPy cannot be loaded twice in a process
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
collect_ignore = ["test_assay_pack.py"]   # a program of its own (ci/test), with stand-ins for torch
pytest_plugins = ["pytester"]


class OnlyDlpack:
    """An array that has nothing but the protocol."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **keys):
        return self.a.__dlpack__(**keys)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


@pytest.fixture
def x():
    import assay
    return assay.fill((64, 256), "normal", 3)
