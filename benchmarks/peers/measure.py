#!/usr/bin/env python3
"""Times every call of cases.py with one number of threads and says which bytes it gives. benchmarks/peers/run starts it; one case a line, as JSON, on the standard output."""
import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cases  # noqa: E402
import numpy as np  # noqa: E402

kLeastSeconds = 0.004   # of one sample: shorter calls are repeated in it
kMostCalls = 100
kRoundSeconds = 0.1     # of one library in a round: the fast ones have several samples in it
kSlow = 0.2             # seconds of a call of which two rounds are enough


def sampled(function, calls):
    """(wall, processor) seconds of one call, of all its threads."""
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(calls):
        function()
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    return wall / calls, processor / calls


def calls_of(once):
    """How many calls a sample has, by (wall, processor) seconds of one."""
    return int(min(kMostCalls, max(1, kLeastSeconds / max(min(once), 1e-6))))


def samples_of_a_round(function, calls):
    end, samples = time.perf_counter() + kRoundSeconds, []
    while not samples or time.perf_counter() < end:
        samples.append(sampled(function, calls))
    return samples


def told_planes(verdict):
    """The planes that differ: {name: [codes that differ, codes]}."""
    return {name: [plane.differ, plane.of] for name, plane in verdict.planes.items() if plane.differ}


def judged(form, call, x, planes):
    """What the bytes are: equal to the defaults, or where they differ, and whether they are those of the expected flavour. The reference judges, without the vectorised method."""
    import assay
    spec = form.spec if form.op == "quantize" else f"cast {form.spec}"
    outputs = planes if form.op == "quantize" else planes["y"]
    verdict = assay.check(x, outputs, spec, exact=True)
    facts = {"equal": bool(verdict), "differ": told_planes(verdict), "expected": call.flavour, "as_expected": bool(verdict), "equals": "defaults" if verdict else None}
    if call.flavour:
        flavoured = assay.check(x, outputs, spec, flavour=call.flavour, exact=True)
        facts["as_expected"] = bool(flavoured)
        facts["equals"] = facts["equals"] or (call.flavour if flavoured else None)
    return facts


class Subject:
    """A call on one tensor: first called once, judged, and then timed."""

    def __init__(self, form, call, xs):
        self.call, self.x, self.samples = call, xs[call.form], []
        self.function = lambda: call.run(self.x)
        start = time.perf_counter()
        made = self.function()
        self.facts = {"library": call.library, "how": call.how, "threads_of_its_own": call.threads, "first_s": round(time.perf_counter() - start, 3)}
        self.made_by = getattr(made, "made_by", None)
        self.bits = judged(form, call, xs["torch"], call.planes(made))
        self.once = sampled(self.function, 1)
        self.calls = calls_of(self.once)

    def sample(self):
        if self.once[1] < kSlow or len(self.samples) < 2:
            self.samples += samples_of_a_round(self.function, self.calls)

    def row(self, copy):
        wall, processor = zip(*self.samples)
        # An unexpected answer is told beside the time, and fails the run.
        return {**self.facts, **({"made_by": self.made_by} if self.made_by else {}), "bits": self.bits, "seconds": {"min": min(wall), "median": float(np.median(wall))},
                "processor_seconds": {"min": min(processor), "median": float(np.median(processor))}, "samples": len(wall), "calls_a_sample": self.calls,
                "ratio_to_copy": min(wall) / min(w for w, _ in copy)}


def why_none(error):
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def subjects_of(form, source, xs, threads, only):
    """(subjects, rows of those that do not run, with the reason)."""
    found, absent = [], []
    peers = [(name, list_of) for name, list_of in cases.kPeers.items() if not only or name in only]
    for name, list_of in [*peers, ("assay", lambda *_: cases.ours(form, threads))]:
        calls = []
        try:
            calls = list(list_of(form.name, source))
        except cases.Absent as error:
            absent.append({"library": name, "how": "", "absent": str(error)})
        for call in calls:
            if threads > 1 and not call.threads:
                absent.append({"library": call.library, "how": call.how, "absent": "has no threads: see one thread"})
            elif call.most is not None and xs["torch"].numel() > call.most:
                absent.append({"library": call.library, "how": call.how, "absent": f"not run on tensors of more than {call.most} elements: {call.why_most}"})
            else:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found.append(Subject(form, call, xs))
                except Exception as error:   # of a library, any
                    absent.append({"library": call.library, "how": call.how, "failed": True, "absent": f"{type(error).__name__}: {why_none(error)}"})
    return found, absent


