"""Weights of ModelOpt and compressed-tensors as outputs: the real library where it is installed, stand-ins of ModelOpt's classes."""
import numpy as np
import pytest

import assay

torch = pytest.importorskip("torch")


@pytest.fixture
def t(x):
    return torch.tensor(x.astype(np.float32)).to(torch.bfloat16)


class NVFP4QTensor:
    """The attributes of ModelOpt's quantized tensors."""

    def __init__(self, data, x):
        self._quantized_data, self.metadata = data, {"shape": x.shape, "dtype": x.dtype}


class QTensorWrapper(torch.nn.Parameter):
    """ModelOpt's parameter of a compressed module: the codes, and what they stand for."""

    def __new__(cls, data, metadata):
        made = super().__new__(cls, data, requires_grad=False)
        made.metadata = metadata
        return made


class Module:
    def __init__(self, **attributes):
        vars(self).update(attributes)


@pytest.mark.parametrize("spec", ["nvfp4", "mxfp4", "mxfp8", "mxfp8 element=e5m2"])
def test_modelopt(t, spec):
    q = assay.quantize(t, spec)
    data, scales = q["row.data"], q.logical("row.scale_inv")
    scales = scales.contiguous().view(torch.uint8).reshape(-1, 1) if "mx" in spec else scales   # ModelOpt keeps E8M0 as bytes, in one column
    keys = spec.partition(" ")[2] or None
    for outputs in ((NVFP4QTensor(data, t), scales), (NVFP4QTensor(data, t), scales, torch.tensor(1.0))):
        verdict = assay.check(t, outputs)
        assert verdict and {"row.data", "row.scale_inv"} <= set(verdict.planes) and verdict.line.split()[1] == spec.split()[0], keys
    wrong = data.clone()
    wrong.view(torch.uint8)[3, 7] ^= 1
    assert assay.check(t, (NVFP4QTensor(wrong, t), scales)).first.plane == "row.data"
    if data.dtype == torch.uint8:
        module = Module(weight=QTensorWrapper(data, {"shape": t.shape}), weight_quantizer=Module(_scale=scales))
        assert assay.check(t, module) and not assay.check(t, Module(weight=QTensorWrapper(wrong, {}), weight_quantizer=Module(_scale=scales)))


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float16])
def test_scales_of_any_float(t, source):
    q = assay.quantize(t, "fp8_current pow2=1")
    made = (NVFP4QTensor(q["row.data"], t), q["row.scale_inv"].to(source))
    assert assay.check(t, made, "pow2=1") and not assay.check(t, (made[0], made[1] * 2), "pow2=1")


def test_what_is_not_known(t):
    q = assay.quantize(t, "nvfp4")
    with pytest.raises(assay.PlaneError, match="pass \\(tensor, scales\\)"):
        assay.check(t, NVFP4QTensor(q["row.data"], t))
    with pytest.raises(assay.PlaneError, match="compress the model"):
        assay.check(t, Module(weight=NVFP4QTensor(q["row.data"], t)))
    with pytest.raises(assay.PlaneError, match="expected NVFP4, MXFP4, MXFP8 or FP8 weights of ModelOpt"):
        assay.check(t, (NVFP4QTensor(q["row.data"], t), torch.ones(3)))


def test_compressed_tensors_itself(t):
    """A model that the library quantizes and compresses: its modules, and their state dict."""
    quantization = pytest.importorskip("compressed_tensors.quantization")
    NVFP4PackedCompressor = pytest.importorskip("compressed_tensors.compressors.nvfp4.base", reason="compressors of a state dict").NVFP4PackedCompressor
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    args = quantization.QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True,
                                         scale_dtype=torch.float8_e4m3fn)
    weight = t.float()
    blocks, tensor_scale = weight.unflatten(-1, (-1, 16)), generate_gparam(*torch.aminmax(weight))
    scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=tensor_scale)
    with torch.compiler.set_stance("force_eager"):   # it compiles its packing, for which a test has no time
        done = NVFP4PackedCompressor.compress({"weight": weight, "weight_scale": scale, "weight_global_scale": tensor_scale},
                                              quantization.QuantizationScheme(targets=["Linear"], weights=args))
    state = {f"layer.{name}": tensor for name, tensor in done.items()}
    assert state["layer.weight_packed"].dtype == torch.uint8 and state["layer.weight_scale"].dtype == torch.float8_e4m3fn
    verdict = assay.check(weight, state, "flavour=compressed_tensors.nvfp4")
    assert verdict, verdict
    assert assay.identify(weight, state).best.name.startswith("compressed_tensors") or "compressed_tensors.nvfp4" in assay.identify(weight, state).best.same_as
    module = torch.nn.Module()
    for name, tensor in state.items():
        module.register_parameter(name.rpartition(".")[2], torch.nn.Parameter(tensor, requires_grad=False))
    assert assay.check(weight, module, "flavour=compressed_tensors.nvfp4") and "no amax" in " ".join(assay.check(weight, module).notes)
    state["layer.weight_packed"] = done["weight_packed"] ^ 1
    assert assay.check(weight, state, "flavour=compressed_tensors.nvfp4").first.plane == "row.data"


def test_compressed_tensors_fp8(t):
    quantization = pytest.importorskip("compressed_tensors.quantization")
    FloatQuantizationCompressor = pytest.importorskip("compressed_tensors.compressors.naive_quantized.base", reason="compressors of a state dict").FloatQuantizationCompressor
    from compressed_tensors.quantization.utils import calculate_qparams
    weight = t.float()
    for strategy, low, high, spec in (("tensor", weight.min(), weight.max(), "flavour=onnx.fp8"), ("channel", weight.amin(-1, True), weight.amax(-1, True), "row_scaled=1")):
        args = quantization.QuantizationArgs(num_bits=8, type="float", strategy=strategy, symmetric=True)
        scale, zero = calculate_qparams(low, high, args)
        state = FloatQuantizationCompressor.compress({"weight": weight, "weight_scale": scale}, quantization.QuantizationScheme(targets=["Linear"], weights=args))
        verdict = assay.check(weight, state)
        assert {"row.data", "row.scale_inv"} <= set(verdict.planes) and verdict.line.split()[1] == "fp8_current"
        assert ("row_scaled=1" in verdict.line) == (strategy == "channel")
