#!/usr/bin/env python3
"""Tests of fixtures/from_python/assay_pack.py; the last line counts `N passed, N failed, N skipped`.

    python3 tests/python/test_assay_pack.py [path of the assay program]

Quantized tensors are stand-ins with the attribute names of the libraries. With the program, their bytes come from `assay record`, and
`assay check` must agree with the line that the dumper writes; without it, and without NumPy, those tests are skipped.
"""
import ast
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DUMPER = ROOT / "fixtures/from_python/assay_pack.py"
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else None
try:
    import numpy as np
except ImportError:
    np = None
if np is not None:
    sys.path.insert(0, str(DUMPER.parent))
    import assay_pack
    from assay_pack import Pack, PackError

needs_numpy = unittest.skipIf(np is None, "no NumPy")
needs_program = unittest.skipIf(np is None or PROGRAM is None, "no NumPy or no assay program")


def read(path):
    """{name: (dtype, shape, bytes)} and the metadata."""
    blob = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = blob[8 + size:]
    return {n: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for n, t in header.items()}, metadata


def thing(name, **attributes):
    return type(name, (), {})() if not attributes else type(name, (), attributes)()


def torch_stand_in():
    """A torch of one class, whose NumPy bridge refuses what the real one refuses."""
    torch = types.ModuleType("torch")
    torch.uint8 = "torch.uint8"

    class Tensor:
        def __init__(self, raw, dtype, shape, steps=()):
            self.raw, self.dtype, self.shape, self.steps = raw, dtype, tuple(shape), list(steps)

        def _same(self, step):
            return Tensor(self.raw, self.dtype, self.shape, [*self.steps, step])

        def detach(self):
            return self._same("detach")

        def cpu(self):
            return self._same("cpu")

        def contiguous(self):
            return self._same("contiguous")

        def reshape(self, *_):
            return self._same("reshape")

        def view(self, dtype):
            assert dtype is torch.uint8 and self.steps == ["detach", "cpu", "contiguous", "reshape"]
            return Tensor(self.raw, "torch.uint8", [self.raw.size], [])

        def numpy(self):
            if self.dtype != "torch.uint8":
                raise TypeError(f"Got unsupported ScalarType {self.dtype}")
            return self.raw

    Tensor.__module__ = "torch"
    torch.Tensor = Tensor
    return torch


