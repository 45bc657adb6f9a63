"""Models that torchao quantizes on the CPU, for the tests of the watch: by the layers that the installed torchao has."""
import importlib.util

import pytest

kNew, kOld = "torchao.prototype.moe_training.mxfp8_linear", "torchao.prototype.mx_formats.mx_linear"


def found(module):
    """Whether a module of a package is there; of a package that is not there none can be looked for."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def need_mx():
    """Skips where no torchao is installed, or none that has linear layers in MXFP8."""
    if not found(kNew) and not found(kOld):
        pytest.skip("no torchao with linear layers in MXFP8 is installed")


def mx_backward_roles():
    """What such a layer quantizes in its backward pass on a CPU: newer ones compute the gradient of the weight without, for the cast along the
    other axis is a kernel of CUDA."""
    return {"grad_output", "weight.col"} if found(kNew) else {"grad_output", "weight.col", "grad_output.col", "input.col"}


def mx(model):
    """The model with its Linear layers in MXFP8 and floored scales, as OCP has them: the weights are the same."""
    need_mx()
    import torch
    for name, layer in [(n, m) for n, m in model.named_children() if isinstance(m, torch.nn.Linear)]:
        if found(kNew):
            from torchao.prototype.moe_training.mxfp8_linear import MXFP8Linear
            from torchao.prototype.mx_formats.config import ScaleCalculationMode
            from torchao.quantization.quantize_.common.kernel_preference import KernelPreference
            made = MXFP8Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, dtype=layer.weight.dtype, wgrad_with_hp=True,
                               kernel_preference=KernelPreference.EMULATED, scale_calculation_mode=ScaleCalculationMode.FLOOR)
            made.load_state_dict(layer.state_dict())
            setattr(model, name, made)
        else:
            from torchao.prototype.mx_formats.config import MXLinearConfig
            from torchao.prototype.mx_formats.mx_linear import MXLinear
            MXLinear.from_float(layer, MXLinearConfig())
    return model