def by_the_program(program, form, shape, source, threads, rounds):
    """The vectorised method without Python, as `assay bench` times it; its copy is a memcpy of the program's. None where it has no such line."""
    line = f"{form.op} {form.spec.split()[0]} {shape[0]}x{shape[1]} {source} {'dir=row ' if form.op == 'quantize' else ''}{' '.join(form.spec.split()[1:])} fill=normal seed=1"
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, "bench.json")
        done = subprocess.run([program, "bench", line, "--subject", "simd", "--env", f"threads={threads}", "--repetitions", str(rounds), "--min-time", "0.02", "--output", results],
                              capture_output=True, text=True, check=False)
        rows = json.loads(pathlib.Path(results).read_text())["results"] if done.returncode == 0 else []
    named = {"library": "assay", "how": "simd without a certificate (assay bench)"}
    if not rows:
        skipped = re.search(r"\b0 failed, 1 skipped", done.stdout)
        return {**named, "absent": "the vectorised method has no such line"} if skipped else {**named, "failed": True, "absent": done.stdout[-300:] + done.stderr[-300:]}
    row = rows[0]
    return {**named, "threads_of_its_own": True, "bits": {"equal": True, "differ": {}, "expected": None, "as_expected": True, "equals": "defaults"},
            "seconds": {"min": row["seconds"]["min"], "median": row["seconds"]["median"]}, "samples": row["samples"]}


def copy_of(x, outputs):
    """As many bytes as the quantizer reads and writes, half of them read, copied by torch with its own threads."""
    import torch
    half = (x.numel() * x.element_size() + outputs) // 2
    source, target = torch.ones(half, dtype=torch.uint8), torch.empty(half, dtype=torch.uint8)
    return lambda: target.copy_(source)


def measured(form, shape, source, args):
    """One case: every library's rounds in turn, so that what else the machine does falls on all."""
    import assay
    import torch
    x = assay.fill(shape, "normal", 1, dtype={"bf16": "bfloat16", "f32": "float32"}[source], out="torch")
    values = x.view(torch.int16).numpy().view(cases.needed("ml_dtypes").bfloat16) if source == "bf16" else x.numpy()
    subjects, absent = subjects_of(form, source, {"torch": x, "numpy": values}, args.threads, args.only)
    made = assay.quantize(x, form.spec) if form.op == "quantize" else {"y": assay.cast(x, form.spec)}
    copy, copy_samples = copy_of(x, sum(made[n].numel() * made[n].element_size() for n in made)), []
    calls = calls_of(sampled(copy, 2))
    for _ in range(args.rounds):
        copy_samples += samples_of_a_round(copy, calls)
        for subject in subjects:
            subject.sample()
    rows = [s.row(copy_samples) for s in subjects]
    if args.program:
        rows.append(by_the_program(args.program, form, shape, source, args.threads, args.rounds))
    wall, processor = zip(*copy_samples)
    return {"format": form.name, "line": f"{form.op} {form.spec}", "source": source, "shape": list(shape), "threads": args.threads, "load": round(os.getloadavg()[0], 2),
            "copy": {"seconds": {"min": min(wall), "median": float(np.median(wall))}, "processor_seconds": {"min": min(processor), "median": float(np.median(processor))}},
            "rows": [*rows, *absent]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--formats", nargs="*")
    parser.add_argument("--sources", nargs="*", required=True)
    parser.add_argument("--shapes", nargs="*", required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--program")
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    cases.kCompiles = not args.eager
    out = os.fdopen(os.dup(1), "w")
    with contextlib.redirect_stdout(sys.stderr):   # of libraries
        import torch
        torch.set_num_threads(args.threads)
        for form in cases.kFormats:
            if args.formats and form.name not in args.formats:
                continue
            for source in args.sources:
                for shape in args.shapes:
                    print(json.dumps(measured(form, tuple(int(n) for n in shape.split("x")), source, args)), file=out, flush=True)
                    torch.compiler.reset()


if __name__ == "__main__":
    main()
