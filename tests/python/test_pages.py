"""The pages that show Python, and that of plugins: every block of code as it stands there, block by block, and every command; what stands below a command is compared with what it
prints, line by line, up to lines of `...`. A block that does not run here counts as skipped, with its reason (kNotRun, or a library that is not installed)."""
import dataclasses
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torchao_models

import assay

ROOT = pathlib.Path(__file__).resolve().parents[2]
kProgram = pathlib.Path(assay.__file__).parent / "bin/assay"
kCommands = re.compile(r"^(\$ |\$\(ci/build |assay |python3 |mkdir |alias |export |pytest )")
# By page and the beginning of the block.
kNotRun = {
    ("docs/python.md", "python3 -m pip install ."): "ci/python and ci/wheels install the package",
    ("docs/python.md", "$ python3 benchmarks/python_cost.py"): "a measurement of a minute, by hand",
    ("docs/python.md", "$ python3 tests/python/test_fuzz.py --calls 1000000"): "half an hour; test_fuzz.py makes 4000 of these calls",
    ("docs/python-training-walk.md", "$ python3 benchmarks/watch_cost.py"): "a measurement of a minute, by hand",
    ("docs/attention.md", "forward"): "a drawing",
    ("docs/attention.md", "from assay_pack import Pack"): "needs FlashAttention-3 on a GPU; test_attention.py makes such packs",
    ("docs/attention.md", "assay check attention.safetensors"): "judges what the block above would write",
    ("docs/plugins.md", "nvcc "): "needs a GPU; ci/gpu runs that plugin",
    ("docs/from-a-tensor-dump.md", "assay import Model-NVFP4/"): "a checkpoint of several gigabytes; tests/compare has small ones",
    ("docs/from-a-tensor-dump.md", "nvfp4: judged as modelopt.nvfp4"): "what the command above prints",
    ("docs/from-a-tensor-dump.md", "passed   dump.safetensors:a"): "the last line of the verdict on a dump of 3 GB",
    ("docs/from-a-tensor-dump.md", "  judged by simd AVX2: 0 of"): "a line of the verdict on a dump of 800 MB that is wrong everywhere",
}
kPages = ["README.md", "docs/python.md", "docs/assert-quantized.md", "docs/python-training-walk.md", "docs/python-sidecar.md", "docs/from-a-tensor-dump.md",
          "docs/packs.md", "docs/attention.md", "docs/plugins.md"]
# What a page takes for granted, before its first block. The kernel floors its scales, as the pages say.
kBefore = '''
import torch
import assay

def my_kernel(x):
    blocks = x.float().unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1))) - 8
    codes = (blocks * torch.exp2(-exponent).unsqueeze(-1)).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.flatten(-2), (exponent + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
'''


# A tensor of torchao, by its attributes, and what it was made from.
kQuantized = '''
x = torch.randn(64, 256, dtype=torch.bfloat16)
made = assay.quantize(x, "mxfp8")
quantized = type("MXTensor", (), dict(qdata=made["row.data"], scale=made.logical("row.scale_inv"), elem_dtype=torch.float8_e4m3fn, block_size=32, orig_dtype=x.dtype))()
'''


@dataclasses.dataclass
class Block:
    page: str
    number: int
    language: str
    text: str

    @property
    def kind(self):
        """python; commands to type; or what a command prints."""
        return "python" if self.language == "python" else "commands" if kCommands.match(self.text) else "printed"

    def __str__(self):
        return f"{self.page}-{self.number}-{self.kind}"


def blocks_of(page):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M)
    blocks = [Block(page, n + 1, language, text) for n, (language, text) in enumerate(found)]
    return [b for b in blocks if b.kind == "python"] if page == "README.md" else blocks   # the rest of it is about the program


def reason(block):
    """Why a block is not run, or None."""
    for (page, begin), why in kNotRun.items():
        if page == block.page and block.text.startswith(begin):
            return why
    return None


