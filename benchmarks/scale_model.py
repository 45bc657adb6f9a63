#!/usr/bin/env python3
"""How a command scales over ranks (docs/scale.md): tasks with measured times, handed out as compare/process does it, on 1 to 1,024 simulated ranks.

    benchmarks/scale_model.py build/mpi/bin/assay [--suite ci] [--overhead MICROSECONDS] [--latency MICROSECONDS]

Measured here are the time of each case of the suite by one worker, in processor time, so that other work on the machine counts little; the parts of the
certificate by `certify --estimate`; what rank 0 computes for each task of others, as the processor time of its process under `mpirun -n 2`; and the start
of a process. The latency of a letter is not measured, but stated. Rank 0 works too, on the core on which it handles results.
"""
import argparse
import collections
import heapq
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

kRanks = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
kPiece, kMost, kTasks = 1 << 18, 1 << 22, 64   # compare/commands/certify/task.cpp
kHeld = 2   # compare/process/worker_set.h
kEnvironment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def times_of_cases(program, suite):
    """Seconds of each task; their sum is the processor time of the run without its start."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.jsonl"
        used = processor_seconds([program, "run", suite, "--jobs", "1", "--jsonl", report]) - start_of(program)
        rows = collections.OrderedDict()
        for number, line in enumerate(report.read_text().splitlines()):
            row = json.loads(line)
            if "seconds" in row and "line" in row:
                key = (row["file"], row["line_number"], row["line"])
                rows[key] = rows.get(key, 0) + row["seconds"]
    scale = used / sum(rows.values())
    return [scale * t for t in rows.values()]


def times_of_certificate(program):
    done = subprocess.run([program, "certify", "--estimate"], capture_output=True, text=True, check=True)
    times = []
    for count, hours in re.findall(r" (\d+) +([\d.]+) core-hours$", done.stdout, re.M):
        tasks = -(-int(count) // min(max(int(count) // kTasks // kPiece * kPiece, kPiece), kMost))
        times += [3600 * float(hours) / tasks] * tasks
    return times


def start_of(program):
    return min(processor_seconds([program, "run", "cast e4m3 1x1 bf16", "--jobs", "1"]) for _ in range(3))


def rank_0(launcher):
    for pid in subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True).stdout.split():
        try:
            if "OMPI_COMM_WORLD_RANK=0\0" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                return pid
        except OSError:
            pass
    return None


def seconds_of_rank_0(program, what):
    """Processor seconds of the process that hands out the tasks, without its workers."""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen(["mpirun", "-n", "2", program, "run", what, "--mpi", "--resume", folder, "--jsonl", f"{folder}/report.jsonl"], env=kEnvironment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pid, used = None, 0
        while child.poll() is None:
            pid = pid or rank_0(child.pid)
            try:
                used = int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 if pid else 0
            except (OSError, IndexError):
                pass
            time.sleep(0.002)
    return used


def overhead_of(program, suite, tasks):
    alone = min(seconds_of_rank_0(program, "cast e4m3 1x1 bf16") for _ in range(3))
    return max(min(seconds_of_rank_0(program, suite) for _ in range(3)) - alone, 0) / tasks


def seconds_on(ranks, times, overhead, latency):
    """When the last result has been handled: ranks of one worker each."""
    waiting = collections.deque(times)
    given = [0] * ranks            # tasks of each rank without a result
    busy_until = [0.0] * ranks
    events = []                    # (when a task ends, rank, how long rank 0 had handled results when that was computed)
    free, handled = 0.0, 0.0       # of rank 0: when it is, and for how long it has worked so far

    def feed(rank, now, held=kHeld):
        while given[rank] < held and waiting:
            begin = max(busy_until[rank], now + (latency if rank else 0))
            busy_until[rank] = begin + waiting.popleft()
            given[rank] += 1
            heapq.heappush(events, (busy_until[rank], rank, handled))

    for held in range(1, kHeld + 1):
        for rank in range(ranks):
            feed(rank, 0.0, held)
    while events:
        end, rank, then = heapq.heappop(events)
        if rank == 0 and handled > then + 1e-12:   # its core has handled results meanwhile
            heapq.heappush(events, (end + handled - then, 0, handled))
            busy_until[0] = max(busy_until[0], end + handled - then)
            continue
        free = max(free, end + (latency if rank else 0)) + overhead
        handled += overhead
        given[rank] -= 1
        feed(rank, free)
    return free


def table(name, times, overhead, latency, start):
    alone = start + seconds_on(1, times, overhead, latency)
    print(f"\n{name}: {len(times)} tasks, {sum(times):.0f} s of processor time, the longest {max(times):.2f} s, {1e6 * overhead:.0f} us of rank 0 for each")
    print("| ranks | seconds | efficiency |\n| ---: | ---: | ---: |")
    for ranks in kRanks:
        seconds = start + seconds_on(ranks, times, overhead, latency)
        print(f"| {ranks} | {seconds:.2f} | {alone / seconds / ranks:.2f} |")
    print(f"no number of ranks is faster than {start + max(max(times), len(times) * overhead):.2f} s: the start, and the longest task or rank 0's work", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--suite", default="ci")
    parser.add_argument("--overhead", type=float, help="microseconds of rank 0 for a task; measured where it is not given")
    parser.add_argument("--latency", type=float, default=50, help="microseconds of a letter from one rank to another (default: 50)")
    parser.add_argument("--no-certificate", action="store_true")
    args = parser.parse_args()
    print(f"load of this machine at the beginning: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    start = start_of(args.program)
    times = times_of_cases(args.program, args.suite)
    overhead = args.overhead / 1e6 if args.overhead is not None else overhead_of(args.program, args.suite, len(times))
    print(f"the start of a process takes {start:.2f} s, a letter {args.latency:.0f} us (stated)")
    table(args.suite, times, overhead, args.latency / 1e6, start)
    if not args.no_certificate:
        table("certificate", times_of_certificate(args.program), overhead, args.latency / 1e6, start)
    print(f"load of this machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    sys.exit(main())
