"""What the dumper makes of arrays that hold no bytes, other bytes than they show, or bytes that NumPy does not know: the right ones, or a plain error."""
import warnings

import numpy as np
import pytest

from assay._dump_arrays import Array, bits
from assay.pack import Pack, PackError
from conftest import OnlyDlpack

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")


def refused(message, value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(PackError, match=message):
            Array(value, "row.data")


class View:
    """A tensor of PyTorch as far as its storage is asked for: float32 [4, 8] with strides, over `held` bytes."""

    dtype, shape = "torch.float32", (4, 8)

    def __init__(self, held, offset=0, strides=(8, 1), shape=(4, 8)):
        self.held, self.offset, self.strides, self.shape = held, offset, strides, shape

    def untyped_storage(self):
        return type("Storage", (), {"nbytes": lambda s: self.held})()

    def storage_offset(self):
        return self.offset

    def stride(self):
        return self.strides

    def element_size(self):
        return 4

    def detach(self):
        raise RuntimeError("read")   # what comes next


@pytest.mark.parametrize("view, needed", [(View(0), 128), (View(127), 128), (View(128, offset=1), 132), (View(128, strides=(1, 4), shape=(4, 9)), 144), (View(131, strides=(10, 1)), 152)])
def test_a_freed_buffer_is_refused(view, needed):
    refused(f"row.data: expected the {needed} bytes that this tensor is a view of, found a storage of {view.held}: the buffer was freed", view)


@pytest.mark.parametrize("view", [View(128), View(132, offset=1), View(0, shape=(0, 8)), View(0, offset=9, shape=(0, 8)), View(4, strides=(0, 0))])
def test_a_buffer_that_is_there_is_read(view):
    refused("found a View: read", view)


@needs_torch
def test_a_freed_tensor_of_torch_is_refused():
    made = lambda: {"x": torch.randn(64, 96).bfloat16(), "row.scale_inv": torch.zeros(64, 3, dtype=torch.uint8), "row.data": torch.zeros(64, 96, dtype=torch.uint8)}
    for plane in made():
        planes = made()
        held = planes[plane].untyped_storage()
        size = held.nbytes()
        held.resize_(0)
        with pytest.raises(PackError, match=f"{plane}: expected the {size} bytes .* found a storage of 0: the buffer was freed; dump before"):
            Pack().add_planes("quantize mxfp8 64x96 bf16 dir=row", planes, module="m")
    part = torch.arange(32, dtype=torch.uint8).reshape(4, 8)[1:3, ::2]
    assert Array(part, "x").data == bytes([8, 10, 12, 14, 16, 18, 20, 22])
    Pack().add_planes("quantize mxfp8 64x96 bf16 dir=row", made(), module="m")


@pytest.mark.parametrize("dtype", ["f4", "f2", "u2", "u4", "i4"])
def test_big_endian_arrays_are_dumped_little_endian(dtype):
    a = np.arange(6).reshape(2, 3)
    assert Array(a.astype(">" + dtype), "x").data == a.astype("<" + dtype).tobytes() == Array(a.astype("<" + dtype), "x").data
    assert Array(a.astype(">" + dtype).T, "x").data == np.ascontiguousarray(a.T).astype("<" + dtype).tobytes()


def test_numbers_that_binary32_does_not_hold_are_refused():
    for value in (1e300, -1e300, 3.5e38, 10**400, 10**39, 1e-60):
        refused("expected a number that binary32 holds, found -?[0-9.e+-]+, which becomes", value)
    assert Array(float("inf"), "x").data == np.float32(np.inf).tobytes() and Array(0.1, "x").data == np.float32(0.1).tobytes() and Array(-0.0, "x").data == np.float32(-0.0).tobytes()
    assert bits(0.1) == "0x3DCCCCCD"
    with pytest.raises(PackError, match="expected a number that binary32 holds, found 1e\\+300"):
        bits(1e300)


def test_an_integer_is_the_code_of_a_plane_of_codes():
    line, planes = "quantize mxfp8 1x32 bf16 dir=row", {"row.data": np.zeros(32, np.uint8)}
    pack = Pack()
    name = pack.add_planes(line, {**planes, "row.scale_inv": 127}, module="m")
    assert pack.tensors[f"{name}/row.scale_inv"].data == b"\x7f" and pack.tensors[f"{name}/row.scale_inv"].dtype == "U8"
    for value in (256, -1, 1.0, 1.5):
        with pytest.raises(PackError, match=f"row.scale_inv: expected an array of e8m0, or an integer from 0 to 255, its code, found the number {value}"):
            Pack().add_planes(line, {**planes, "row.scale_inv": value}, module="m")
    with pytest.raises(PackError, match="x: expected an array of bf16, found the number 1"):
        Pack().add_planes("quantize mxfp8 1x1 bf16 dir=row", {"x": 1, "row.data": np.zeros(1, np.uint8)}, module="m")
    pack = Pack()
    name = pack.add_planes("quantize fp8_current 1x1 f32 dir=row", {"row.amax": 3, "row.data": 5}, module="m")
    assert pack.tensors[f"{name}/row.amax"].data == np.float32(3).tobytes() and pack.tensors[f"{name}/row.data"].data == b"\x05"


@needs_torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "uint8"])
def test_dlpack_alone_is_read(dtype):
    t = torch.arange(8, dtype=torch.uint8).view(getattr(torch, dtype))
    array = Array(OnlyDlpack(t), "x")
    assert array.name == dtype and array.data == bytes(range(8))


