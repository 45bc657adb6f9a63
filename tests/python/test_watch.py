"""The custom op and the watch over training runs; skipped where PyTorch is not installed."""
import shutil
import warnings

import numpy as np
import pytest
import torchao_models

torch = pytest.importorskip("torch")

import assay  # noqa: E402


@pytest.fixture
def t(x):
    return torch.tensor(x.astype(np.float32)).to(torch.bfloat16)


def bits(a):
    return bytes(a.contiguous().view(-1).view(torch.uint8).numpy())


# ---- the op ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("spec,dir", [("mxfp8", "row"), ("nvfp4", "both"), ("mxfp4", "col"), ("fp8_current element=e5m2", "row"), ("mxfp8 scales=gemm", "both")])
def test_op_is_quantize(t, spec, dir):
    assert assay.torch.plane_names(t, spec, dir)
    made = torch.ops.assay.reference_quantize(t, spec, dir)
    want = assay.quantize(t, spec, dir=dir)
    assert assay.torch.plane_names(t, spec, dir) == list(want)
    assert [bits(a) for a in made] == [bits(a) for a in want.values()]
    named = assay.torch.reference_quantize(t, spec, dir=dir)
    assert {n: bits(a) for n, a in named.items()} == {n: bits(a) for n, a in want.items()}


@pytest.mark.parametrize("spec", ["mxfp8", "nvfp4", "mxfp4", "fp8_block"])
def test_op_has_a_fake(t, spec):
    torch.library.opcheck(torch.ops.assay.reference_quantize, (t, spec, "both"), test_utils=("test_schema", "test_faketensor"))


def test_op_under_compile(t):
    assert assay.torch
    ours = torch.compile(lambda v: [a.view(torch.uint8).to(torch.int32).sum() for a in torch.ops.assay.reference_quantize(v * 2, "nvfp4", "both")],
                         backend="aot_eager", fullgraph=True)
    assert [int(n) for n in ours(t)] == [int(a.view(torch.uint8).to(torch.int32).sum()) for a in assay.quantize(t * 2, "nvfp4", dir="both").values()]


def compiled(function):
    """By inductor; skipped where it finds no C++ compiler, without which it can generate nothing."""
    if not shutil.which("g++") and not shutil.which("clang++"):
        pytest.skip("no C++ compiler for inductor")
    torch._dynamo.reset()
    return torch.compile(function, backend="inductor", fullgraph=True)


def test_op_under_inductor(t):
    """With the code that torch.compile generates around it: the op's planes leave the graph as they are."""
    assert assay.torch
    for spec in ("mxfp8", "nvfp4", "mxfp4", "fp8_current element=e5m2", "fp8_block scales=gemm", "identity"):
        made = compiled(lambda v: torch.ops.assay.reference_quantize(v * 2, spec, "both"))(t)
        want = assay.quantize(t * 2, spec, dir="both")
        assert [bits(p) for p in made] == [bits(p) for p in want.values()] and [p.dtype for p in made] == [p.dtype for p in want.values()], spec


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("spec", ["mxfp8 element=e5m2", "nvfp4", "fp8_block scales=gemm"])
def test_bits_of_the_op_under_inductor(t, spec, dtype):
    """bits=True: what follows in the graph sees uint8, on which inductor knows every operation; it has no .view of float8_e8m0fnu in PyTorch 2.8."""
    assert assay.torch
    v = t.to(getattr(torch, dtype))

    def step(v):
        return [p.view(torch.uint8).to(torch.int32).sum() for p in torch.ops.assay.reference_quantize(v * 2, spec, "both", bits=True)]

    made, want = compiled(step)(v), assay.quantize(v * 2, spec, dir="both")
    assert [int(n) for n in made] == [int(a.view(torch.uint8).to(torch.int32).sum()) for a in want.values()]
    named = assay.torch.reference_quantize(v * 2, spec, dir="both", bits=True)
    assert {n: bits(p) for n, p in named.items()} == {n: bits(p) for n, p in want.items()}
    assert all(p.dtype == torch.uint8 for n, p in named.items() if n.endswith(".data"))


def test_op_takes_the_random_state(t):
    assert assay.torch
    one, other, again = (bits(torch.ops.assay.reference_quantize(t, "nvfp4 round=sr", "row", rng)[-1]) for rng in ([7, 0], [8, 0], [7, 0]))
    assert one == again != other
    with pytest.raises(assay.LineError, match="mxfp8"):
        torch.ops.assay.reference_quantize(t, "mxfp9")


# ---- the watch, with torchao's modules -------------------------------------------------------------------------------

def mlp():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(128, 64, dtype=torch.bfloat16), torch.nn.GELU(), torch.nn.Linear(64, 128, dtype=torch.bfloat16))


@pytest.fixture
def mx():
    return torchao_models.mx(mlp())


