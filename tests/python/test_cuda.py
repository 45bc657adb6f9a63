"""Tensors that lie on a GPU, and what a GPU makes of them; skipped where PyTorch finds none."""
import importlib
import json
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torchao_models

import assay

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
kSpecs = ["mxfp8", "mxfp8 element=e5m2 scales=gemm", "nvfp4", "mxfp4", "fp8_current", "fp8_block", "identity"]


def bits(tensor):
    return bytes(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())


@pytest.fixture
def t(x):
    return torch.tensor(x.astype(np.float32)).to(torch.bfloat16).cuda()


def on_gpu(planes):
    return {name: plane.cuda() for name, plane in planes.items()}


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


# ---- arrays of a device ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("spec", kSpecs)
def test_planes_of_a_device_are_judged(spec, t):
    ours = assay.quantize(t, spec, dir="both")
    want = assay.quantize(t.cpu(), spec, dir="both")
    assert {n: bits(p) for n, p in ours.items()} == {n: bits(p) for n, p in want.items()} and ours.copied_bytes == bytes_of(t)
    planes = on_gpu(ours)
    verdict = assay.check(t, planes, spec, dir="both")
    assert verdict, str(verdict)
    assert verdict.copied_bytes == bytes_of(t) + sum(bytes_of(p) for p in planes.values())


def test_a_wrong_bit_on_a_device_is_named(t):
    planes = on_gpu(assay.quantize(t, "mxfp8"))
    planes["row.data"].view(torch.uint8)[3, 70] ^= 1
    verdict = assay.check(t, planes, "mxfp8")
    assert not verdict and "row.data" in str(verdict) and "1 of 16384 differ" in str(verdict) and "row 3" in str(verdict), str(verdict)


def test_views_on_a_device(t):
    want = bits(assay.quantize(t.cpu())["row.data"])
    for form in (t.clone().requires_grad_(), torch.nn.Parameter(t.clone()), t.reshape(2, 32, 256), t.t().contiguous().t(), t.neg().neg(),
                 torch.cat([t, t])[64:], torch.nn.functional.pad(t, (8, 8))[:, 8:-8]):
        assert bits(assay.quantize(form)["row.data"]) == want


def test_what_a_copy_needs(t):
    with pytest.raises(BufferError, match="cuda:0"):
        assay.quantize(t, copy=False)
    large = torch.empty((1 << 30) // 2 + 1024, dtype=torch.bfloat16, device="cuda")
    with pytest.raises(assay.PlaneError, match="device_copy=True"):
        assay.quantize(large.reshape(1024, -1))
    del large


def test_values_of_work_that_is_not_over(t):
    """A tensor is read after all that its stream still had to do."""
    want = bits(assay.quantize(t.cpu() * 2)["row.data"])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        doubled = t * 2
        assert bits(assay.quantize(doubled)["row.data"]) == want


def test_an_array_of_cupy(t, x):
    """An array of another library on a device is refused with what to do."""
    cupy = pytest.importorskip("cupy")
    array = cupy.asarray(np.asarray(x, np.float32))
    with pytest.raises(assay.PlaneError, match="copy it to the CPU first"):
        assay.quantize(array)
    assert assay.check(cupy.asnumpy(array), assay.quantize(np.asarray(x, np.float32)))


# ---- the op ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("spec", kSpecs)
def test_op_on_a_device(spec, t):
    assert assay.torch   # it registers the op
    made = torch.ops.assay.reference_quantize(t, spec, "both")
    want = assay.quantize(t, spec, dir="both")
    assert all(plane.device == t.device for plane in made) and [bits(p) for p in made] == [bits(p) for p in want.values()]


def test_op_under_inductor_on_a_device(t):
    """Between kernels that torch.compile made for the GPU."""
    assert assay.torch
    torch._dynamo.reset()
    ours = torch.compile(lambda v: [p.to(torch.int32) + 1 for p in torch.ops.assay.reference_quantize(v * 2, "mxfp8", "both", bits=True)],
                         backend="inductor", fullgraph=True)
    want = [p.view(torch.uint8).to(torch.int32) + 1 for p in assay.quantize(t * 2, "mxfp8", dir="both").values()]
    assert [bits(p) for p in ours(t)] == [bits(p) for p in want]


# ---- the watch -------------------------------------------------------------------------------------------------------

def mlp():
    torch.manual_seed(0)
    layers = torch.nn.Linear(128, 64, dtype=torch.bfloat16), torch.nn.GELU(), torch.nn.Linear(64, 128, dtype=torch.bfloat16)
    return torch.nn.Sequential(*layers).cuda()


def float8(emulate):
    module = pytest.importorskip("torchao.float8")
    return module.convert_to_float8_training(mlp(), config=module.Float8LinearConfig(emulate=emulate))


def train(model, steps):
    torch.manual_seed(2)
    optimizer, seen = torch.optim.SGD(model.parameters(), 0.5), []
    for _ in range(steps):
        x = torch.randn(32, 128, dtype=torch.bfloat16, device="cuda")
        seen.append((x, model[0].weight.detach().clone()))
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()
    return seen


def watched(model, folder, keys):
    with assay.torch.watch(model, every=2, to=folder, keys=keys) as watch:
        seen = train(model, 5)
    assert not watch.errors and not watch.dropped, watch.errors
    found = {c.id: c for c in assay.load(folder)}
    assert {f"step{n}/{m}/{role}" for n in (0, 2, 4) for m in (0, 2) for role in ("input", "weight", "grad_output")} <= set(found)
    for case in found.values():
        assert case.check(), f"{case.id}: {case.check()}"
    for step in (0, 2, 4):
        assert np.asarray(found[f"step{step}/0/input"]["x"]).view(np.uint8).tobytes() == bits(seen[step][0])
    return found


@pytest.mark.parametrize("emulate", [False, True], ids=["tensor_cores", "emulated"])
def test_float8_of_torchao_on_a_device(emulate, tmp_path):
    watched(float8(emulate), tmp_path, "flavour=torchao.float8")


def test_mxfp8_of_torchao_on_a_device(tmp_path):
    watched(torchao_models.mx(mlp().cpu()).cuda(), tmp_path, "flavour=ocp")


def test_copies_of_a_sample_are_waited_for():
    """The thread that writes packs reads the copies after the stream that was current has made them, also where only planes were copied."""
    from assay._watch import Sample, snapshot, snapshot_source
    sample, stream = Sample(0), torch.cuda.Stream()
    source = torch.zeros(1 << 20, dtype=torch.bfloat16, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)
        source += 1
        sample.items.append(("0", "input", snapshot_source(source), snapshot(source)))
        sample.mark()
    sample.wait()
    _, _, copied, made = sample.items[0]
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        assert bool((copied.cpu() == 1).all()) and bool((made.cpu() == 1).all())
    sample.items[0] = ("0", "weight", None, made)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)
        made += 1
        sample.mark()
    sample.wait()
    with torch.cuda.stream(other):
        assert bool((made.cpu() == 2).all())


