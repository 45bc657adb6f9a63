"""Writes packs that `assay check` judges, from the tensors of a running program.

Needs NumPy and nothing else; PyTorch, JAX, TransformerEngine and torchao are used where the caller has them and never imported
here. A walk from a training step to a verdict:

    from assay_pack import Pack

    pack = Pack(made_by="TransformerEngine 2.9, H100")
    pack.add(weight_mxfp8, x=weight, step=12, module="blocks.0.mlp.fc1", role="weight")     # a quantized tensor and what it was made from
    pack.add(grad_nvfp4, x=grad, step=12, module="blocks.0.mlp.fc1", role="grad_output", rng=(seed, offset))
    pack.add_planes("quantize mxfp8 64x256 bf16 dir=row",                                   # or arrays of your own, under a line
                    {"x": x, "row.scale_inv": scales, "row.data": codes}, step=12, module="head", role="input")
    pack.write("dumps/step12.safetensors")

    $ assay check dumps/          # orders every case by step, module, role and direction, and names the first divergence
    $ assay diff a.safetensors b.safetensors

`add` knows a quantized tensor by the names of its attributes: TransformerEngine's Float8Tensor, MXFP8Tensor, Float8BlockwiseQTensor,
NVFP4Tensor, IdentityTensor and HybridQuantizedTensor (and their storages), torchao's MXTensor, NVFP4Tensor, Float8TrainingTensor and Float8Tensor, and the weight of a module of compressed-tensors or ModelOpt. It writes the line from
the tensor and its quantizer's flags: element, block, RHT and its signs, stochastic rounding, four-over-six, row scaling, powers of two,
amax epsilon, the swizzled layout of the scales. What a tensor does not remember, `add` has arguments for, and asks for them.

Without `x` a case can be compared with another dump (`assay diff`), not judged.
"""
import json
import os
import struct
import warnings

import numpy as np

from ._dump_arrays import Array, bits, kBits, kSources
from ._dump_checks import check_case
from ._dump_modules import kOfModules, weight_of_module
from ._dump_tensors import describe, flat, kKinds, line_of, nominal, rows_of_rotating_kernel
from ._errors import PackError

# ---- the pack --------------------------------------------------------------------------------------------------------

