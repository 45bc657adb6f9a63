"""Pack.add of modules of compressed-tensors and ModelOpt: stand-ins with their attributes, whose bytes are worked out here in NumPy as those libraries do, judged by the wheel's program."""
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest

import assay
from assay.pack import Pack, PackError

kProgram = pathlib.Path(assay.__file__).parent / "bin/assay"
needs_program = pytest.mark.skipif(not kProgram.is_file(), reason="the package has no program beside it")
f32 = np.float32


class Module:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def weight(dtype="bfloat16", rows=128, cols=256):
    return np.random.default_rng(3).standard_normal((rows, cols)).astype(f32).astype(getattr(ml_dtypes, dtype, dtype))


def packed(codes):
    """Two E2M1 codes to a byte, the first in the low half."""
    codes = codes.view(np.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4


def compressed_nvfp4(x):
    """compressed-tensors: the scale of the tensor multiplies, and divides when it is taken back."""
    v = x.astype(f32)
    tensor = f32(2688) * (f32(1) / np.abs(v).max())
    blocks = v.reshape(len(v), -1, 16)
    scale = (np.abs(blocks).max(-1) / f32(6) * tensor).astype(ml_dtypes.float8_e4m3fn)
    codes = np.clip(blocks / (scale.astype(f32) / tensor)[..., None], -6, 6).astype(ml_dtypes.float4_e2m1fn)
    return packed(codes.reshape(v.shape)), scale, tensor


def modelopt_nvfp4(x, amax=None):
    v = x.astype(f32)
    second = f32(np.abs(v).max() if amax is None else amax) / f32(2688)
    blocks = v.reshape(len(v), -1, 16)
    scale = np.minimum(np.abs(blocks).max(-1) / (f32(6) * second), f32(448)).astype(ml_dtypes.float8_e4m3fn)
    codes = np.clip(blocks / (scale.astype(f32) * second)[..., None], -6, 6).astype(ml_dtypes.float4_e2m1fn)
    return packed(codes.reshape(v.shape)), scale, second


def divided_fp8(x, amax):
    """Codes and scales of amax / 448, x divided by the scale."""
    scale = np.asarray(amax, f32) / f32(448)
    return np.clip(x.astype(f32) / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn), scale


def floored_mx(x):
    """OCP: the exponent of the amax, less that of the largest element."""
    blocks = x.astype(f32).reshape(len(x), -1, 32)
    exponent = np.floor(np.log2(np.abs(blocks).max(-1))) - 8
    codes = np.clip(blocks * np.exp2(-exponent)[..., None], -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return codes.reshape(x.shape), (exponent + 127).astype(np.uint8)


def tiles(x):
    return np.abs(x.astype(f32)).reshape(len(x) // 128, 128, -1, 128).max((1, 3))


def judged(folder, module, x, keys, **more):
    pack = Pack()
    name = pack.add(module, x, module="layers.0.down_proj", role="weight", keys=keys, **more)
    done = subprocess.run([kProgram, "check", "--no-cause", pack.write(folder / "dump.safetensors")], capture_output=True, text=True)
    return pack.lines[name], sorted(n.rpartition("/")[2] for n in pack.tensors), done.stdout


def cases():
    x = weight()
    codes, scale, tensor = compressed_nvfp4(x.astype(f32))
    ct = dict(weight_packed=codes, weight_scale=scale, weight_global_scale=np.array([tensor]))
    yield "compressed-tensors nvfp4", Module(**ct), x.astype(f32), "flavour=compressed_tensors.nvfp4", "quantize nvfp4 128x256 f32 dir=row"
    yield "its state dict", {f"model.layers.0.{n}": v for n, v in ct.items()}, x.astype(f32), "flavour=compressed_tensors.nvfp4", "quantize nvfp4 128x256 f32 dir=row"
    codes, scale, second = modelopt_nvfp4(x)
    yield "ModelOpt nvfp4", Module(weight=codes, weight_scale=scale, weight_scale_2=second, input_scale=f32(1)), x, "flavour=modelopt.nvfp4", "quantize nvfp4 128x256 bf16 dir=row"
    wrapped = Module(_quantized_data=codes, metadata={})
    yield "ModelOpt in memory", Module(weight=wrapped, weight_quantizer=Module(_scale=scale, _double_scale=second)), x, "flavour=modelopt.nvfp4", "quantize nvfp4 128x256 bf16 dir=row"
    codes, scale = divided_fp8(x, np.abs(x.astype(f32)).max())
    yield "one scale", Module(weight=codes, weight_scale=scale), x, "flavour=onnx.fp8", "quantize fp8_current 128x256 bf16 dir=row element=e4m3"
    codes, scale = divided_fp8(x, np.abs(x.astype(f32)).max(-1, keepdims=True))
    yield "a scale for each row", Module(weight=codes, weight_scale=scale), x, "flavour=onnx.fp8", "quantize fp8_current 128x256 bf16 dir=row element=e4m3 row_scaled=1"
    codes, scale = divided_fp8(x, np.repeat(np.repeat(tiles(x), 128, 0), 128, 1))
    yield "tiles", Module(weight=codes, weight_scale_inv=scale[::128, ::128]), x, "scale_order=decode_divide", "quantize fp8_block 128x256 bf16 dir=row block=128x128 element=e4m3 pow2=0"
    codes, scale = floored_mx(x)
    yield "mxfp8", Module(weight=codes, weight_scale=scale), x, "flavour=ocp", "quantize mxfp8 128x256 bf16 dir=row element=e4m3"


@needs_program
@pytest.mark.parametrize("what, module, x, keys, line", [pytest.param(*case, id=case[0]) for case in cases()])
def test_right_bytes_pass_and_a_wrong_one_is_found(tmp_path, what, module, x, keys, line):
    assert judged(tmp_path, module, x, keys)[:2] == (f"{line} {keys}", ["row.data", "row.scale_inv", "x"])
    assert "1 passed, 0 failed, 0 skipped" in judged(tmp_path, module, x, keys)[2]
    parts = module if isinstance(module, dict) else vars(module)
    codes = next(v for n, v in parts.items() if n.endswith(("weight_packed", "weight")))
    codes = codes if isinstance(codes, np.ndarray) else codes._quantized_data
    codes.view(np.uint8)[5, 7] ^= 1
    told = judged(tmp_path, module, x, keys)[2]
    codes.view(np.uint8)[5, 7] ^= 1
    assert "0 passed, 1 failed" in told and "row.data" in told and "1 of " in told


@needs_program
def test_scales_of_sixteen_bits_are_widened(tmp_path):
    """compressed-tensors keeps scales in the weight's type."""
    x = weight()
    scale = (np.abs(x.astype(f32)).max(-1, keepdims=True) / f32(448)).astype(ml_dtypes.bfloat16)
    codes = np.clip((x.astype(f32) / scale.astype(f32)).astype(ml_dtypes.bfloat16).astype(f32), -448, 448).astype(ml_dtypes.float8_e4m3fn)
    told = judged(tmp_path, Module(weight=codes, weight_scale=scale), x, "flavour=modelopt.fp8_in_source")
    assert "1 passed, 0 failed, 0 skipped" in told[2], told[2]


@needs_program
def test_a_shared_scale_says_its_amax(tmp_path):
    """Fused layers share the scale of the larger one."""
    x = weight()
    codes, scale, second = modelopt_nvfp4(x, amax=8)
    module = Module(weight=codes, weight_scale=scale, weight_scale_2=second)
    with pytest.warns(UserWarning, match="that of an amax of 8, and the weight's is [0-9.]+: it is shared"):
        line, _, told = judged(tmp_path, module, x, "flavour=modelopt.nvfp4")
    assert "amax=0x41000000" in line and "1 passed, 0 failed, 0 skipped" in told
    line, _, told = judged(tmp_path, module, x, "flavour=modelopt.nvfp4", amax="recorded")
    assert "amax=0x41000000" in line and "1 passed, 0 failed, 0 skipped" in told
    line, _, told = judged(tmp_path, module, x, "flavour=modelopt.nvfp4", amax=4.0)
    assert "amax=0x40800000" in line and "0 passed, 1 failed" in told


def test_what_is_refused():
    x = weight()
    codes, scale, second = modelopt_nvfp4(x)
    for message, module, of in (
            ("x: expected the weight from which this module's was quantized, found none", Module(weight=codes, weight_scale=scale), None),
            ("x: expected float32, bfloat16 or float16, found uint8", Module(weight=codes, weight_scale=scale), codes),
            ("expected a weight in NVFP4, .*found bfloat16 codes .*compress the model first", Module(weight=x, weight_scale=scale), x),
            ("found uint8 codes .128, 128. with float8_e4m3fn scales .128, 8.", Module(weight=codes, weight_scale=scale[:, :8]), x),
            ("m: x: expected 128x256 when flattened, found .256, 128.", Module(weight=codes, weight_scale=scale, weight_scale_2=second), x.reshape(256, 128)),
            ("weight_global_scale: expected one positive number, the scale of the tensor, found 2", Module(weight_packed=codes, weight_scale=scale, weight_global_scale=np.ones(2, f32)), x),
            ("weight_scale_2: expected one positive number, the scale of the tensor, found 1 of which the first is 0", Module(weight=codes, weight_scale=scale, weight_scale_2=f32(0)), x),
            ("expected the state dict of one layer, found 4 tensors of several", {"a.weight": codes, "a.weight_scale": scale, "b.weight": codes, "b.weight_scale": scale}, x),
            ("expected a quantized tensor .* or a module of compressed-tensors .* or of ModelOpt .*, found .*Module", Module(weight=x), x)):
        with pytest.raises(PackError, match=message):
            Pack().add(module, of, module="m")


def test_modules_of_torch():
    """The attributes of a module are parameters and buffers."""
    torch = pytest.importorskip("torch")
    x = weight()
    codes, scale, second = modelopt_nvfp4(x)
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.from_numpy(codes), requires_grad=False)
    module.register_buffer("weight_scale", torch.from_numpy(scale.view(np.uint8)).view(torch.float8_e4m3fn))
    module.register_buffer("weight_scale_2", torch.tensor(float(second)))
    pack = Pack()
    name = pack.add(module, torch.from_numpy(x.view(np.uint16).astype(np.int32)).to(torch.uint16).view(torch.bfloat16), module="m")
    assert pack.lines[name] == "quantize nvfp4 128x256 bf16 dir=row"
    assert pack.tensors[f"{name}/row.data"].data == codes.tobytes() and pack.tensors[f"{name}/row.scale_inv"].data == scale.tobytes() and pack.tensors[f"{name}/x"].data == x.tobytes()