# ---- functions and kernels of a user ---------------------------------------------------------------------------------

def run(*words, cwd=None):
    """What `assay run` prints; it must end well."""
    command = [pathlib.Path(assay.__file__).parent / "bin/assay", "run", *words]
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_function_on_a_device(tmp_path):
    """A subject in Python that computes on the GPU, in the process that serves it."""
    (tmp_path / "mine.py").write_text(textwrap.dedent("""
        import torch

        def mxfp8(x):
            blocks = torch.as_tensor(x).cuda().float().reshape(x.shape[0], -1, 32)
            exponent = (blocks.abs().amax(-1).view(torch.int32) >> 23) - 8
            code = exponent.clamp(0, 254)
            inverse = torch.ldexp(torch.ones_like(code, dtype=torch.float32), 127 - code)
            data = (blocks * inverse[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
            return {"row.data": data.reshape(x.shape).cpu(), "row.scale_inv": code.to(torch.uint8).cpu()}
    """))
    line = "quantize mxfp8 {64x256,33x96} bf16 dir=row flavour=ocp fill={normal,amax_edges}"
    assert "4 passed, 0 failed" in run(line, "--python", "mine:mxfp8", "--python-spec", "mxfp8 flavour=ocp", cwd=tmp_path)


@pytest.fixture
def kernels():
    pytest.importorskip("triton")
    for folder in ("fixtures/triton", "fixtures/from_python"):
        if str(ROOT / folder) not in sys.path:
            sys.path.append(str(ROOT / folder))
    return importlib.import_module("mx_kernels"), importlib.import_module("assay_triton")


@pytest.mark.parametrize("name,keys", [("mxfp8_floor", "flavour=ocp"), ("mxfp8_even", "flavour=torchao.even"), ("mxfp8_log2", "flavour=ocp")])
def test_a_triton_kernel_on_a_device_and_interpreted(name, keys, kernels, tmp_path):
    """What Triton launched gives the reference's bytes, and so does the interpreter with the launch file that is written of it."""
    module, assay_triton = kernels
    for fill in ("normal", "amax_edges", "denormal"):
        x = assay.fill((64, 256), fill, 3, "bfloat16", out="torch").cuda()
        want = assay.quantize(x, f"mxfp8 {keys}")
        data, scale = torch.empty(64, 256, dtype=torch.uint8, device="cuda"), torch.zeros(want["row.scale_inv"].shape, dtype=torch.uint8, device="cuda")
        compiled = getattr(module, name)[(64, 2)](x, data, scale, 256, scale.shape[1], TILE=128)
        planes = {"row.data": data.view(torch.float8_e4m3fn), "row.scale_inv": scale.view(torch.float8_e8m0fnu)}
        verdict = assay.check(x, planes, f"mxfp8 {keys}")
        assert verdict, f"{fill}: {verdict}"
    file = json.loads((ROOT / f"fixtures/triton/{name}.json").read_text())
    words = [word for word in file["launches"][0]["args"] if word != "null"]
    assay_triton.write(compiled, tmp_path / name, grid=file["launches"][0]["grid"], args=words, words=file["for"], zeroed=["row.scale_inv"])
    line = f"quantize mxfp8 64x256 bf16 dir=row {keys} fill={{normal,amax_edges,denormal}}"
    assert "3 passed, 0 failed" in run(line, "--ptx-kernel", tmp_path / f"{name}.json")
