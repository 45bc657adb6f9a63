"""PyTorch on the CPU; skipped where it is not installed."""
import subprocess
import sys

import numpy as np
import pytest

import assay

torch = pytest.importorskip("torch")


def bits(t):
    return bytes(t.contiguous().view(-1).view(torch.uint8).numpy())


@pytest.fixture
def t(x):
    return torch.tensor(x.astype(np.float32)).to(torch.bfloat16)


@pytest.mark.parametrize("spec", ["mxfp8", "mxfp8 element=e5m2 scales=gemm", "nvfp4", "mxfp4", "fp8_current", "fp8_block", "identity"])
def test_same_bytes_as_numpy(spec, x, t):
    ours, theirs = assay.quantize(t, spec, dir="both"), assay.quantize(x, spec, dir="both")
    assert all(isinstance(a, torch.Tensor) for a in ours.values())
    assert {n: bits(a) for n, a in ours.items()} == {n: bytes(np.asarray(a).reshape(-1).view(np.uint8)) for n, a in theirs.items()}
    assert assay.check(t, ours) and ours.copied_bytes == 0 and assay.check(t, ours).copied_bytes == 0


def test_dtypes(t):
    q = assay.quantize(t, "mxfp8")
    assert q["row.data"].dtype == torch.float8_e4m3fn and q["row.scale_inv"].dtype == torch.float8_e8m0fnu
    assert assay.quantize(t, "nvfp4")["row.data"].dtype == torch.uint8
    assert isinstance(assay.quantize(t, out="numpy")["row.data"], np.ndarray)
    assert q.dequantize("bf16").dtype == torch.bfloat16
    if hasattr(torch, "float4_e2m1fn_x2"):
        n = assay.quantize(t, "nvfp4")
        assert assay.check(t, {**n, "row.data": n["row.data"].view(torch.float4_e2m1fn_x2)}, "nvfp4")


def test_forms_of_tensors(t):
    want = bits(assay.quantize(t)["row.data"])
    for form in (t.clone().requires_grad_(), torch.nn.Parameter(t.clone()), t.reshape(2, 32, 256), t.t().contiguous().t(), t.neg().neg()):
        assert bits(assay.quantize(form)["row.data"]) == want
    assert assay.quantize(t.t().contiguous().t()).copied_bytes == t.numel() * 2
    with pytest.raises(BufferError):
        assay.quantize(t.t().contiguous().t(), copy=False)
    with pytest.raises(assay.PlaneError, match="meta or fake"):
        assay.quantize(t.to("meta"))
    with pytest.raises(assay.PlaneError, match="layout"):
        assay.quantize(t.to_sparse())
    with pytest.raises(assay.UnsupportedEncoding, match="float64"):
        assay.quantize(t.double())


def test_a_tensor_that_was_judged_can_be_resized(t):
    """FSDP frees a parameter by resizing its storage, which PyTorch refuses once the memory is also a NumPy array's."""
    q = assay.quantize(t)
    assert assay.check(t, q)
    for tensor in (t, q["row.data"]):
        tensor.untyped_storage().resize_(0)
        assert tensor.untyped_storage().size() == 0


@pytest.fixture
def the_general_way(monkeypatch):
    """The lines that went the general way, in the order of the calls."""
    from assay import _ops
    lines, computed = [], _ops.computed
    monkeypatch.setattr(_ops, "computed", lambda text, *given, **settings: lines.append(text) or computed(text, *given, **settings))
    return lines


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("spec", ["mxfp8", "mxfp8 element=e5m2", "mxfp4", "fp8_current", "fp8_block", "nvfp4"])
def test_plain_tensors_are_quantized_at_once(spec, dtype, x, the_general_way):
    for shape in ((64, 256), (2, 32, 256), (3, 65), (7,)):
        plain = torch.tensor(x.astype(np.float32)).flatten()[:np.prod(shape)].reshape(shape).to(dtype)
        for direction in ("row", "both"):
            for threads in (0, 1, 3):
                q = assay.quantize(plain, spec, dir=direction, threads=threads)
                exact = assay.quantize(plain, spec, dir=direction, exact=True)
                assert q == exact and q.line == exact.line and {n: (a.shape, a.dtype) for n, a in q.items()} == {n: (a.shape, a.dtype) for n, a in exact.items()}
                assert len(the_general_way) == (1 if q.made_by.startswith("simd ") else 2)
                the_general_way.clear()
        cast = assay.cast(plain, "e5m2")
        assert cast.shape == plain.shape and bits(cast) == bits(assay.cast(plain, "e5m2", exact=True))
        the_general_way.clear()


