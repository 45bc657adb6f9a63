#!/usr/bin/env python3
"""What `assay model` counts beside what Nsight Compute counted on a GPU: a table in Markdown, a row for each launch.

    benchmarks/counters_beside_gpu.py out/counters build/cuda/bin/assay --arch h100

The folder is what `ci/gpu --only counters` left: a table of Nsight Compute for each line of the suite `model`, by its number. Exit status 0: registers
are equal, and sectors within 1 %; 1: some are not, a launch of the model's was not counted, or there was nothing to compare.
"""
import csv
import io
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "ci"))
from gpu_lines import counted_lines  # noqa: E402
from model_beside_gpu import arguments, modelled  # noqa: E402

kSectors = .01
kStores = ["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum"]


def number(text):
    return float(text.replace(",", ""))


def counted(path):
    """Rows of Nsight Compute's table, one for each launch; the first row of it has the units."""
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith('"')]
    return list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]


def pairs(launch, row, elements):
    """(model, GPU) of registers of a thread, sectors loaded, sectors stored, machine instructions of an element."""
    load, store = launch["addresses"]["load"], launch["addresses"]["store"]
    machine = launch["instructions"]["machine"]
    return {
        "registers": (launch["static"]["registers"], number(row["launch__registers_per_thread"])),
        "loaded": (load["requests"] * load["sectors_per_request"], number(row["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"])),
        "stored": (store["requests"] * store["sectors_per_request"], sum(number(row[name]) for name in kStores)),
        "instructions": (machine["all"] if machine else None, number(row["thread_inst_executed"]) / elements),
    }


def off(pair):
    return pair[0] / pair[1] - 1 if pair[1] else float(pair[0] != 0)


def main():
    args = arguments(__doc__, "folder", "what `ci/gpu --only counters` left")
    print("| line | launch | registers | sectors loaded, model / GPU | stored | machine instructions of an element |\n| --- | --- | --- | --- | --- | --- |")
    launches = wrong = 0
    for n, line in enumerate(counted_lines(args.program)):
        path = args.folder / f"{n}.csv"
        if not path.is_file():
            continue
        model = modelled(args.program, line, args.arch, args.nvdisasm)
        if model is None:
            return 1
        rows = counted(path)
        wrong += len(rows) < len(model["launches"])
        for launch, row in zip(model["launches"], rows):
            if launch["entry"] not in row["Kernel Name"]:
                print(f"{line}: {launch['entry']} was expected, {row['Kernel Name']} was counted", file=sys.stderr)
                wrong += 1
                continue
            if launch["blocks"] == 1:
                continue   # a launch of one block moves next to nothing
            p = pairs(launch, row, model["elements"])
            launches += 1
            wrong += p["registers"][0] != p["registers"][1] or any(abs(off(p[name])) > kSectors for name in ("loaded", "stored"))
            per_element = "" if p["instructions"][0] is None else f"{p['instructions'][0]:.2f} / {p['instructions'][1]:.2f}"
            print(f"| `{line}` | {launch['entry']} | {p['registers'][0]} / {p['registers'][1]:.0f} | {p['loaded'][0]:.0f} / {p['loaded'][1]:.0f} | "
                  f"{p['stored'][0]:.0f} / {p['stored'][1]:.0f} | {per_element} |", flush=True)
    print(f"\n{launches - wrong} of {launches} launches: equal registers, and sectors within {kSectors * 100:.0f} %")
    return int(wrong > 0 or launches == 0)


if __name__ == "__main__":
    sys.exit(main())