class Source(unittest.TestCase):
    def test_imports_numpy_and_the_standard_library_only(self):
        imported = set()
        for node in ast.walk(ast.parse(DUMPER.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
            imported |= {n.partition(".")[0] for n in names}
        self.assertEqual(imported - set(sys.stdlib_module_names), {"numpy"})


@needs_numpy
class Arrays(unittest.TestCase):
    def written(self, planes, line="cast e4m3 3x2 f32"):
        with tempfile.TemporaryDirectory() as folder:
            pack = Pack(made_by="test", versions={"numpy": "1"})
            pack.add_planes(line, planes, module="m", role="input", step=3)
            return read(pack.write(f"{folder}/new/dump.safetensors"))

    def test_numpy_arrays_travel_as_their_bytes_under_the_case(self):
        x = np.arange(6, dtype=np.float32).reshape(2, 3).T   # not contiguous
        tensors, metadata = self.written({"x": x, "y": np.arange(6, dtype=np.uint8)})
        self.assertEqual(tensors["step3/m/input/x"], ("F32", [3, 2], x.tobytes()))
        self.assertEqual(tensors["step3/m/input/y"], ("U8", [6], bytes(range(6))))
        self.assertEqual(metadata["assay.line.step3/m/input"], "cast e4m3 3x2 f32")
        self.assertEqual((metadata["assay.pack"], metadata["assay.subject"], metadata["assay.fingerprint"]), ("1", "test", "numpy=1"))

    def test_wide_elements_are_aligned_behind_narrow_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            pack = Pack()
            pack.add_planes("dequantize fp8_current 1x3 f32 dir=row out=f16",
                            {"row.data": np.zeros(3, np.uint8), "row.scale_inv": np.zeros(1, np.float32), "y": np.zeros(3, np.float16)}, module="m")
            blob = pathlib.Path(pack.write(f"{folder}/d.safetensors")).read_bytes()
        size = struct.unpack("<Q", blob[:8])[0]
        self.assertEqual(size % 8, 0)
        header = json.loads(blob[8:8 + size])
        self.assertEqual([header[f"step0/m/{n}"]["data_offsets"] for n in ("row.scale_inv", "y", "row.data")], [[0, 4], [4, 10], [10, 13]])

    def test_torch_arrays_go_through_bytes(self):
        torch = torch_stand_in()
        sys.modules["torch"] = torch
        try:
            raw = np.arange(8, dtype=np.uint8)
            for line, dtype, shape, word in (("cast bf16 2x2 f32", "bfloat16", [2, 2], "BF16"), ("cast e4m3 1x8 f32", "float8_e4m3fn", [8], "F8_E4M3"),
                                             ("cast e2m1 1x16 f32", "float4_e2m1fn_x2", [8], "U8")):
                tensors, _ = self.written({"y": torch.Tensor(raw, f"torch.{dtype}", shape)}, line)
                self.assertEqual(tensors["step3/m/input/y"], (word, shape, bytes(range(8))))
            with self.assertRaisesRegex(PackError, "expected one of .*found complex64"):
                self.written({"x": torch.Tensor(raw, "torch.complex64", [1])})
        finally:
            del sys.modules["torch"]

    def test_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("no ml_dtypes")
        for name, to, word in (("bfloat16", "bf16", "BF16"), ("float8_e4m3fn", "e4m3", "F8_E4M3"), ("float8_e5m2", "e5m2", "F8_E5M2"), ("float8_e8m0fnu", "e8m0", "F8_E8M0"),
                               ("float4_e2m1fn", "e2m1", "U8")):
            value = np.array([1.0, 2.0], dtype=getattr(ml_dtypes, name))
            self.assertEqual(self.written({"y": value}, f"cast {to} 1x2 f32")[0]["step3/m/input/y"], (word, [2], value.tobytes()))

    def test_what_is_refused(self):
        for message, planes, line in (
                ("found float64; convert", {"x": np.zeros(2)}, "cast e4m3 1x4 f32"),
                ("x: expected an array, found None: the buffer was freed", {"x": None}, "cast e4m3 1x4 f32"),
                ("at least one plane, found none", {}, "cast e4m3 1x4 f32"),
                ("a plane such as row.data, found 'a/b'", {"a/b": np.zeros(2, np.uint8)}, "cast e4m3 1x4 f32"),
                ("expected a line such as .*found 'mxfp8'", {"x": np.zeros(2, np.uint8)}, "mxfp8")):
            with self.assertRaisesRegex(PackError, message):
                self.written(planes, line)
        pack = Pack()
        with self.assertRaisesRegex(PackError, "at least one case, found none"):
            pack.write("nowhere.safetensors")
        pack.add_planes("cast e4m3 1x4 f32", {"y": np.zeros(4, np.uint8)}, module="m")
        with self.assertRaisesRegex(PackError, "step0/m: expected each case once"):
            pack.add_planes("cast e4m3 1x4 f32", {"y": np.zeros(4, np.uint8)}, module="m")
        with self.assertRaisesRegex(PackError, "expected a quantized tensor .*found numpy.ndarray; for plain arrays use add_planes"):
            pack.add(np.zeros((2, 2), np.float32), module="n")
        with self.assertRaisesRegex(PackError, "module: expected a name"):
            pack.add_planes("cast e4m3 1x4 f32", {"x": np.zeros(4, np.float32)}, module="")


@needs_numpy
class RefusedAtOnce(unittest.TestCase):
    """What `assay check` would refuse later, or leave unjudged."""

    LINE = "quantize mxfp8 64x96 bf16 dir=row"

    def planes(self, **more):
        return {"x": bf16((64, 96)), "row.scale_inv": np.zeros((64, 3), np.uint8), "row.data": np.zeros((64, 96), np.uint8), **more}

    def refused(self, message, line=LINE, **more):
        with self.assertRaisesRegex(PackError, message):
            Pack().add_planes(line, {k.replace("__", "."): v for k, v in self.planes(**more).items()}, module="m")

    def test_lines(self):
        Pack().add_planes(self.LINE, self.planes(), module="m")
        self.refused("expected an op .*found 'quantise'; did you mean 'quantize'", "quantise mxfp8 64x96 bf16")
        self.refused("expected a format .*found 'mxpf8'; did you mean 'mxfp8'", "quantize mxpf8 64x96 bf16 dir=row")
        self.refused("expected a shape such as 64x256, found '64,96'", "quantize mxfp8 64,96 bf16 dir=row")
        self.refused("expected the source f32, bf16 or f16, found 'bf61'; did you mean 'bf16'", "quantize mxfp8 64x96 bf61 dir=row")
        self.refused("expected a key of quantize, found 'elemnt'; did you mean 'element'", self.LINE + " elemnt=e5m2")
        self.refused("dir: expected one of row.col.both, found 'rows'; did you mean 'row'", "quantize mxfp8 64x96 bf16 dir=rows")
        self.refused("flavour: .*found 'torchao.flor'; did you mean 'torchao.floor'", self.LINE + " flavour=torchao.flor")
        self.refused("before the keys, found 'quantize mxfp8 64x96'", "quantize mxfp8 64x96 dir=row")
        self.refused("expected the format of an operand, b=<format>, found '64x64x64'", "gemm a=mxfp8 64x64x64")
        self.refused("expected a format .*found 'mxpf8'; did you mean 'mxfp8'", "gemm a=mxfp8 b=mxpf8 64x64x64")
        self.refused("expected sizes such as 256x512x384 after the operands, found '64x64'", "gemm a=mxfp8 b=mxfp8 64x64")
        self.refused("expected a key of attention, found 'q.scale'", "attention fp8_current 64x64 bf16 q.scale=3")
        self.refused("expected an encoding .*found 'e4m4'; did you mean 'e4m3'", "cast e4m4 4x4 bf16")
        self.refused("expected one format for update, found 'mxfp8/nvfp4'", "update mxfp8/nvfp4 4x4 f32")

    def test_planes(self):
        self.refused("expected a plane of the line .*found 'row.scales'; did you mean 'row.scale_inv'", row__scales=np.zeros((64, 3), np.uint8))
        self.refused("found 'col.data'", col__data=np.zeros((64, 96), np.uint8))
        self.refused("row.scale_inv: expected 192 or 512 elements, found 6144", row__scale_inv=np.zeros((64, 96), np.uint8))
        self.refused("row.data: expected 6144 elements, found 6143", row__data=np.zeros(6143, np.uint8))
        self.refused("row.data: expected F8_E4M3 or an integer of its width, found float32", row__data=np.zeros((64, 96), np.float32))
        self.refused("x: expected BF16 or an integer of its width, found float32: the line's word bf16 .*write f32 there", x=np.zeros((64, 96), np.float32))
        self.refused(r"row.data: .*found int64; convert it first, for instance row.data.astype\(numpy.uint8\)", row__data=np.zeros((64, 96), np.int64))
        self.refused(r"x: .*found int64; convert it first, for instance x.astype\(numpy.float32\)", x=np.zeros((64, 96), np.int64))
        with self.assertRaisesRegex(PackError, "expected a plane that can be judged"):
            Pack().add_planes(self.LINE, {"x": bf16((64, 96))}, module="m")

    def test_tensors_without_values(self):
        fnuz = thing("Tensor", dtype="torch.float8_e4m3fnuz")
        meta = thing("Tensor", dtype="torch.uint8", device=thing("device", type="meta"))
        self.refused("float8_e4m3fnuz is not judged", row__data=fnuz)
        self.refused("dump outside of torch.compile and of meta devices", row__data=meta)
        self.refused("dump outside of torch.compile", row__data=thing("FakeTensor", dtype="torch.uint8", device="cpu"))
        self.refused("expected a dense tensor, found a sparse one", row__data=thing("Tensor", dtype="torch.uint8", is_sparse=True, device="cpu"))
        try:
            import ml_dtypes
        except ImportError:
            return
        four = np.zeros((64, 3), ml_dtypes.float4_e2m1fn)
        self.refused("row.scale_inv: expected e8m0, found float4_e2m1fn: a tensor of 4-bit codes is no plane of e8m0", row__scale_inv=four)

    def test_numbers_and_dlpack(self):
        line = "quantize fp8_current 4x8 bf16 dir=row"
        only = type("OnlyDlpack", (), {"__dlpack__": lambda self, **k: self.held.__dlpack__(**k), "__dlpack_device__": lambda self: (1, 0)})()
        only.held = np.ones((4, 8), np.uint8)
        pack = Pack()
        pack.add_planes(line, {"x": bf16((4, 8)), "row.amax": 2.0, "row.scale": 224, "row.scale_inv": np.float32(1 / 224), "row.data": only}, module="m")
        self.assertEqual(pack.tensors["step0/m/row.amax"].data, np.float32(2).tobytes())
        self.assertEqual(pack.tensors["step0/m/row.scale"].data, np.float32(224).tobytes())
        self.assertEqual(pack.tensors["step0/m/row.data"].data, bytes([1] * 32))

    LINES = ("quantize mxfp8 33x70 bf16", "quantize mxfp8 33x70 f32 block=32x32 scales=gemm", "quantize nvfp4 32x64 bf16", "quantize nvfp4 33x64 f16 dir=row row_scaled=1",
             "quantize mxfp4 32x96 bf16", "quantize mxfp6 32x96 bf16 packing=packed", "quantize mxfp6 33x96 bf16 element=e3m2 dir=row", "quantize fp8_block 130x260 bf16",
             "quantize fp8_block 130x260 bf16 block=128x128", "quantize fp8_block 130x260 bf16 scales=gemm", "quantize fp8_current 5x7 bf16", "quantize fp8_delayed 5x7 f32 scale=2",
             "quantize fp8_current 5x7 bf16 row_scaled=1", "quantize identity 5x7 f16", "quantize mxfp8/nvfp4 64x96 bf16", "quantize nvfp4/fp8_current 32x96 bf16 noop=0",
             "cast e4m3 3x17 f32", "cast e2m1 3x17 f32 round=sr", "cast f32 1x16 e2m1", "dequantize nvfp4 33x64 bf16 dir=row out=f16", "dequantize fp8_block 130x260 bf16 dir=col scales=gemm",
             "dequantize fp8_current 5x7 bf16 dir=row row_scaled=1", "update fp8_delayed 4x6 f32 reduction=1", "swizzle mxfp8 65x97 e8m0 dir=col", "swizzle mxfp8 65x97 e8m0 dir=row inverse=1",
             "swizzle fp8_block 130x260 f32 dir=row", "scale_chain mxfp8 5x7 f32", "scale_chain mxfp8 5x7 e8m0", "scale_chain nvfp4 5x2 f32", "scale_chain fp8_current 5x7 f32",
             "hadamard nvfp4 32x48 bf16", "philox u32 8x4 u32", "split mxfp8 96x64 bf16 groups=31,0,65", "split nvfp4 48x96 bf16 vary=last groups=32,64 capacity=4700",
             "split mxfp6 1x80 bf16 vary=both groups=8x4,4x12 packing=packed capacity=99", "split fp8_delayed 33x64 bf16 groups=1,32 scale=3", "adam bf16 5x7 bf16", "adam f32 5x7 f32 moments=bf16",
             "scale_state e4m3 5x7 f32", "scale_state e4m3 5x7 e4m3 inverse=1", "gemm a=mxfp8 b=nvfp4 33x18x96 out=f32", "gemm a=fp8_current b=mxfp8 33x18x48 op=NT a.row_scaled=1 bias=f32 beta=1",
             "gemm a=identity b=identity 5x6x7 f32 op=NN", "attention fp8_current 30x48 bf16 batch=2 heads=3 backward=1 layout=bs3hd",
             "attention fp8_delayed 11x48 bf16 batch=3 heads=3 kv_heads=1 layout=thd_th2d lengths=5,0,6 s.scale=256 qkv.scale=16",
             "attention identity/fp8_delayed 22x32 bf16 batch=2 heads=2 codes=e4m3 sums=online",
             "attention mxfp8/fp8_current 256x64 bf16 batch=2 heads=2 backward=1 bias=pre_scale dropout=0.25")

    @needs_program
    def test_shapes_are_the_programs(self):
        """Every plane that the program records of a line is taken as it is, and refused with one element more."""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(f"{folder}/lines.cases").write_text("\n".join(self.LINES) + "\n")
            subprocess.run([PROGRAM, "record", f"{folder}/lines.cases", "--subject", "reference", "--all-bytes", "-o", f"{folder}/r.safetensors"], check=True, capture_output=True)
            tensors, metadata = read(f"{folder}/r.safetensors")
        kinds = {"F32": np.float32, "F16": np.float16, "U32": np.uint32}
        for number, line in enumerate(self.LINES):
            planes = {n.split("/")[1]: np.frombuffer(b, kinds.get(w, np.uint16 if w == "BF16" else np.uint8)) for n, (w, _, b) in tensors.items() if n.startswith(f"{number:06}/")}
            self.assertTrue(planes, line)
            with self.subTest(line):
                Pack().add_planes(line, planes, module="m")
                with self.assertRaisesRegex(PackError, "expected a plane of the line .*, found 'nothing'"):
                    Pack().add_planes(line, {**planes, "nothing": planes[min(planes)]}, module="m")
                for plane in planes:
                    with self.assertRaisesRegex(PackError, f"{plane}: expected .* elements"):
                        Pack().add_planes(line, {**planes, plane: np.append(planes[plane], planes[plane][:1])}, module="m")

    @needs_program
    def test_inputs_are_the_programs(self):
        """The program takes every plane of a line, inputs too, of the counts that the dumper asks for, and knows its name."""
        kinds = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "u32": np.uint32}
        pack = Pack()
        for number, line in enumerate(self.LINES):
            facts = assay_pack.LineFacts(line, "m")
            inputs, outputs = assay_pack.kPlanesOfOp[facts.op](facts)
            planes = {**inputs, **outputs}
            pack.add_planes(line, {plane: np.ones(max(counts), kinds.get(encoding, np.uint8)) for plane, (encoding, counts) in planes.items() if not plane.endswith("given.amax")},
                            module=f"m{number}")
        with tempfile.TemporaryDirectory() as folder:
            told = subprocess.run([PROGRAM, "check", "--no-cause", pack.write(f"{folder}/ones.safetensors")], text=True, capture_output=True)
        self.assertEqual(told.stderr, "")
        self.assertRegex(told.stdout, rf"\d+ passed, \d+ failed, 0 skipped")
        self.assertNotRegex(told.stdout, r"expected \d+ elements|is not a plane|not judged|absent from")

def bf16(shape):
    return np.zeros(shape, np.uint16)   # as bits: NumPy alone has no bfloat16


def te(name, quantizer=None, **fields):
    return thing(name, dtype="torch.bfloat16", _quantizer=thing("Quantizer", **(quantizer or {})), **{f"_{k}": v for k, v in fields.items()})


def te_mxfp8(m, k, quantizer=None, swizzled=False, **more):
    return te("MXFP8Tensor", quantizer, **{"fp8_dtype": "DType.kFloat8E4M3", "with_gemm_swizzled_scales": swizzled,
              "rowwise_data": np.zeros((m, k), np.uint8), "columnwise_data": np.zeros((m, k), np.uint8),
              "rowwise_scale_inv": np.zeros((-(-m // 128) * 128, -(-k // 128) * 4), np.uint8),
              "columnwise_scale_inv": np.zeros((-(-m // 128) * 4, -(-k // 128) * 128), np.uint8), **more})


def te_nvfp4(m, k, quantizer=None, **more):
    return te("NVFP4Tensor", quantizer, **{"fp4_dtype": "kFloat4E2M1", "with_gemm_swizzled_scales": False,
              "rowwise_data": np.zeros((m, k // 2), np.uint8), "columnwise_data": np.zeros((k, m // 2), np.uint8),
              "rowwise_scale_inv": np.zeros((-(-m // 128) * 128, -(-k // 64) * 4), np.uint8),
              "columnwise_scale_inv": np.zeros((-(-k // 128) * 128, -(-m // 64) * 4), np.uint8),
              "amax_rowwise": np.ones(1, np.float32), "amax_columnwise": np.full(1, 2, np.float32), **more})


def te_float8(m, k, quantizer, **more):
    return te("Float8Tensor", quantizer, **{"fp8_dtype": "kFloat8E5M2", "data": np.zeros((m, k), np.uint8), "scale_inv": np.full(1, 0.25, np.float32),
              "transpose": np.zeros((k, m), np.uint8), "transpose_invalid": False, **more})


def te_block(m, k, two, quantizer=None, **more):
    rows, cols = -(-m // 128), -(-k // 128)
    up4 = lambda n: -(-n // 4) * 4
    return te("Float8BlockwiseQTensor", quantizer, **{"fp8_dtype": "kFloat8E4M3", "is_2D_scaled": two,
              "rowwise_data": np.zeros((m, k), np.uint8), "columnwise_data": np.zeros((k, m), np.uint8),
              "rowwise_scale_inv": np.zeros((rows, up4(cols)) if two else (cols, up4(m)), np.float32),
              "columnwise_scale_inv": np.zeros((cols, up4(rows)) if two else (rows, up4(k)), np.float32), **more})


@needs_numpy
class Lines(unittest.TestCase):
    """The line that a tensor and its quantizer's flags give, and its planes."""

    def add(self, tensor, x=None, **more):
        pack = Pack()
        name = pack.add(tensor, x, module="m", **more)
        return (pack.lines[name], sorted(t.rpartition("/")[2] for t in pack.tensors)) if name else None

    def line(self, tensor, x=None, **more):
        return self.add(tensor, x, **more)[0]

    def test_mxfp8(self):
        self.assertEqual(self.add(te_mxfp8(96, 160), bf16((96, 160))), (
            "quantize mxfp8 96x160 bf16 dir=both element=e4m3", ["col.data", "col.scale_inv", "row.data", "row.scale_inv", "x"]))
        self.assertEqual(self.add(te_mxfp8(96, 160, swizzled=True, columnwise_data=None, fp8_dtype="kFloat8E5M2")), (
            "quantize mxfp8 96x160 bf16 dir=row element=e5m2 scales=gemm", ["row.data", "row.scale_gemm"]))
        self.assertEqual(self.line(te_mxfp8(96, 160, {"with_2d_quantization": True}, rowwise_data=None), keys="flavour=te"),
                         "quantize mxfp8 96x160 bf16 dir=col block=32x32 element=e4m3 flavour=te")

    def test_compact_scales_may_come_without_their_padding(self):
        for d, word, shape in (("row", "rowwise", (96, 5)), ("col", "columnwise", (3, 160))):
            other = "columnwise" if d == "row" else "rowwise"
            tensor = te_mxfp8(96, 160, **{f"{word}_scale_inv": np.zeros(shape, np.uint8), f"{other}_data": None})
            self.assertEqual(self.add(tensor), (f"quantize mxfp8 96x160 bf16 dir={d} element=e4m3", [f"{d}.data", f"{d}.scale_inv"]))

    def test_leading_dimensions_are_flattened(self):
        tensor = te_mxfp8(96, 160, rowwise_data=np.zeros((3, 32, 160), np.uint8), columnwise_data=np.zeros((3, 32, 160), np.uint8))
        self.assertEqual(self.line(tensor, bf16((3, 32, 160))), "quantize mxfp8 96x160 bf16 dir=both element=e4m3")

    def test_nvfp4_flags(self):
        base = "quantize nvfp4 48x80 bf16"
        self.assertEqual(self.add(te_nvfp4(48, 80), bf16((48, 80))), (f"{base} dir=both", [
            "col.amax", "col.data", "col.scale_inv", "row.amax", "row.data", "row.scale_inv", "x"]))
        only_row = {"columnwise_data": None}
        for flags, fields, more, line in (
                ({"with_rht": True, "with_post_rht_amax": True, "rht_matrix_random_sign_mask_t": 0xD7E8}, {}, {}, "dir=both col.rht=1 col.sign_mask=0xD7E8"),
                ({"with_2d_quantization": True}, {}, {}, "dir=both block=16x16"),
                ({"stochastic_rounding": True}, {}, {"rng": (7, 8)}, "dir=both round=sr rng=7,8,0"),
                ({}, {}, {"rng": (7, 8)}, "dir=both"),   # rounded to nearest: the state is of no use
                ({"nvfp4_4over6_err_mode": "MSE"}, {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 256, **only_row}, {}, "dir=row e4m3_max=256 four_over_six=mse"),
                ({}, {"row_scaled_nvfp4": True, "amax_rowwise": np.ones(48, np.float32), **only_row}, {}, "dir=row row_scaled=1"),
                ({"with_amax_reduction": True}, {}, {}, "dir=both row.amax=0x3F800000 col.amax=0x40000000"),
                ({}, only_row, {"amax": "recorded"}, "dir=row amax=0x3F800000"),
                ({}, only_row, {"amax": 3}, "dir=row amax=0x40400000"),
                ({}, {"with_gemm_swizzled_scales": True, **only_row}, {}, "dir=row scales=gemm"),
                ({}, {"rowwise_data": None}, {}, "dir=col")):
            self.assertCountEqual(self.line(te_nvfp4(48, 80, flags, **fields), **more).split(), f"{base} {line}".split())
        # rows alone of a tensor that is rotated: the fused kernel made them, where it fits
        rotated, te = {"with_rht": True, "rht_matrix_random_sign_mask_t": 0xD7E8}, {"keys": "flavour=te arch=sm100"}
        for (rows, cols), keys, dispatch in (((64, 128), te, True), ((64, 128), {}, False), ((96, 128), te, False), ((64, 128), {"keys": "flavour=te arch=sm120"}, False)):
            self.assertEqual("dispatch=rhtrc" in self.line(te_nvfp4(rows, cols, rotated, **only_row), **keys), dispatch)
        with self.assertRaisesRegex(PackError, "with_post_rht_amax: expected True"):
            self.line(te_nvfp4(48, 80, {"with_rht": True, "with_post_rht_amax": False}))

    def test_codes_of_an_unknown_random_state_are_left_out(self):
        with self.assertWarnsRegex(UserWarning, "pass rng="):
            _, planes = self.add(te_nvfp4(48, 80, {"stochastic_rounding": True}))
        self.assertEqual(planes, ["col.amax", "col.scale_inv", "row.amax", "row.scale_inv"])

    def test_fp8_block(self):
        self.assertEqual(self.line(te_block(256, 384, True)), "quantize fp8_block 256x384 bf16 dir=both block=128x128 element=e4m3")
        self.assertEqual(self.line(te_block(130, 200, False, {"force_pow_2_scales": False, "amax_epsilon": 1.0})),
                         "quantize fp8_block 130x200 bf16 dir=both block=1x128 element=e4m3 eps=0x3F800000 pow2=0")
        self.assertEqual(self.line(te_block(130, 200, False, rowwise_data=None)), "quantize fp8_block 130x200 bf16 dir=col block=1x128 element=e4m3")
        with self.assertRaisesRegex(PackError, "GEMM_READY.*found .*COMPACT"):
            self.line(te_block(128, 128, False, data_format="Float8BlockScaleTensorFormat.COMPACT"))

    def test_per_tensor_fp8(self):
        current = {"amax_epsilon": 0.0, "force_pow_2_scales": True, "scale": np.ones(1, np.float32)}
        self.assertEqual(self.add(te_float8(32, 48, current)), ("quantize fp8_current 32x48 bf16 dir=both element=e5m2 pow2=1", [
            "col.data", "col.scale_inv", "row.data", "row.scale_inv"]))
        self.assertEqual(self.line(te_float8(32, 48, current, transpose_invalid=True), amax=2.0), "quantize fp8_current 32x48 bf16 dir=row amax=0x40000000 element=e5m2 pow2=1")
        self.assertEqual(self.line(te_float8(32, 48, current, data=None)), "quantize fp8_current 32x48 bf16 dir=col element=e5m2 pow2=1")
        delayed = {"scale": np.full(1, 4, np.float32), "amax": np.ones(1, np.float32)}
        self.assertEqual(self.line(te_float8(32, 48, delayed)), "quantize fp8_delayed 32x48 bf16 dir=both element=e5m2 scale=0x40800000")
        moved = {"scale": np.full(1, 8, np.float32)}
        with self.assertRaisesRegex(PackError, "reciprocal of _scale_inv = 0.25, found 8.0: the quantizer was updated since; pass the earlier scale as scale="):
            self.line(te_float8(32, 48, moved))
        self.assertEqual(self.line(te_float8(32, 48, moved), scale=4), "quantize fp8_delayed 32x48 bf16 dir=both element=e5m2 scale=0x40800000")
        bare = te_float8(32, 48, {})
        bare._quantizer = None
        with self.assertRaisesRegex(PackError, 'pass format="fp8_current"'):
            self.line(bare)
        self.assertEqual(self.line(bare, format="fp8_current"), "quantize fp8_current 32x48 bf16 dir=both element=e5m2")

    def test_identity_and_hybrid(self):
        identity = te("IdentityTensor", hp_data=np.zeros((64, 96), np.float32))
        self.assertEqual(self.add(identity), ("quantize identity 64x96 f32 dir=row", ["row.data"]))
        hybrid = lambda row, col, source="original": te("HybridQuantizedTensor", {"columnwise_source": source}, rowwise_storage=row, columnwise_storage=col)
        row, col = te_mxfp8(64, 96, columnwise_data=None), te_nvfp4(64, 96, {"with_2d_quantization": True}, rowwise_data=None)
        self.assertEqual(self.add(hybrid(row, col), bf16((64, 96))), ("quantize mxfp8/nvfp4 64x96 bf16 dir=both col.block=16x16 row.element=e4m3", [
            "col.amax", "col.data", "col.scale_inv", "row.data", "row.scale_inv", "x"]))
        self.assertEqual(self.line(hybrid(row, None)), "quantize mxfp8 64x96 bf16 dir=row element=e4m3")
        self.assertEqual(self.add(hybrid(row, te("IdentityTensor", hp_data=bf16((64, 96)))), np.zeros((64, 96), np.float16), keys="")[1],
                         ["col.data", "row.data", "row.scale_inv", "x"])
        self.assertIn("col_source=row_dequantized", self.line(hybrid(row, col, "rowwise_dequantized")))
        with self.assertRaisesRegex(PackError, "_columnwise_storage to hold col data, found row data"):
            self.line(hybrid(row, te_mxfp8(64, 96, columnwise_data=None)))
        with self.assertRaisesRegex(PackError, "_rowwise_storage to hold row data, found col data"):
            self.line(hybrid(te_mxfp8(64, 96, rowwise_data=None), None))
        with self.assertRaisesRegex(PackError, "one shape, found .*32x96"):
            self.line(hybrid(row, te_nvfp4(32, 96, rowwise_data=None)))

    def test_noop(self):
        self.assertIn(" noop=0x40000000", self.line(te_mxfp8(32, 32), noop=np.full(1, 2, np.float32)))
        with self.assertWarnsRegex(UserWarning, "noop is 1"):
            self.assertIsNone(self.add(te_mxfp8(32, 32), noop=1))

    def test_torchao_mx(self):
        mx = lambda data, scale, element="torch.float8_e4m3fn", **more: thing("MXTensor", **{
            "qdata": data, "scale": scale, "elem_dtype": element, "block_size": 32, "orig_dtype": "torch.bfloat16", "is_swizzled_scales": False, **more})
        self.assertEqual(self.add(mx(np.zeros((64, 96), np.uint8), np.zeros((64, 3), np.uint8)), bf16((64, 96))), (
            "quantize mxfp8 64x96 bf16 dir=row element=e4m3", ["row.data", "row.scale_inv", "x"]))
        self.assertEqual(self.line(mx(np.zeros((64, 48), np.uint8), np.zeros((64, 3), np.uint8), "torch.float4_e2m1fn_x2")), "quantize mxfp4 64x96 bf16 dir=row")
        swizzled = mx(np.zeros((64, 96), np.uint8), np.zeros((128, 4), np.uint8), is_swizzled_scales=True)
        self.assertEqual(self.add(swizzled), ("quantize mxfp8 64x96 bf16 dir=row element=e4m3 scales=gemm", ["row.data", "row.scale_gemm"]))
        newer = mx(np.zeros((64, 96), np.uint8), np.zeros((128, 4), np.uint8), swizzle_type=thing("Swizzle_32_4_4"))
        self.assertIn("scales=gemm", self.line(newer))
        for word in ("fp6_e3m2", "fp6_e2m3"):
            self.assertEqual(self.line(mx(np.zeros((64, 96), np.uint8), np.zeros((64, 3), np.uint8), word)), f"quantize mxfp6 64x96 bf16 dir=row element={word[4:]}")
        with self.assertRaisesRegex(PackError, "blocks of 32 of .*found 32 of int6"):
            self.line(mx(np.zeros((64, 96), np.uint8), np.zeros((64, 3), np.uint8), "int6"))
        with self.assertRaisesRegex(PackError, "blocks of 32 of .*found 16 of float8_e4m3fn"):
            self.line(mx(np.zeros((64, 96), np.uint8), np.zeros((64, 6), np.uint8), block_size=16))

    def test_torchao_columns_are_turned_back(self):
        data, scale = np.arange(96 * 64, dtype=np.uint32).astype(np.uint8).reshape(96, 64), np.arange(96 * 2, dtype=np.uint8).reshape(96, 2)
        pack = Pack()
        name = pack.add(thing("MXTensor", qdata=data.T, scale=scale.T, elem_dtype="torch.float8_e5m2", block_size=32, orig_dtype="torch.float32", is_swizzled_scales=False), module="m")
        self.assertEqual(pack.lines[name], "quantize mxfp8 64x96 f32 dir=col element=e5m2")
        self.assertEqual(pack.tensors[f"{name}/col.data"].data, data.T.tobytes())
        self.assertEqual(pack.tensors[f"{name}/col.scale_inv"].data, scale.T.tobytes())
        nv = thing("NVFP4Tensor", qdata=data.T, scale=np.zeros((96, 8), np.uint8).T, block_size=16, orig_dtype="torch.float32", per_tensor_scale=None, is_swizzled_scales=False)
        name = pack.add(nv, module="n")
        self.assertEqual(pack.lines[name], "quantize nvfp4 128x96 f32 dir=col")
        self.assertEqual(pack.tensors[f"{name}/col.data"].data, data.tobytes())   # columns of NVFP4 are stored transposed

    def test_torchao_float8_scaled_by_tensor_row_and_column(self):
        torch = torch_stand_in()
        sys.modules["torch"] = torch
        self.addCleanup(sys.modules.pop, "torch")
        data = np.arange(6 * 8, dtype=np.uint8)
        codes = lambda *shape: torch.Tensor(data, "torch.float8_e4m3fn", shape)
        training = lambda scale, axis, shape=(6, 8): thing("Float8TrainingTensor", _data=codes(*shape), _scale=scale, _orig_dtype="torch.bfloat16", _axiswise_dim=axis)
        weights = lambda scale, block: thing("Float8Tensor", qdata=codes(6, 8), scale=scale, block_size=block, mm_config=None, dtype="torch.bfloat16")
        one, rows, columns = np.ones((1, 1), np.float32), np.ones((6, 1), np.float32), np.ones((1, 8), np.float32)
        for tensor, keys, stem in (
                (training(np.float32(2), None), "dir=row element=e4m3", "row.scale"), (training(rows, -1), "dir=row element=e4m3 row_scaled=1", "row.scale"),
                (training(columns, 0), "dir=col element=e4m3 row_scaled=1", "col.scale"), (weights(one, []), "dir=row element=e4m3", "row.scale_inv"),
                (weights(one, [6, 8]), "dir=row element=e4m3", "row.scale_inv"), (weights(rows, [1, 8]), "dir=row element=e4m3 row_scaled=1", "row.scale_inv"),
                (weights(columns, [6, 1]), "dir=col element=e4m3 row_scaled=1", "col.scale_inv"), (training(rows, -1, (2, 3, 8)), "dir=row element=e4m3 row_scaled=1", "row.scale")):
            with self.subTest(keys=keys, stem=stem):
                self.assertEqual(self.add(tensor, bf16((6, 8))), (f"quantize fp8_current 6x8 bf16 {keys}", sorted([stem, stem[:4] + "data", "x"])))
        pack = Pack()
        name = pack.add(training(columns, 0), module="m")
        self.assertEqual(pack.tensors[f"{name}/col.data"].data, data.reshape(6, 8).T.tobytes())
        with self.assertRaisesRegex(PackError, r"found blocks of \[1, 4\] in \[6, 8\]"):
            self.add(weights(rows, [1, 4]))
        with self.assertRaisesRegex(PackError, "expected 6 scales, found .*1, 8"):
            self.add(weights(columns, [1, 8]))
        with self.assertRaisesRegex(PackError, "found axis 0 of .*2, 3, 8"):
            self.add(training(columns, 0, (2, 3, 8)))

    def test_torchao_nvfp4_by_either_version_of_its_names(self):
        data, scale = np.zeros((64, 48), np.uint8), np.zeros((64, 6), np.uint8)
        new = thing("NVFP4Tensor", qdata=data, scale=scale, block_size=16, orig_dtype="torch.bfloat16", per_tensor_scale=None, is_swizzled_scales=False)
        old = thing("NVFP4Tensor", qdata=data, _scale_e4m3=scale, _block_size=16, _orig_dtype="torch.bfloat16", _per_tensor_scale=None, _is_swizzled_scales=False)
        for tensor in (new, old):
            self.assertEqual(self.add(tensor), ("quantize nvfp4 64x96 bf16 dir=row", ["row.data", "row.scale_inv"]))
        new.block_size = 32
        with self.assertRaisesRegex(PackError, "blocks of 16, found 32"):
            self.add(new)

    def test_what_is_refused(self):
        for message, tensor, more in (
                (r"row.scale_inv: expected \[128, 8\] elements, or \[96, 5\] without padding, found \[96, 8\]", te_mxfp8(96, 160, rowwise_scale_inv=np.zeros((96, 8), np.uint8)), {}),
                (r"expected \[128, 8\] elements, found \[96, 5\]", te_mxfp8(96, 160, swizzled=True, rowwise_scale_inv=np.zeros((96, 5), np.uint8)), {}),
                ("row.scale_inv: expected F8_E8M0 or an integer of its width, found float32", te_mxfp8(96, 160, rowwise_scale_inv=np.zeros((128, 8), np.float32)), {}),
                ("row.scale_inv: expected F8_E8M0 or an integer of its width, found uint16", te_mxfp8(96, 160, rowwise_scale_inv=np.zeros((128, 8), np.uint16)), {}),
                ("row.data: expected F8_E4M3 or an integer of its width, found bool", te_mxfp8(96, 160, rowwise_data=np.zeros((96, 160), bool)), {}),
                ("row.scale_inv: expected an array, found None", te_mxfp8(96, 160, rowwise_scale_inv=None), {}),
                ("expected _rowwise_data or _columnwise_data, found neither", te_mxfp8(96, 160, rowwise_data=None, columnwise_data=None), {}),
                ("named for E4M3, E5M2, E2M3, E3M2 or E2M1, found kByte", te_mxfp8(96, 160, fp8_dtype="kByte"), {}),
                (r"m: x: expected 96x160 when flattened, found \[160, 96\]", te_mxfp8(96, 160), {"x": bf16((160, 96))}),
                ("m: x: expected float32, bfloat16 or float16, found uint8", te_mxfp8(96, 160), {"x": np.zeros((96, 160), np.uint8)}),
                ('amax="recorded": expected an NVFP4 tensor', te_float8(32, 32, {"amax_epsilon": 0.0}), {"amax": "recorded"})):
            with self.assertRaisesRegex(PackError, message):
                self.line(tensor, **more)


@needs_program
class Judged(unittest.TestCase):
    """Bytes from `assay record`, as the libraries would hold them: `assay check` must agree with the line that the dumper writes."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def recorded(self, line):
        """Planes of a line, and its x: what identity makes of it."""
        words = line.split()
        return {"x": self.planes(" ".join(["quantize identity", *words[2:4], "dir=row", *(w for w in words if w[:5] in ("fill=", "seed="))]))["row.data"],
                **self.planes(line)}

    def planes(self, line):
        path = f"{self.folder.name}/recorded.safetensors"
        subprocess.run([PROGRAM, "record", line, "--subject", "reference", "--all-bytes", "-o", path], check=True, capture_output=True)
        tensors, _ = read(path)
        kinds = {"F32": np.float32, "BF16": np.uint16}
        return {n.rpartition("/")[2]: np.frombuffer(b, kinds.get(t, np.uint8)).reshape(s) for n, (t, s, b) in tensors.items()}

    def check(self, tensor, x, **more):
        pack = Pack()
        pack.add(tensor, x, module="blocks.0.fc1", role="weight", step=2, **more)
        done = subprocess.run([PROGRAM, "check", pack.write(f"{self.folder.name}/dump.safetensors")], text=True, capture_output=True)
        return done.stdout + done.stderr

    def fields(self, p):
        """A TransformerEngine tensor's buffers from recorded planes."""
        out = {}
        for d, word in (("row", "rowwise"), ("col", "columnwise")):
            out[f"{word}_data"] = p.get(f"{d}.data")
            out[f"{word}_scale_inv"] = p.get(f"{d}.scale_inv", p.get(f"{d}.scale_gemm"))
            out[f"amax_{word}"] = p[f"{d}.amax"].reshape(-1) if f"{d}.amax" in p else None
        return out

    def packed(self, codes):
        return codes if codes is None else (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)

    def test_agree(self):
        mx = lambda p, **more: te_mxfp8(64, 96, **{**self.fields(p), **more})
        for line, tensor in (
                ("mxfp8 64x96 bf16 dir=both", mx),
                ("mxfp8 64x96 bf16 dir=both scales=gemm", lambda p: mx(p, with_gemm_swizzled_scales=True)),
                ("mxfp8 64x96 bf16 dir=both block=32x32 element=e5m2", lambda p: te_mxfp8(64, 96, {"with_2d_quantization": True}, fp8_dtype="kFloat8E5M2", **self.fields(p))),
                ("nvfp4 48x80 bf16 dir=both rht=1", lambda p: te_nvfp4(48, 80, {"with_rht": True, "rht_matrix_random_sign_mask_t": 0xD7E8}, **self.nvfp4(p))),
                ("nvfp4 48x80 bf16 dir=both round=sr rng=5,6,0", lambda p: te_nvfp4(48, 80, {"stochastic_rounding": True}, **self.nvfp4(p))),
                ("nvfp4 48x80 bf16 dir=row row_scaled=1", lambda p: te_nvfp4(48, 80, row_scaled_nvfp4=True, **self.nvfp4(p))),
                ("nvfp4 48x80 bf16 dir=row four_over_six=mse e4m3_max=256", lambda p: te_nvfp4(48, 80, {"nvfp4_4over6_err_mode": "MSE"}, nvfp4_use_4over6=True, nvfp4_e4m3_max=256, **self.nvfp4(p))),
                ("fp8_block 130x200 bf16 dir=both block=1x128 pow2=0", lambda p: te_block(130, 200, False, {"force_pow_2_scales": False}, **self.fields(p))),
                ("fp8_block 256x384 bf16 dir=both block=128x128", lambda p: te_block(256, 384, True, **self.fields(p))),
                ("fp8_current 32x48 bf16 dir=both element=e5m2", lambda p: te_float8(32, 48, {"amax_epsilon": 0.0}, data=p["row.data"], transpose=p["col.data"], scale_inv=p["row.scale_inv"])),
                ("fp8_delayed 32x48 bf16 dir=row element=e5m2 scale=3", lambda p: te_float8(32, 48, {"scale": np.full(1, 3, np.float32)}, data=p["row.data"], transpose=None, scale_inv=p["row.scale_inv"])),
                ("identity 32x48 bf16 dir=row", lambda p: te("IdentityTensor", hp_data=p["row.data"]))):
            with self.subTest(line):
                planes = self.recorded(f"quantize {line} fill=outliers seed=3")
                more = {"rng": (5, 6)} if "rng" in line else {}
                self.assertIn("1 passed, 0 failed, 0 skipped", self.check(tensor(planes), planes["x"], **more))

    def nvfp4(self, p):
        fields = self.fields(p)
        for name in ("rowwise_data", "columnwise_data"):
            if fields[name] is not None and fields[name].shape[-1] in (48, 80):
                fields[name] = self.packed(fields[name])
        return fields

    def test_torchao_float8_rows_and_columns(self):
        torch = torch_stand_in()
        sys.modules["torch"] = torch
        self.addCleanup(sys.modules.pop, "torch")
        for d, axis in (("row", -1), ("col", 0)):
            p = self.recorded(f"quantize fp8_current 33x48 bf16 dir={d} row_scaled=1 fill=outliers")
            turn = (lambda a: a) if d == "row" else (lambda a: np.ascontiguousarray(a.T))
            codes = torch.Tensor(turn(p[f"{d}.data"]).reshape(-1), "torch.float8_e4m3fn", (33, 48))
            training = thing("Float8TrainingTensor", _data=codes, _scale=turn(p[f"{d}.scale"]), _orig_dtype="torch.bfloat16", _axiswise_dim=axis)
            weights = thing("Float8Tensor", qdata=codes, scale=turn(p[f"{d}.scale_inv"]), block_size=[1, 48] if d == "row" else [33, 1], mm_config=None, dtype="torch.bfloat16")
            for tensor in (training, weights):
                with self.subTest(direction=d, tensor=type(tensor).__name__):
                    self.assertIn("1 passed, 0 failed, 0 skipped", self.check(tensor, p["x"]))

    def test_torchao_float8_in_blocks(self):
        torch = torch_stand_in()
        sys.modules["torch"] = torch
        self.addCleanup(sys.modules.pop, "torch")
        for block, name in ([1, 128], "1x128"), ([128, 128], "128x128"):
            with self.subTest(name):
                p = self.recorded(f"quantize fp8_block 128x256 bf16 dir=row block={name} pow2=0 fill=outliers")
                scale = p["row.scale_inv"][:, :128].T if block[0] == 1 else p["row.scale_inv"][:, :2]
                tensor = thing("Float8Tensor", qdata=torch.Tensor(p["row.data"].reshape(-1), "torch.float8_e4m3fn", (128, 256)), scale=np.ascontiguousarray(scale), block_size=block,
                               mm_config=None, dtype="torch.bfloat16")
                self.assertIn("1 passed, 0 failed, 0 skipped", self.check(tensor, p["x"]))
                tensor.scale = tensor.scale[:1, :1]
                with self.assertRaisesRegex(PackError, "row.scale_inv: expected .* scales, found"):
                    self.check(tensor, p["x"])

    def test_torchao_columns(self):
        for layout in ("compact", "gemm"):
            with self.subTest(layout):
                p = self.recorded(f"quantize mxfp8 64x96 bf16 dir=col scales={layout} fill=outliers")
                turned = np.ascontiguousarray(p["col.data"].T).T   # as x.t() quantized and returned as .t()
                scale = np.ascontiguousarray(p["col.scale_inv"][:2, :96].T).T if layout == "compact" else p["col.scale_gemm"].reshape(128, 4)
                tensor = thing("MXTensor", qdata=turned, scale=scale, elem_dtype="torch.float8_e4m3fn", block_size=32, orig_dtype="torch.bfloat16",
                               is_swizzled_scales=layout == "gemm")
                self.assertIn("1 passed, 0 failed, 0 skipped", self.check(tensor, p["x"]))

    def test_a_wrong_byte_is_found_where_it_stands(self):
        p = self.recorded("quantize mxfp8 64x96 bf16 dir=row fill=outliers")
        p["row.data"] = p["row.data"].copy()
        p["row.data"][5, 7] ^= 1
        told = self.check(te_mxfp8(64, 96, **self.fields(p)), p["x"])
        self.assertIn("0 passed, 1 failed, 0 skipped", told)
        self.assertRegex(told, r"first divergence: .*step2/blocks.0.fc1/weight, plane row.data")


@unittest.skipIf(PROGRAM is None, "no assay program")
class Libraries(unittest.TestCase):
    def test_packs_part_where_their_readme_says(self):
        folder = ROOT / "fixtures/packs/libraries"
        rows = [[c.strip() for c in line.split("|")[1:-1]] for line in (folder / "README.md").read_text().splitlines() if line.startswith("| ")]
        said = {(pack, module, role): plane for pack, module, *planes, _ in rows[2:] for role, plane in zip(rows[0][2:5], planes) if plane}
        told = subprocess.run([PROGRAM, "check", folder], text=True, capture_output=True).stdout
        found = {}
        for line in told.splitlines():
            if case := re.match(r"(passed|FAILED) .*/(\w+)\.safetensors:step0/(\S+)/(\w+)", line):
                name = case.group(2, 3, 4)
                found[name] = "-" if case.group(1) == "passed" else "?"
            elif cause := re.match(r"  cause +(\S+)", line):
                found[name] = cause.group(1)
        self.assertEqual(found, said)


def main():
    warnings.simplefilter("always")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    failed = len({str(getattr(t, "test_case", t)) for t, _ in result.failures + result.errors})   # subtests count as their test
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
