"""What is measured: formats, and how each library is called for them. A call takes the tensor as its library has it and gives planes by the names of a line.

Every call has the flavour of ours that makes its bytes of a finite tensor (docs/flavours.md, fixtures/packs/libraries/README.md); None is the defaults. A library
that gives other bytes than that fails the run."""
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import pathlib
import sys
import unittest.mock
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

kRoot = pathlib.Path(__file__).resolve().parents[2]
kLibraries = kRoot / "fixtures/from_python/libraries"   # which make the packs of the same libraries


@dataclass(frozen=True)
class Format:
    name: str    # of the table
    op: str
    spec: str    # of a line


kFormats = (Format("MXFP8 1x32", "quantize", "mxfp8"), Format("FP8 per tensor", "quantize", "fp8_current"), Format("FP8 1x128", "quantize", "fp8_block pow2=0"),
            Format("NVFP4 1x16", "quantize", "nvfp4"), Format("MXFP4 1x32", "quantize", "mxfp4"), Format("cast E4M3", "cast", "e4m3"), Format("cast E5M2", "cast", "e5m2"))


@dataclass(frozen=True)
class Call:
    """One way to call a library. `run(x)` gives {plane: array}, or what `planes` makes that of, which is not timed."""

    library: str
    how: str
    run: Callable[[Any], Any]
    planes: Callable[[Any], dict[str, Any]] = dict
    flavour: str | None = None
    form: str = "torch"        # of x: torch or numpy
    threads: bool = True       # whether the library has a setting for them
    most: int | None = None    # elements: of larger tensors it is not asked
    why_most: str = ""


class Absent(Exception):
    """A library that is not here, or does not run here; the text says why."""


def needed(module):
    """A module; Absent where it does not import."""
    try:
        return importlib.import_module(module)
    except Exception as error:   # of a library, any
        raise Absent(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else module}") from None


def of_packs(name):
    """The script that makes a library's pack."""
    needed("ml_dtypes")
    if str(kLibraries) not in sys.path:
        sys.path.insert(0, str(kLibraries))
    return needed(name)


def bytes_of(array):
    """A tensor of torch of one-byte elements as NumPy's bytes."""
    return array.contiguous().view(needed("torch").uint8).numpy()


def coded(codes_first=True, turned=False):
    """From a pair of torch's codes and scales to planes. turned: blocks of a row stand in a column of the plane, as ours do."""
    def planes(made):
        codes, scales = made if codes_first else made[::-1]
        scales = scales.t() if turned else scales
        wide = scales.dtype.itemsize > 1
        return {"row.data": bytes_of(codes), "row.scale_inv": scales.float().contiguous().numpy() if wide else bytes_of(scales)}
    return planes


# ---- torchao -----------------------------------------------------------------------------------------------------------

def torchao_mx(x, element, mode):
    from torchao.prototype.mx_formats.mx_tensor import to_mx
    return to_mx(x, element, 32, mode)


def torchao_tensor(x):
    from torchao.float8.float8_training_tensor import hp_tensor_and_scale_to_float8
    from torchao.float8.float8_utils import tensor_to_amax, tensor_to_scale
    import torch
    scale = tensor_to_scale(x, torch.float8_e4m3fn)
    return hp_tensor_and_scale_to_float8(x, scale, torch.float8_e4m3fn)._data, 1 / scale


def torchao_blocks(x):
    from torchao.prototype.blockwise_fp8_training.kernels import torch_blockwise_scale_act_quant_lhs
    return torch_blockwise_scale_act_quant_lhs(x)


def torchao_nvfp4(x):
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize
    return nvfp4_quantize(x, 16, x.abs().max().float() / (448.0 * 6.0))