def test_what_is_not_plain_goes_the_general_way(t, the_general_way):
    shifted = torch.frombuffer(bytearray(2 * 8 * 32 + 1), dtype=torch.bfloat16, offset=1).reshape(8, 32)
    negative = torch._neg_view(torch.ones(8, 32))   # as the imaginary part of a conjugated tensor is
    calls = [lambda: assay.quantize(shifted), lambda: assay.quantize(negative), lambda: assay.quantize(t.t()), lambda: assay.quantize(t[:, ::2]),
             lambda: assay.quantize(t[:0]), lambda: assay.quantize(t, out="numpy"), lambda: assay.quantize(t, exact=True), lambda: assay.quantize(t, unpacked=True),
             lambda: assay.quantize(t, "mxfp6"), lambda: assay.quantize(t, element="e5m2"), lambda: assay.cast(t, "e4m3", round="rz"),
             lambda: assay.quantize(t.view(torch.int16), x_dtype="bf16"), lambda: assay.quantize(t, "fp8_current amax=3"), lambda: assay.quantize(t, "fp8_delayed scale=0.5"),
             lambda: assay.quantize(t, "mxfp8 dir=col")]
    for number, call in enumerate(calls[:-1]):
        call()
        assert len(the_general_way) == number + 1
    the_general_way.clear()
    assert sorted(calls[-1]()) == ["col.data", "col.scale_inv"] and not the_general_way   # a direction of the spec's own is nothing special
    assert bits(assay.quantize(negative)["row.data"]) == bits(assay.quantize(-torch.ones(8, 32))["row.data"])
    for mistake in (dict(spec="mxfp9"), dict(spec=8), dict(dir="up"), dict(threads=-1), dict(out="list")):
        with pytest.raises(assay.AssayError):
            assay.quantize(t, **mistake)


class Diverted(torch.overrides.TorchFunctionMode):
    """A mode under which torch.empty makes something else, as modes of PyTorch and of its users do."""

    def __init__(self, *sizes, **settings):
        super().__init__()
        self.sizes, self.settings = sizes, settings

    def __torch_function__(self, function, types, arguments=(), settings=None):
        changed = function is torch.empty
        return function(*(self.sizes or arguments if changed else arguments), **{**(settings or {}), **(self.settings if changed else {})})


@pytest.mark.parametrize("call", [assay.quantize, assay.cast])
def test_planes_are_not_written_where_there_is_no_room(t, call):
    from torch._subclasses.fake_tensor import FakeTensorMode
    call(t)
    with Diverted(device="meta"), pytest.raises(BufferError, match="lie in the CPU's memory"):
        call(t)
    with Diverted(1, 1), pytest.raises(assay.PlaneError, match="expected room for .* bytes, found 1"):
        call(t)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises((BufferError, RuntimeError)):
        call(t)
    with pytest.raises((BufferError, RuntimeError)):
        torch.func.functionalize(lambda y: (call(t), y)[1])(torch.ones(2))


def test_arguments_cannot_change_the_tensor_on_the_way(t):
    class Threads:
        def __index__(self):
            t.set_(torch.zeros(1, dtype=torch.bfloat16))
            return 1

    assert assay.quantize(t, threads=Threads())["row.data"].shape == (1, 1)