@pytest.fixture
def float8():
    module = pytest.importorskip("torchao.float8")
    model = mlp()
    return module.convert_to_float8_training(model, config=module.Float8LinearConfig(emulate=True))


def train(model, steps, rows=32):
    torch.manual_seed(2)
    optimizer, seen = torch.optim.SGD(model.parameters(), 0.5), []
    for _ in range(steps):
        x = torch.randn(rows, 128, dtype=torch.bfloat16)
        seen.append((x, model[0].weight.detach().clone()))
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()
    return seen


def cases(folder):
    return {c.id: c for c in assay.load(folder)}


@pytest.mark.parametrize("name,flavour", [("mx", "ocp"), ("float8", "torchao.float8")])
def test_torchao(name, flavour, request, tmp_path):
    """Every tensor of every role in the sampled steps is what torchao makes, and was made from what the step had."""
    model = request.getfixturevalue(name)
    with assay.torch.watch(model, every=2, to=tmp_path, keys=f"flavour={flavour}") as watch:
        seen = train(model, 5)
    assert not watch.errors and not watch.dropped and watch.step == 4
    assert [p.rpartition("/")[2] for p in watch.written] == [f"step{n:08d}.safetensors" for n in (0, 2, 4)]
    found = cases(tmp_path)
    for case in found.values():
        assert case.check(), f"{case.id}: {case.check()}"
    for step in (0, 2, 4):
        for module in ("0", "2"):
            assert {f"step{step}/{module}/{role}" for role in ("input", "weight", "grad_output")} <= set(found)
        x, weight = seen[step]
        kept = np.asarray(found[f"step{step}/0/weight"]["x"]).view(np.uint8).tobytes()
        assert np.asarray(found[f"step{step}/0/input"]["x"]).view(np.uint8).tobytes() == bits(x)
        assert kept in (bits(weight), bits(weight.t()))   # Float8Linear quantizes the transposed weight


def test_roles_of_square_layers(tmp_path):
    """Where all shapes are alike, roles are told by the order of the backward pass."""
    torch.manual_seed(0)
    model = torchao_models.mx(torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)))
    x, weight = torch.randn(64, 64, dtype=torch.bfloat16), model[0].weight.detach().clone()
    with assay.torch.watch(model, every=1, to=tmp_path):
        y = model(x)
        y.retain_grad()
        y.float().square().mean().backward()
    found = cases(tmp_path)
    tensors = {"input": x, "weight": weight, "grad_output": y.grad, "input.col": x.t(), "weight.col": weight.t(), "grad_output.col": y.grad.t()}
    roles = {"input", "weight"} | torchao_models.mx_backward_roles()
    assert set(found) == {f"step0/0/{role}" for role in roles}
    for role, tensor in ((r, tensors[r]) for r in sorted(roles)):
        assert np.asarray(found[f"step0/0/{role}"]["x"]).view(np.uint8).tobytes() == bits(tensor), role


def test_weights_that_quantize_has_wrapped(tmp_path):
    """torchao's quantize_ leaves nn.Linear as it is and wraps its weight, whose operations are quantized. Its scales are rounded up, as Assay's are."""
    config = pytest.importorskip("torchao.prototype.moe_training.config")
    if not hasattr(config, "MXFP8TrainingOpConfig"):
        pytest.skip("a torchao without MXFP8TrainingOpConfig")
    from torchao.quantization import quantize_
    model, recipe = mlp(), config.MXFP8TrainingOpConfig.from_recipe(config.MXFP8TrainingRecipe.MXFP8_EMULATED_RCEIL)
    recipe.wgrad_with_hp = True
    try:
        quantize_(model, recipe, filter_fn=lambda module, name: isinstance(module, torch.nn.Linear))
    except AssertionError as refused:   # torchao's own: it needs a newer PyTorch for these weights
        pytest.skip(f"torchao with PyTorch {torch.__version__}: {refused}")
    before = model[0].weight._data.detach().clone()
    with assay.torch.watch(model, every=2, to=tmp_path) as watch:
        train(model, 3)
    found = cases(tmp_path)
    assert not watch.errors and all(case.check() for case in found.values())
    assert set(found) == {f"step{n}/{m}/{role}" for n in (0, 2) for m in (0, 2) for role in ("input", "weight", "grad_output", "weight.col")}
    assert np.asarray(found["step0/0/weight"]["x"]).view(np.uint8).tobytes() == bits(before)
    assert np.asarray(found["step2/0/weight"]["x"]).view(np.uint8).tobytes() != bits(before)


def test_what_is_chosen(mx, tmp_path):
    with assay.torch.watch(mx, every=1, roles=["weight"], to=tmp_path, modules=["2"]) as watch:
        train(mx, 2)
    assert set(cases(tmp_path)) == {f"step{n}/2/{role}" for n in (0, 1) for role in ("weight", "weight.col")} and watch.cases == 4
    with assay.torch.watch(mx, every=1, to=tmp_path / "turns", per_sample=1):
        train(mx, 3)
    assert [{name.split("/")[1] for name in cases(tmp_path / "turns") if name.startswith(f"step{n}/")} for n in range(3)] == [{"0"}, {"2"}, {"0"}]