def torch_calls(name, source):
    torch = needed("torch")
    if name.startswith("cast"):
        element = torch.float8_e4m3fn if name.endswith("E4M3") else torch.float8_e5m2
        return [("torch", ".to", lambda x: x.to(element), lambda made: {"y": bytes_of(made)}, None)]
    needed("torchao")
    modes = needed("torchao.prototype.mx_formats.config").ScaleCalculationMode
    if name == "FP8 per tensor":
        return [("torchao", "float8", torchao_tensor, coded(), "torchao.float8")]
    if name == "FP8 1x128":
        return [("torchao", "blockwise training", torchao_blocks, coded(turned=True), "torchao.blockwise")]
    if name == "NVFP4 1x16":
        return [("torchao", "nvfp4_quantize", torchao_nvfp4, coded(codes_first=False), "torchao.nvfp4")]
    element = torch.float8_e4m3fn if name == "MXFP8 1x32" else torch.float4_e2m1fn_x2
    return [("torchao", f"to_mx {mode.name}", functools.partial(torchao_mx, element=element, mode=mode), coded(codes_first=False), flavour)
            for mode, flavour in ((modes.RCEIL, "torchao.rceil"), (modes.FLOOR, "ocp"))]


kCompiles = True   # set by measure.py


def torchao(name, source):
    """Eager code, and the same under torch.compile."""
    torch = needed("torch")
    for library, how, run, planes, flavour in torch_calls(name, source):
        yield Call(library, f"{how}, eager", run, planes, flavour)
        if kCompiles:
            yield Call(library, f"{how}, compiled", torch.compile(run, dynamic=False), planes, flavour)


# ---- compressed-tensors ------------------------------------------------------------------------------------------------

def compressed_tensors(name, source):
    needed("compressed_tensors")
    if name == "FP8 per tensor":
        from compressed_tensors.quantization import QuantizationArgs
        from compressed_tensors.quantization.lifecycle.forward import quantize
        from compressed_tensors.quantization.utils import calculate_qparams
        import torch
        args = QuantizationArgs(num_bits=8, type="float", strategy="tensor", symmetric=True)

        def run(x):
            scale, zero = calculate_qparams(x.amin(), x.amax(), args)
            return quantize(x, scale, zero, args, dtype=torch.float8_e4m3fn), scale
        yield Call("compressed-tensors", "quantize", run, coded(), "onnx.fp8" if source == "f32" else "modelopt.fp8_in_source")
    kinds = {"MXFP8 1x32": ("mxfp8", "compressed_tensors.mx"), "MXFP4 1x32": ("mxfp4", "compressed_tensors.mxfp4"),
             "NVFP4 1x16": ("nvfp4", "compressed_tensors.nvfp4" if source == "f32" else "compressed_tensors.nvfp4_in_source")}
    if name in kinds:
        kind, flavour = kinds[name]
        compressed = of_packs("compressed_tensors_cpu").compressed
        yield Call("compressed-tensors", "compressor", lambda x: compressed(kind, x), coded(codes_first=False), flavour)


# ---- ml_dtypes, gfloat: NumPy on one thread ------------------------------------------------------------------------------

def ml_dtypes(name, source):
    types = needed("ml_dtypes")
    if name.startswith("cast"):
        element = types.float8_e4m3fn if name.endswith("E4M3") else types.float8_e5m2
        yield Call("ml_dtypes", "astype", lambda x: x.astype(element), lambda made: {"y": made}, None, "numpy", False)
    if name == "FP8 per tensor":
        def run(x):
            wide = x.astype(np.float32)
            scale = np.float32(448) / np.abs(wide).max()
            return np.clip(wide * scale, -448, 448).astype(types.float8_e4m3fn), np.float32(1) / scale
        yield Call("ml_dtypes", "NumPy around astype", run, lambda made: {"row.data": made[0], "row.scale_inv": np.array([[made[1]]])}, None, "numpy", False)
    if name in ("MXFP8 1x32", "MXFP4 1x32"):
        mx = of_packs("ml_dtypes_mx").mx
        yield Call("ml_dtypes", "NumPy around astype", lambda x: mx(x, "mxfp8" if name == "MXFP8 1x32" else "mxfp4", "ceil"),
                   lambda made: {"row.data": made[1], "row.scale_inv": made[0]}, None, "numpy", False)