@pytest.mark.parametrize("late", ["weakref.finalize(kept, use)", "atexit.register(use)", "sys.modules.pop('torch'); use()"])
def test_the_end_of_an_interpreter_is_silent(late, tmp_path):
    script = ("import atexit, sys, weakref\nclass Kept: pass\nkept, x = Kept(), None\n"
              "def use(): print(list(assay.quantize(x)['row.data'].shape))\n"
              f"{late if 'atexit' in late else ''}\nimport assay, torch\nx = torch.ones(2, 32)\nuse()\n{'' if 'atexit' in late else late}\n")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2, 32]\n" * 2, "")


def test_a_tensor_without_its_storage_is_refused(t):
    t.untyped_storage().resize_(0)
    for call in (assay.quantize, assay.cast):
        with pytest.raises(BufferError, match="lie in the CPU's memory"):
            call(t)


def test_outputs_lie_on_the_cpu(t):
    with torch.device("meta"):
        q = assay.quantize(t)
    assert q["row.data"].device.type == "cpu"


def test_torch_casts_agree(t):
    assert bits(assay.cast(t, "e5m2", overflow="nosat")) == bits(t.to(torch.float8_e5m2))


def test_a_bug_is_caught(t):
    """An MXFP8 quantizer that floors its scales, as a user's kernel might."""
    blocks = t.float().reshape(64, 8, 32)
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1))) - 8
    codes = (blocks / torch.exp2(exponent)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn).reshape(64, 256)
    scales = (exponent + 127).to(torch.uint8)
    with pytest.raises(AssertionError, match="floored exponent of the amax"):
        assay.assert_quantized(t, (codes, scales), "mxfp8")


class MXTensor:
    """The attributes of torchao's MXTensor."""

    def __init__(self, qdata, scale, element):
        self.qdata, self.scale, self.elem_dtype, self.block_size = qdata, scale, element, 32


class MXFP8Tensor:
    """The attributes of TransformerEngine's MXFP8Tensor."""

    def __init__(self, q, element):
        self._fp8_dtype, self.dtype = "DType.kFloat8" + element, torch.bfloat16
        self._rowwise_data, self._rowwise_scale_inv = q["row.data"].view(torch.uint8), q["row.scale_inv"].view(torch.uint8)
        self._columnwise_data, self._columnwise_scale_inv = q["col.data"].view(torch.uint8), q["col.scale_inv"].view(torch.uint8)


def test_quantized_tensors_of_libraries(t):
    ocp = assay.quantize(t, "mxfp8", flavour="ocp")
    made = MXTensor(ocp["row.data"], ocp.logical("row.scale_inv"), torch.float8_e4m3fn)
    verdict = assay.check(t, made, cause=True)
    assert not verdict and "floored exponent" in verdict.cause and verdict.copied_bytes > 0
    assert assay.check(t, made, "mxfp8 flavour=ocp") and "ocp" in [assay.identify(t, made).best.name, *assay.identify(t, made).best.same_as]
    both = assay.quantize(t, "mxfp8 element=e5m2", dir="both")
    assert assay.check(t, MXFP8Tensor(both, "E5M2")) and set(assay.check(t, MXFP8Tensor(both, "E5M2")).planes) == set(both)
    assert assay.coherence(MXFP8Tensor(both, "E5M2"))
    assert assay.check(t.float(), MXFP8Tensor(assay.quantize(t.float(), "mxfp8", dir="both"), "E4M3"))   # the line follows the dtype of x


def test_torchao_itself(t):
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    made = mx.MXTensor.to_mx(t, torch.float8_e4m3fn, 32)
    assert "ocp" in (assay.identify(t, made).best.name, *assay.identify(t, made).best.same_as)


@pytest.mark.parametrize("imports", ["import assay, torch", "import torch, assay", "import assay; import torch.nn as nn; import torch"])
def test_the_op_is_there_once_both_are_imported(imports, tmp_path):
    script = imports + "\nprint([list(p.shape) for p in torch.ops.assay.reference_quantize(torch.zeros(2, 32, dtype=torch.bfloat16), 'mxfp8', 'row')])"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout == "[[128, 4], [2, 32]]\n", done.stdout + done.stderr