class Page:
    """A reader who types one block after another: names, a folder, and what came last on the screen."""

    def __init__(self, name, folder):
        self.name, self.folder, self.names, self.said, self.process = name, folder, {}, "", None
        scripts = folder / "bin"
        scripts.mkdir()
        (scripts / "assay").write_text(f"#!/bin/sh\nexec {sys.executable} -m assay \"$@\"\n")
        (scripts / "python3").write_text(f"#!/bin/sh\nexec {sys.executable} \"$@\"\n")
        [script.chmod(0o755) for script in scripts.iterdir()]
        self.env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
        self.work = folder / "work"
        self.work.mkdir()

    def python(self, text):
        """Runs a block where the pages before it stand; an AssertionError is what the block shows. What it shows may stand in it as a comment."""
        before = os.getcwd()
        os.chdir(self.work)
        try:
            exec(compile(text, self.name, "exec"), self.names)   # noqa: S102
            self.said = ""
        except AssertionError as error:
            self.said = str(error)
        finally:
            os.chdir(before)

    def command(self, text, timeout=600):
        need_shell()
        done = subprocess.run(["bash", "-c", text], cwd=self.work, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
        assert done.returncode in (0, 1), f"exit {done.returncode} of\n{text}\n{done.stdout}"   # 1: something differs, as the pages say
        self.said = done.stdout

    def close(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=60)


def line_form(line, numbers):
    """A line without what differs between two machines; `numbers` says that the tensor was random."""
    line = re.sub(r"torch=[\w.+]+", "torch=0", " ".join(line.split()))
    return re.sub(r"\d+(\.\d+)?|\^-?\d+", "0", line) if numbers else line


def shows(said, printed, numbers=False):
    """Whether the lines of a page stand in what came, in their order; returns the first that does not, or None."""
    lines = [line_form(line, numbers) for line in said.splitlines()]
    for line in printed.splitlines():
        want = line_form(line, numbers)
        if want in ("", "..."):
            continue
        if want not in lines:
            return line
        lines = lines[lines.index(want) + 1:]
    return None


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    made = {}

    def page(name):
        if name not in made:
            made[name] = Page(name, tmp_path_factory.mktemp("page"))
        return made[name]
    yield page
    [page.close() for page in made.values()]


def need_shell():
    if not (shutil.which("bash") and shutil.which("mkdir")):
        pytest.skip("no shell on PATH")


def need(*modules):
    for module in modules:
        package = module.split(".")[0]   # of a package that is not there no module can be looked for
        if importlib.util.find_spec(package) is None or importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


# ---- what is particular to a page ------------------------------------------------------------------------------------

def readme(page, block):
    need("torch")
    if not page.names:
        page.python(kBefore + "import sys\n" + f"sys.path.append({str(ROOT / 'fixtures/from_python')!r})\n" + kQuantized)
    page.python(block.text)
    if "pack.write" in block.text:
        page.command("assay check dump.safetensors")
        assert "1 passed, 0 failed, 0 skipped" in page.said, page.said
        return
    said = re.search(r"# AssertionError: (.*?) \.\.\.$", block.text, re.M).group(1)
    assert line_form(page.said.splitlines()[0], True).startswith(line_form(said, True)), page.said


def python_page(page, block):
    if block.kind == "python" and "@pytest.mark.assay" in block.text:
        module = "import pytest\nimport assay\nx = assay.fill((64, 256))\nkernel = lambda x: assay.quantize(x, 'mxfp8', dir='both')\n"
        (page.work / "test_kernel.py").write_text(module + block.text)
        page.command("python3 -m pytest -q -p no:cacheprovider test_kernel.py")
        assert "1 passed" in page.said, page.said
    elif block.kind == "python":
        need("torch")
        page.python(kBefore)
        page.python(block.text)
        assert page.said
    elif block.kind == "printed":
        need("torch")
        assert shows(page.said, block.text, numbers=True) is None, f"{shows(page.said, block.text, True)}\nis not in\n{page.said}"
    else:
        (page.work / "kernels").mkdir()
        (page.work / "kernels/mxfp8.py").write_text("import assay\n\ndef quantize(x):\n    return dict(assay.quantize(x, 'mxfp8', flavour='ocp'))\n")
        commands = block.text.splitlines()
        assert len(commands) == 3
        for command, said in zip(commands, ("failed", "line.mx_scale=floor", "smaller")):
            page.command(command)
            assert said in page.said or "1x1" in page.said, page.said


def assert_page(page, block):
    need("torch")
    if not page.names:
        page.python(kBefore + textwrap.dedent('''
            torch.manual_seed(0)
            x = torch.randn(64, 256, dtype=torch.bfloat16)
            reference_in_python = my_kernel
            def dequantize(codes, scales):
                return (codes.float().unflatten(-1, (-1, 32)) * scales.float().unsqueeze(-1)).flatten(-2).bfloat16()
            '''))
    page.python(block.text)
    assert page.said.startswith("quantized tensors differ: row.scale_inv") == ("assert_quantized" in block.text), page.said


def walk_page(page, block):
    need("torch", "torchao.prototype.moe_training.mxfp8_linear")
    page.python(block.text)
    assert not page.said, page.said


def sidecar_page(page, block):
    need_shell()
    if block.kind == "commands" and "/shared/" not in block.text:   # as it is typed: it runs until the next block is shown
        page.process = subprocess.Popen(["bash", "-c", f"{block.text.replace('assay watch', 'exec assay watch')}"], cwd=page.work, env=page.env,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return
    if block.kind == "printed":
        dump_a_run(page.work / "dumps")
        log, end = page.work / "dumps/verdicts/verdicts.jsonl", time.monotonic() + 120
        while not (log.is_file() and log.read_text().count('"event": "pack"') == 4):
            assert time.monotonic() < end and page.process.poll() is None, "waited in vain"
            time.sleep(0.1)
        page.process.send_signal(signal.SIGTERM)
        page.said, _ = page.process.communicate(timeout=60)
        assert shows(page.said, block.text) is None, f"{shows(page.said, block.text)}\nis not in\n{page.said}"
        return
    shared = page.work / "shared"
    if not shared.is_dir():
        dump_a_run(shared / "dumps", ".rank3")
    text = block.text.replace("/shared", str(shared))
    if block.kind == "python" and "Client" not in text:
        torchao_models.need_mx()
        import torch
        page.names.update(assay=assay, model=torchao_models.mx(torch.nn.Sequential(torch.nn.Linear(128, 64, dtype=torch.bfloat16))))
        page.python(text)
        page.python("watch.close()")
        assert not page.said
    elif "8786" in text:
        need("dask.distributed")
        from dask.distributed import LocalCluster
        with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
            text = text.replace("tcp://scheduler:8786", cluster.scheduler_address)
            if block.kind == "python":
                page.names.update(assay=assay, paths=[str(p) for p in sorted((shared / "dumps").glob("*.safetensors"))])
                page.python(text)
                assert page.names["found"].cases == (7, 1, 0), page.names["found"].cases
            else:
                page.command(text.rstrip() + " --once")   # it would wait for more
                assert "7 passed, 1 failed" in page.said, page.said
    else:
        watches = "assay watch" in text
        page.command(text.rstrip() + " --once" if watches else text)
        assert ("7 passed, 1 failed" in page.said) if watches else (shared / "../all.prom").is_file() and "7 right" in page.said, page.said


def dump_a_run(folder, suffix=""):
    """The run of the page: in its last step a bit of one weight is flipped."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in (0, 100, 200, 300):
        pack = assay.Pack(made_by="a test")
        for n, module in enumerate(("fc1", "fc2")):
            x = assay.fill((128, 128), "normal", step + n)
            made = assay.quantize(x, "mxfp8")
            planes = {name: np.array(made[name]) for name in made}
            if (step, module) == (300, "fc2"):
                planes["row.data"].view(np.uint8)[5, 7] ^= 0x40
            pack.add_planes(made.line, {"x": x, **planes}, module=module, role="weight", step=step)
        pack.write(folder / f"step{step:08d}{suffix}.safetensors")


def dump_page(page, block):
    if block.text.startswith("$(ci/build"):   # in the clone, by the program that is built already
        page.command(f"cd {ROOT} && {block.text.replace('$(ci/build cpu assay)', str(page.folder / 'bin/assay'))}")
        return
    need("torch")
    if block.kind == "python" and block.text.startswith("import"):
        shutil.copy(ROOT / "fixtures/from_python/assay_pack.py", page.work)
        (page.work / "dump.py").write_text(block.text)
        page.command("python3 dump.py")
        assert (page.work / "dump.safetensors").is_file(), page.said
    elif block.kind == "python":   # the same program with another line
        line = re.search(r'add_planes\((".*?")', block.text).group(1)
        program = (page.work / "dump.py").read_text()
        (page.work / "dump.py").write_text(re.sub(r'(?<=add_planes\()".*?"', line, program, count=1))
        page.command("python3 dump.py && assay check dump.safetensors")
        assert "6 of 512 differ" in page.said and "1 passed, 1 failed" in page.said, page.said
    elif block.kind == "commands":
        page.command(block.text)
    else:
        assert shows(page.said, block.text) is None, f"{shows(page.said, block.text)}\nis not in\n{page.said}"


def pack_page(page, block):
    need("torch", "safetensors")
    if not page.names:
        page.python(textwrap.dedent('''
            import sys, os, torch, numpy as np, assay
            sys.path.append(%r)
            x = torch.randn(64, 256, dtype=torch.bfloat16)
            x_bits, made = x.view(torch.uint16).numpy(), assay.quantize(x)
            codes, scales = (made[n].view(torch.uint8).numpy() for n in ("row.data", "row.scale_inv"))
            os.makedirs("dumps", exist_ok=True)

            class MXFP8Tensor:   # the attributes of TransformerEngine's
                def __init__(self, x):
                    q = assay.quantize(x, "mxfp8", dir="both")
                    self._fp8_dtype, self.dtype, self._quantizer = "DType.kFloat8E4M3", x.dtype, None
                    self._rowwise_data, self._rowwise_scale_inv = q["row.data"].view(torch.uint8), q["row.scale_inv"].view(torch.uint8)
                    self._columnwise_data, self._columnwise_scale_inv = q["col.data"].view(torch.uint8), q["col.scale_inv"].view(torch.uint8)

            weight, grad, seed, offset = torch.randn(64, 256).bfloat16(), torch.randn(64, 256).bfloat16(), 7, 0
            weight_q, grad_q = MXFP8Tensor(weight), MXFP8Tensor(grad)
            ''' % str(ROOT / "fixtures/from_python")))
    if block.kind == "python":
        page.python(block.text)
        page.command("assay check " + ("dump.safetensors" if "save_file" in block.text else "dumps/"))
        assert re.search(r"^[13] passed, 0 failed, 0 skipped$", page.said, re.M), page.said
    else:
        pytest.skip("the page shows what a broken dump gives; tests/compare has it")


def attention_page(page, block):
    if block.kind == "commands":
        page.command(block.text)
        assert " 0 failed" in page.said, page.said
        return
    page.python(textwrap.dedent('''
        import assay
        q, k, v, do = (assay.fill((32, 32), "normal", seed).reshape(2, 16, 4, 8) for seed in range(4))
        right = assay.attention(q, k, v, "fp8_current mask=causal", do=do)
        mine, my_dp = right["out"], right["dp"]
        '''))
    page.python(block.text)
    assert "made" in page.names and not page.said, page.said


def plugins_page(page, block):
    """In a folder that looks like the clone. The plugin of the last block truncates; so there is something to find."""
    if not shutil.which("cc"):
        pytest.skip("no compiler on PATH")
    if not (page.work / "contract").exists():
        [(page.work / name).symlink_to(ROOT / name) for name in ("contract", "examples")]
    if "libmine.so" in block.text:
        source = (ROOT / "examples/plugin/example_plugin.c").read_text()
        assert "nearbyint(" in source
        (page.work / "mine.c").write_text(source.replace("nearbyint(", "trunc("))
        page.command("cc -shared -fPIC -O2 -ffp-contract=off -I. mine.c -o libmine.so -lm")
        for command, said in zip(block.text.splitlines(), ("code.toward_zero", "repro", "GB/s"), strict=True):
            page.command(command)
            assert said in page.said, page.said
    elif block.text.startswith("$ "):
        command, printed = block.text.removeprefix("$ ").split("\n", 1)
        page.command(command)
        assert shows(page.said, printed) is None, f"{shows(page.said, printed)}\nis not in\n{page.said}"
    else:
        page.command(block.text)
        said = re.search(r"^This prints `(.*?)`", (ROOT / block.page).read_text(), re.M).group(1)
        assert said in page.said.splitlines(), page.said


kReaders = {"docs/attention.md": attention_page, "README.md": readme, "docs/python.md": python_page, "docs/assert-quantized.md": assert_page, "docs/python-training-walk.md": walk_page,
            "docs/python-sidecar.md": sidecar_page, "docs/from-a-tensor-dump.md": dump_page, "docs/packs.md": pack_page,
            "docs/plugins.md": plugins_page}


@pytest.mark.parametrize("block", [b for page in kPages for b in blocks_of(page)], ids=str)
def test_block(block, pages):
    if why := reason(block):
        pytest.skip(why)
    if block.kind != "python" and not kProgram.is_file():
        pytest.skip("the package has no program beside it")
    kReaders[block.page](pages(block.page), block)


def test_every_page_is_here():
    """A page that shows Python is in the list, and a reason for not running a block belongs to one that is there."""
    showing = {str(p.relative_to(ROOT)) for p in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if "```python" in p.read_text()}
    assert showing - {"docs/triton.md"} == {p for p in kPages if p in showing}   # test_triton of tests/compare runs that walk
    blocks = [b for page in kPages for b in blocks_of(page)]
    for page, begin in kNotRun:
        assert any(b.page == page and b.text.startswith(begin) for b in blocks), (page, begin)