def test_what_gives_no_bytes_says_so():
    class Raises:
        dtype = np.dtype("uint8")

        def __array__(self, *a, **k):
            raise RuntimeError("no such device\nsecond line")

    class BadDlpack:
        def __dlpack__(self, **k):
            raise BufferError("on a device")

        def __dlpack_device__(self):
            return 1, 0

    refused("row.data: expected an array whose bytes can be read here, found a Raises: no such device;", Raises())
    refused("row.data: neither PyTorch nor NumPy takes this BadDlpack by DLPack", BadDlpack())
    refused("found a list: ", [[1.0], [1.0, 2.0]])
    refused("found int64; convert it first", [1, 2])
    refused("found object|found a ", np.array([None, 1], object))


@needs_torch
def test_tensors_of_torch_that_hold_nothing_or_lie_elsewhere():
    refused("expected a dense tensor, found a nested one; pass its parts, x.unbind.., or x.to_padded_tensor", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    refused("expected a dense tensor, found a nested one", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged))
    refused("expected a dense tensor, found a sparse one", torch.eye(3).to_sparse())
    refused("on meta, which has none", torch.ones(3, device="meta"))
    negated = torch.tensor([1 + 2j, 3 + 4j], dtype=torch.complex64).conj().imag
    assert negated.is_neg() and Array(negated, "x").data == np.array([-2, -4], np.float32).tobytes()
    assert Array(torch.ones(2, requires_grad=True), "x").data == np.ones(2, np.float32).tobytes()
    seen = []
    torch.func.vmap(lambda a: (seen.append(_error(a)), a)[1])(torch.ones(2, 3))
    assert isinstance(seen[0], PackError)


def _error(value):
    try:
        return Array(value, "x")
    except Exception as error:
        return error


def test_jax_traces_and_deleted_arrays():
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(4, dtype=jax.numpy.uint8)
    seen = []
    jax.jit(lambda a: (seen.append(_error(a)), a)[1])(x)
    jax.grad(lambda a: (seen.append(_error(a)), a.sum())[1])(jax.numpy.ones(2))
    jax.vmap(lambda a: (seen.append(_error(a)), a)[1])(x)
    for error in seen:
        assert isinstance(error, PackError) and "of a trace, which has none; dump outside of jax.jit" in str(error), error
    assert len(seen) == 3 and Array(x, "x").data == bytes(range(4))
    assert Array(x.astype("bfloat16"), "x").dtype == "BF16"
    x.delete()
    refused("found a deleted ArrayImpl: the buffer was freed, or donated", x)