def gfloat(name, source):
    """Its arrays for casts, its encoder of one block for MX."""
    library = needed("gfloat")
    formats = needed("gfloat.formats")
    elements = {"cast E4M3": formats.format_info_ocp_e4m3, "cast E5M2": formats.format_info_ocp_e5m2, "MXFP8 1x32": formats.format_info_ocp_e4m3,
                "MXFP4 1x32": formats.format_info_ocp_e2m1}
    if name not in elements:
        return
    element = elements[name]
    if name.startswith("cast"):
        def cast(x):
            return library.encode_ndarray(element, library.round_ndarray(element, x.astype(np.float64), sat=True))
        yield Call("gfloat", "encode_ndarray", cast, lambda made: {"y": np.asarray(made).astype(np.uint8)}, None, "numpy", False)
        return
    block = library.BlockFormatInfo("mx", element, 32, formats.format_info_ocp_e8m0)

    def run(x):
        made = np.empty((x.size // 32, 33), np.uint8)
        for i, values in enumerate(x.astype(np.float64).reshape(-1, 32)):
            scale = library.compute_scale_amax(element.emax, values)
            made[i] = list(library.encode_block(block, scale, values / scale, library.RoundMode.TiesToEven))
        return made[:, 1:].reshape(x.shape), made[:, 0].reshape(x.shape[0], -1)
    yield Call("gfloat", "encode_block", run, lambda made: {"row.data": made[0], "row.scale_inv": made[1]}, "ocp", "numpy", False,
               1 << 18, "a call in Python for each block of 32")


# ---- TransformerEngine -------------------------------------------------------------------------------------------------

kOfExtension = ("transformer_engine_torch", "transformer_engine.pytorch.constants", "transformer_engine.pytorch.custom_recipes.gemm")


def te_reference(file):
    """A module of custom_recipes. The wheel holds the Python files without the extension, and the packages' own __init__ refuses that: packages that only have their
    folders stand in for them, and mocks for the extension, for the enumerations that are compared with it, and for the products, none of which a quantizer needs."""
    try:
        root = pathlib.Path(importlib.metadata.distribution("transformer-engine").locate_file("transformer_engine"))
    except importlib.metadata.PackageNotFoundError:
        raise Absent("not installed") from None
    for package in ("", ".common", ".pytorch", ".pytorch.tensor", ".pytorch.custom_recipes"):
        spec = importlib.machinery.ModuleSpec(f"transformer_engine{package}", None, is_package=True)   # find_spec of another library asks for it
        spec.submodule_search_locations.append(str(root.joinpath(*package.split(".")[1:])))
        sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    for module in kOfExtension:
        sys.modules.setdefault(module, unittest.mock.MagicMock())
    return needed(f"transformer_engine.pytorch.custom_recipes.{file}")


def transformer_engine(name, source):
    """Its references in Python (custom_recipes)."""
    import torch
    if name == "NVFP4 1x16":
        module = te_reference("reference_nvfp4")
        quantizer = module.NVFP4QuantizerRef(dtype=module.reference_utils.Fp4Formats.E2M1, rowwise=True, columnwise=False)
        yield Call("TransformerEngine", "NVFP4QuantizerRef", quantizer.quantize, lambda made: coded()((made.data, made.scale)))
    if name == "FP8 per tensor":
        module = te_reference("reference_current_scaling")
        quantizer = module.CurrentScalingQuantizerRef(dtype=torch.float8_e4m3fn, rowwise=True, columnwise=False)
        yield Call("TransformerEngine", "CurrentScalingQuantizerRef", quantizer.quantize, lambda made: coded()((made.data, made.scale)), "te.pyref.current")


# ---- ours --------------------------------------------------------------------------------------------------------------

def ours(form, threads):
    """`assay.quantize` as it is called, and with the reference alone."""
    import assay
    for how, exact in (("assay.quantize" if form.op == "quantize" else "assay.cast", False), ("the reference (exact=True)", True)):
        if form.op == "quantize":
            yield Call("assay", how, functools.partial(assay.quantize, spec=form.spec, threads=threads, exact=exact))
        else:
            yield Call("assay", how, functools.partial(assay.cast, to=form.spec, threads=threads, exact=exact), lambda made: {"y": bytes_of(made)})


kPeers = {"torchao": torchao, "compressed-tensors": compressed_tensors, "ml_dtypes": ml_dtypes, "gfloat": gfloat, "TransformerEngine": transformer_engine}
