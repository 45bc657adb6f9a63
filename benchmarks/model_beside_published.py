#!/usr/bin/env python3
"""What `assay model` says beside published times of other people's kernels: the table of docs/model.md, in Markdown.

    benchmarks/model_beside_published.py SOURCES build/cpu/bin/assay --nvdisasm FILE

SOURCES is that of ci/kernel_vectors: a folder for each distribution and each clone that fixtures/vectors/kernels/kernels.toml names (here transformer_engine_torch, vllm,
torch, ao and TransformerEngine). nvcc compiles their kernels; nothing of their text is kept. The launches are those of kernels.toml without its own, which put an amax or a state where
the kernel finds it. Rows whose sources are not there are named and left out. Needs nvcc, c++filt and git; any preset of the program.

The last line says how many predictions lie within 15 % of the published time. Exit status 0: every row was modelled; 1: one was not.
"""
import argparse
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
kWithin = .15


def kernel_vectors():
    """The script ci/kernel_vectors as a module: how kernels are compiled and launched is written there once."""
    loader = importlib.machinery.SourceFileLoader("kernel_vectors", str(ROOT / "ci/kernel_vectors"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Row:
    what: str
    timed: str         # GPU and place of publication
    kernel: str        # of kernels.toml
    gpu: str           # of gpus.def
    line: str
    published: float   # microseconds
    less: str = ""     # a line whose time is taken off
    other: tuple = ()  # (text of the entry, another): a template that kernels.toml does not run
    args: tuple = ()   # the last arguments of that one
    arch: str = ""     # of the unit, where kernels.toml has another


kNvfp4 = "quantize nvfp4 65536x7168 bf16 flavour=te"
kB300, kB200 = "B300, TransformerEngine #2412", "B200, ROCm/TransformerEngine #598"
kStochastic = ("tuned_1D_kernel<false, false, false, false>", "tuned_1D_kernel<true, false, false, false>")
kFloor = ("(ScaleCalculationMode)1>", "(ScaleCalculationMode)0>")
kRows = (
    Row("TransformerEngine 2.20.2, NVFP4 tuned, row", kB300, "te_nvfp4_row", "b200", f"{kNvfp4} dir=row", 167),
    Row("the same, stochastic rounding", kB300, "te_nvfp4_row", "b200", f"{kNvfp4} dir=row round=sr", 172, other=kStochastic, args=("scratch.rng:16",)),
    Row("the same, row and column", kB300, "te_nvfp4_both", "b200", f"{kNvfp4} dir=both", 229),
    Row("the same, row and column, stochastic rounding", kB300, "te_nvfp4_stochastic", "b200", f"{kNvfp4} dir=both round=sr", 326),
    Row("TransformerEngine 2.20.2, MXFP8, row", kB200, "te_mxfp8_row", "b200", "quantize mxfp8 8192x8192 bf16 dir=row", 34.8),
    Row("the same, column", kB200, "te_mxfp8_col", "b200", "quantize mxfp8 8192x8192 bf16 dir=col", 39.6),
    Row("the same, row and column", kB200, "te_mxfp8_both", "b200", "quantize mxfp8 8192x8192 bf16 dir=both", 52.3),
    Row("torchao, MXFP8 dim1 (CUDA), rounded up", "B200, torchao's docs (training)", "ao_mxfp8_columns", "b200", "quantize mxfp8 16384x16384 bf16 dir=col", 142.3),
    Row("the same, floor", "B200, torchao's docs (training)", "ao_mxfp8_columns", "b200", "quantize mxfp8 16384x16384 bf16 dir=col", 150.6, other=kFloor),
    Row("vLLM 0.33.0, groups of 128 in shared memory", "H100, helion #3073", "vllm_group_shared", "h100", "quantize fp8_block 8192x2048 bf16 dir=row", 25.6, arch="sm_90a"),
    Row("the same", "B200, helion #3073", "vllm_group_shared", "b200", "quantize fp8_block 8192x2048 bf16 dir=row", 22.6),
    Row("TransformerEngine, NVFP4 four over six", "GB300, TransformerEngine #2972", "te_nvfp4_4over6", "b200", "quantize nvfp4 8192x10240 bf16 dir=both flavour=te four_over_six=mae", 322,
        less="quantize nvfp4 8192x5120 bf16 dir=both flavour=te four_over_six=mae"),
)


def rows_table():
    """kernels.toml, with the floor of torchao's columns among the templates that nvcc makes."""
    table = tomllib.loads((ROOT / "fixtures/vectors/kernels/kernels.toml").read_text())
    for unit in table["unit"]:
        if unit["name"] == "ao_mxfp8":
            unit["text"] += "void* floor_columns = (void*)&mxfp8_quantize_kernel<bfloat16, fp8e4m3, 32, 1, Mode::FLOOR>;\n"
    return table


def launch_file(row, table, vectors, sources, work):
    """The launch file of a row, beside its PTX; vectors.Failed where it cannot be made."""
    kernel = dict(next(k for k in table["kernel"] if k["name"] == row.kernel))
    units = [{**unit, "arch": row.arch} if row.arch and unit["name"] == kernel["unit"] else unit for unit in table["unit"]]
    folder = work / (row.arch or "own")
    folder.mkdir(exist_ok=True)
    vectors.made_from(table, sources, next(u for u in units if u["name"] == kernel["unit"])["library"])
    launches = [dict(launch) for launch in kernel["launches"] if launch.get("unit") != "caller"]
    if row.other:
        launches[0]["entry"] = launches[0]["entry"].replace(*row.other)
        launches[0]["args"] = [*launches[0]["args"][:len(launches[0]["args"]) - len(row.args)], *row.args]
        kernel["for"] = kernel["for"].replace("round=rne", "round=sr") if row.args else kernel["for"]
    kernel.update(launches=launches, name=f"{row.kernel}_{kRows.index(row)}")
    return vectors.launch_file(kernel, vectors.Units(units, sources, folder))


def modelled(program, line, gpu, launches, nvdisasm):
    """(microseconds, limit) of a line."""
    tool = ["--nvdisasm", nvdisasm] if nvdisasm else []
    done = subprocess.run([program, "model", line, "--arch", gpu, "--ptx-kernel", launches, "--json", *tool], capture_output=True, text=True)
    model = json.loads(done.stdout) if done.stdout else None
    if done.returncode or not model:
        raise RuntimeError(model["departing"] if model else done.stderr.strip()[-300:])
    return model["seconds"] * 1e6, model["limit"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path, help="a folder with one folder for each distribution and each clone")
    parser.add_argument("program", type=pathlib.Path, help="the program assay")
    parser.add_argument("--nvdisasm", help="without it machine instructions are not counted")
    args = parser.parse_args()
    vectors, table, within, rows = kernel_vectors(), rows_table(), 0, 0
    print("| kernel | timed on, published in | tensor, bf16 | published | predicted | off | limit |\n| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as work:
        for row in kRows:
            shapes = " less ".join(line.split()[2] for line in (row.line, row.less) if line)
            try:
                launches = launch_file(row, table, vectors, args.sources.resolve(), pathlib.Path(work))
                predicted, limit = modelled(args.program, row.line, row.gpu, launches, args.nvdisasm)
                predicted -= modelled(args.program, row.less, row.gpu, launches, args.nvdisasm)[0] if row.less else 0
            except (vectors.Failed, RuntimeError) as error:
                print(f"{row.what}, {row.timed}: {error}", file=sys.stderr, flush=True)
                continue
            off = predicted / row.published - 1
            rows, within = rows + 1, within + (abs(off) <= kWithin)
            print(f"| {row.what} | {row.timed} | {shapes} | {row.published:g} us | {predicted:.1f} us | {off * 100:+.0f} % | {limit} |", flush=True)
    print(f"\n{within} of {rows} within {kWithin * 100:.0f} %; {len(kRows) - rows} of {len(kRows)} rows without a prediction")
    return 0 if rows == len(kRows) else 1


if __name__ == "__main__":
    sys.exit(main())