class Pack:
    """Cases in memory until write(). `made_by` and `versions` ({"torch": "2.9"}) go into the metadata for whoever reads the pack."""

    def __init__(self, made_by="", versions=None):
        self.tensors, self.lines = {}, {}
        self.notes = {"assay.pack": "1", "assay.subject": made_by,
                      "assay.fingerprint": " ".join(f"{k}={v}" for k, v in sorted((versions or {}).items()))}

    def add(self, tensor, x=None, *, module, role="", step=0, noop=None, rng=None, amax=None, scale=None, format=None, keys=""):
        """A quantized tensor, and `x` from which it was made. Returns the case's name, or None where there is nothing to judge.

        module, role, step   where in the step it stood: "blocks.0.fc1"; input, weight, grad_output, ... (what check orders by)
        noop                 the noop flag (a number or an array of one); exactly 1 wrote nothing, and nothing is recorded
        rng                  (seed, offset[, member]) of stochastic rounding, as the kernel got them; a tensor that is not rounded so needs none and drops it
        amax                 the amax over the group where ranks reduce it: a number, or "recorded" for the one that NVFP4 keeps
        scale                delayed scaling: the scale that was in force, where the quantizer has moved on
        format               "fp8_current" or "fp8_delayed", where a Float8Tensor has no quantizer
        keys                 more of the line: "flavour=te arch=sm100"

        Raises PackError for what cannot be judged as it is, and says what to pass.
        """
        source_array = None if x is None else Array(x, "x")
        given = {"rng": rng, "amax": amax, "scale": scale, "format": format, "x": source_array}
        flag_value = None if noop is None else Array(noop if hasattr(noop, "dtype") else np.float32(noop), "noop").f32("noop")
        if flag_value == 1:
            warnings.warn(f"{module}: noop is 1, so the kernel wrote nothing and nothing is recorded", stacklevel=2)
            return None
        sides = weight_of_module(tensor, given) or describe(tensor, given, kOfModules)
        shapes = {s.shape for s in sides.values()}
        if len(shapes) != 1:
            raise PackError(f"{module}: expected rows and columns of one shape, found {' and '.join(f'{r}x{c}' for r, c in shapes)}")
        shape = shapes.pop()
        planes = {f"{d}.{name}": a for d, s in sides.items() for name, a in s.planes.items()}
        if x is not None:
            planes["x"] = source_array
            source = source_array.name if source_array.name != "uint16" else nominal(tensor, sides)   # bf16 as bits, where NumPy has no bf16
            if flat(source_array.shape, "x") != shape:
                raise PackError(f"{module}: x: expected {shape[0]}x{shape[1]} when flattened, found {list(source_array.shape)}; pass the tensor from which this one was made")
        else:
            source = nominal(tensor, sides)
        if source not in kSources:
            raise PackError(f"{module}: x: expected float32, bfloat16 or float16, found {source}")
        quantizer = getattr(tensor, "_quantizer", None)
        random = "round=sr" in keys or any(s.keys.get("round") == "sr" for s in sides.values())
        case_keys = {
            "col_source": "row_dequantized" if getattr(quantizer, "columnwise_source", "") == "rowwise_dequantized" and len(sides) == 2 else None,
            "noop": None if flag_value is None else bits(flag_value),
            "dispatch": "rhtrc" if rows_of_rotating_kernel(quantizer, sides, shape, kSources[source], keys) else None,
            "rng": ",".join(str(int(n)) for n in (*rng, 0)[:3]) if random and rng is not None else None,
        }
        name = self._name(step, module, role)
        self.notes[f"assay.class.{name}"] = type(tensor).__name__
        return self._put(name, line_of(shape, kSources[source], sides, case_keys, keys), planes)

    def add_planes(self, line, planes, *, module, role="", step=0):
        """Arrays under a line: {"x": x, "row.scale_inv": scales, "row.data": codes}, the planes by name. Returns the case's name.

        module, role and step are as of add. A number stands for a plane of one binary32 element. Raises PackError for what `assay check`
        would refuse later, or not judge: a line, a plane's name, its count, its dtype, a tensor without values.
        """
        if not planes:
            raise PackError(f"{module}: expected at least one plane, found none; name them as docs/packs.md does, x and row.data for instance")
        for plane in planes:
            if "/" in plane:
                raise PackError(f"{module}: expected a plane such as row.data, found '{plane}': the part before the last slash is the case's name")
        return self._put(self._name(step, module, role), line, {p: v if isinstance(v, Array) else Array(v, p) for p, v in planes.items()})

    def _name(self, step, module, role):
        if not module:
            raise PackError('module: expected a name such as "blocks.0.fc1", found nothing')
        name = "/".join([f"step{int(step)}", module, *([role] if role else [])])
        if name in self.lines:
            raise PackError(f"{name}: expected each case once, found it again; pass another step, module or role")
        return name

    def _put(self, name, line, planes):
        check_case(line, planes, name)
        self.lines[name] = line
        for plane, array in planes.items():
            self.tensors[f"{name}/{plane}"] = array
        return name

    def _header(self):
        """The file's first bytes, and the order of the tensors behind them."""
        header = {"__metadata__": {**self.notes, **{f"assay.line.{name}": line for name, line in self.lines.items()}}}
        order, at = sorted(self.tensors, key=lambda name: (-kBits[self.tensors[name].dtype], name)), 0   # wide elements first stay aligned
        for name in order:
            array = self.tensors[name]
            header[name] = {"dtype": array.dtype, "shape": list(array.shape), "data_offsets": [at, at + len(array.data)]}
            at += len(array.data)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text, order

    def size(self):
        """The bytes that write() would write."""
        return len(self._header()[0]) + sum(len(a.data) for a in self.tensors.values())

    def write(self, path):
        """Writes the pack, whole or not at all. Returns its path. Raises PackError where it holds no case."""
        if not self.lines:
            raise PackError(f"{path}: expected at least one case, found none; call add or add_planes first")
        head, order = self._header()
        path = os.fspath(path)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path + ".part", "wb") as f:
            f.write(head)
            for name in order:
                f.write(self.tensors[name].data)
        os.replace(path + ".part", path)
        return path