def test_the_loop_is_as_it_was(mx, tmp_path):
    """Watched or not, training gives the same bits, and nothing of the watch stays behind."""
    import copy
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    other, before = copy.deepcopy(mx), vars(MXTensor)["to_mx"]
    train(other, 3)
    watch = assay.torch.watch(mx, every=2, to=tmp_path)
    train(mx, 3)
    assert vars(MXTensor)["to_mx"] is not before
    watch.close()
    watch.close()
    assert vars(MXTensor)["to_mx"] is before
    assert all(bits(a) == bits(b) for a, b in zip(mx.parameters(), other.parameters()))
    assert not mx._forward_pre_hooks and not any(m._forward_hooks or m._forward_pre_hooks for m in mx)
    mx.eval()
    with assay.torch.watch(mx, every=1, to=tmp_path / "eval") as watch, torch.no_grad():
        mx(torch.zeros(32, 128, dtype=torch.bfloat16))
    assert watch.step == -1 and not watch.written


def test_trouble_is_no_trouble_of_the_training(mx, tmp_path, monkeypatch):
    monkeypatch.setattr(assay.torch.Watch, "_put", lambda *_: 1 / 0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with assay.torch.watch(mx, every=1, to=tmp_path) as watch:
            train(mx, 2)
    assert "ZeroDivisionError" in watch.errors[0] and len([w for w in seen if "training goes on" in str(w.message)]) == 1
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with assay.torch.watch(mx, every=1, to=tmp_path, most_bytes=0) as watch:
            train(mx, 2)
    assert watch.dropped == 2 and not watch.written and "the limit is 0" in watch.errors[0]


def test_wrong_arguments(mx, tmp_path):
    with pytest.raises(assay.AssayError, match="none that match"):
        assay.torch.watch(mlp(), to=tmp_path)
    with pytest.raises(assay.AssayError, match="every="):
        assay.torch.watch(mx, every=0, to=tmp_path)
    with pytest.raises(assay.AssayError, match="found weights"):
        assay.torch.watch(mx, roles=["weights"], to=tmp_path)


# ---- the watch, with stand-ins of TransformerEngine's classes --------------------------------------------------------

class MXFP8Tensor:
    """The attributes of TransformerEngine's MXFP8Tensor."""

    def __init__(self, x):
        q = assay.quantize(x, "mxfp8", dir="both")
        self._fp8_dtype, self.dtype, self._quantizer = "DType.kFloat8E4M3", x.dtype, None
        self._rowwise_data, self._rowwise_scale_inv = q["row.data"].view(torch.uint8), q["row.scale_inv"].view(torch.uint8)
        self._columnwise_data, self._columnwise_scale_inv = q["col.data"].view(torch.uint8), q["col.scale_inv"].view(torch.uint8)


class Quantizer:
    """TransformerEngine's quantizers are called, or their method is."""

    def quantize(self, tensor):
        return MXFP8Tensor(tensor)

    def __call__(self, tensor):
        return self.quantize(tensor)


class TELinear(torch.nn.Linear):
    """Quantizers for each tensor of the GEMMs, and the weight quantized by TransformerEngine's own code and kept."""

    def __init__(self, k, n):
        super().__init__(k, n, dtype=torch.bfloat16)
        self.quantizers = {"scaling_fwd": [Quantizer(), None, Quantizer()], "scaling_bwd": [Quantizer(), None]}
        self._fp8_workspaces = {}

    def forward(self, x):
        self.quantizers["scaling_fwd"][0](x.detach())
        self._fp8_workspaces["weight"] = MXFP8Tensor(self.weight.detach())
        y = super().forward(x)
        y.register_hook(lambda g: (self.quantizers["scaling_bwd"][0](g.detach()), None)[1])
        return y


def test_transformer_engine(tmp_path):
    model = torch.nn.Sequential(TELinear(128, 64), torch.nn.GELU(), TELinear(64, 128))
    with assay.torch.watch(model, every=2, to=tmp_path) as watch:
        seen = train(model, 3)
    assert not watch.errors
    found = cases(tmp_path)
    assert set(found) == {f"step{n}/{m}/{role}" for n in (0, 2) for m in (0, 2) for role in ("input", "weight", "grad_output")}
    assert all(case.check() and "dir=both" in case.line for case in found.values())
    assert np.asarray(found["step2/0/weight"]["x"]).view(np.uint8).tobytes() == bits(seen[2][1])
    assert all("quantize" not in vars(q) for m in (model[0], model[2]) for qs in m.quantizers.values() for q in qs if q)
