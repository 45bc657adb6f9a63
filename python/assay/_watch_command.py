"""The commands `assay watch` and `assay report`, which the program leaves to the package."""
from __future__ import annotations

import argparse
import http.server
import json
import os
import pathlib
import shutil
import signal
import sys
import threading
from typing import Any, Sequence

from ._errors import AssayError
from ._ledger import State, kName, state_of
from ._sidecar import Settings, Sidecar
from ._watch_view import metrics, screen

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_STATUS = "Exit status: 0 everything that was judged is right; 1 something is wrong; 2 bad usage or an unreadable input; 3 nothing was judged."


def _size(text: str) -> int:
    """Bytes of "500M"."""
    digits = text.upper().removesuffix("B").removesuffix("I")
    unit = digits[-1:] if digits[-1:] in "KMGT" else ""
    try:
        value = float(digits.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        value = 0
    if value < 1 << 20:
        raise argparse.ArgumentTypeError(f"expected a size of at least 1M, such as 2G, found '{text}'")
    return int(value)


def _watch_parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="assay watch", description="Judges the packs in a folder as they come, in the order of the steps, beside a training job "
                                "(assay.torch.watch writes them).", epilog=_STATUS)
    p.add_argument("folder", metavar="DIR", type=pathlib.Path, help="where the packs come")
    p.add_argument("--to", metavar="DIR", type=pathlib.Path, help="where verdicts.jsonl and metrics.prom go (default: DIR/verdicts)")
    p.add_argument("--only", metavar="GLOB", default="*", help="only packs whose name matches, such as '*.rank3.*': one process a node judges its own")
    p.add_argument("--most", metavar="SIZE", type=_size, default=2 << 30, help="the folder and the verdicts stay below it; judged packs go first (default: 2G)")
    p.add_argument("--sdc", action="store_true", help="tell flipped bits from wrong arithmetic (needs NumPy)")
    p.add_argument("--explain", choices=["never", "first", "all"], default="first", help="the divergences whose cause is looked for (default: first)")
    p.add_argument("--budget", metavar="SECONDS", type=float, default=10.0, help="of looking for one cause (default: 10)")
    p.add_argument("--once", action="store_true", help="judge what is there, and end")
    p.add_argument("--idle", metavar="SECONDS", type=float, default=0.0, help="end when nothing has come for so long")
    p.add_argument("--exit-on-divergence", action="store_true", help="end with status 1 at the first wrong tensor")
    p.add_argument("--webhook", metavar="URL", default="", help="POST the first divergence there, as JSON, until it is taken")
    p.add_argument("--prometheus", metavar="FILE", default="", help="where the metrics go (default: metrics.prom beside the verdicts)")
    p.add_argument("--listen", metavar="[HOST:]PORT", default="", help="also serve the metrics at http://HOST:PORT/metrics (HOST: 127.0.0.1)")
    p.add_argument("--interval", metavar="SECONDS", type=float, default=1.0, help="between two looks into the folder (default: 1)")
    p.add_argument("--threads", type=int, default=1, help="of the reference (default: 1; 0: every core)")
    p.add_argument("--nice", type=int, default=10, help="how far this process stands back behind the training job (default: 10)")
    p.add_argument("--dask", metavar="ADDRESS", default="", help="let the workers of a Dask cluster judge (extra: distributed)")
    p.add_argument("--plain", action="store_true", help="a line for each pack also on a terminal")
    return p


def _report_parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="assay report", description="Merges the verdicts that the sidecars of several nodes left in their folders.", epilog=_STATUS)
    p.add_argument("folders", metavar="DIR", nargs="+", type=pathlib.Path, help="folders of packs or of verdicts; folders in them are searched too")
    p.add_argument("--json", action="store_true", help="print the sums as JSON")
    p.add_argument("--prometheus", metavar="FILE", default="", help="also write the merged metrics there")
    return p


class _Metrics(http.server.BaseHTTPRequestHandler):
    """Serves the metrics of a sidecar."""

    def do_GET(self) -> None:
        sidecar: Sidecar = self.server.sidecar  # type: ignore[attr-defined]
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "only /metrics is here")
            return
        body = sidecar.metrics().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is told of requests."""


def _serve(address: str, sidecar: Sidecar) -> http.server.HTTPServer:
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise AssayError(f"--listen: expected [HOST:]PORT, found '{address}'")
    try:
        server = http.server.ThreadingHTTPServer((host or "127.0.0.1", int(port)), _Metrics)
    except OSError as error:
        raise AssayError(f"--listen {address}: {error}; pass another port") from error
    server.sidecar = sidecar  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, name="assay-metrics", daemon=True).start()
    return server


def watch(words: Sequence[str]) -> int:
    """Runs `assay watch`. Returns its exit status."""
    args = _watch_parser().parse_args(words)
    judges = None
    if args.sdc:
        try:
            import numpy   # noqa: F401
        except ImportError:
            raise AssayError("--sdc needs NumPy, found none; type  python3 -m pip install '.[numpy]'  in a clone of Assay") from None
    if args.dask:
        from .distributed import DaskJudges
        judges = DaskJudges(args.dask)
    settings = Settings(args.folder, args.to or args.folder / "verdicts", args.only, args.most, args.sdc, args.explain, args.budget, args.threads, args.webhook,
                        args.exit_on_divergence, args.prometheus, args.interval)
    live = sys.stdout.isatty() and not args.plain
    sidecar = Sidecar(settings, judges, None if live else lambda text: print(text, flush=True))
    server = _serve(args.listen, sidecar) if args.listen else None
    if args.nice:
        os.nice(args.nice)

    def stop(*_: Any) -> None:
        sidecar.stopped = True

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, stop)

    def show() -> None:
        size = shutil.get_terminal_size()
        print("\x1b[H\x1b[2J" + sidecar.screen(size.columns, size.lines - 1), end="", flush=True)

    status = sidecar.run(once=args.once, idle_s=args.idle, show=show if live else None)
    if server is not None:
        server.shutdown()
    print("\n" * live + _last_lines(sidecar.ledger.state))
    return status


def _last_lines(state: State) -> str:
    """What a run ends with: the flips, the first divergence, the count."""
    right, wrong, not_judged = state.cases
    rows = [*state.flips()]
    if state.first is not None:
        rows.append(f"first divergence: {state.first['record']['case']} in {state.first['pack']}: {state.first['record']['first']}")
    return "\n".join([*rows, f"{right} passed, {wrong} failed, {not_judged} skipped"])


def report(words: Sequence[str]) -> int:
    """Runs `assay report`. Returns its exit status."""
    args = _report_parser().parse_args(words)
    files = sorted({f for folder in args.folders for f in ([folder] if folder.is_file() else folder.rglob(kName))})
    if not files:
        raise AssayError(f"expected {kName} in {', '.join(map(str, args.folders))}, found none; assay watch writes it")
    total, nodes = State(), []
    for file in files:
        state = state_of(file)
        nodes.append((str(file), state))
        total.merge(state)
    if args.prometheus:
        pathlib.Path(args.prometheus).write_text(metrics(total, 0, 0.0))
    right, wrong, not_judged = total.cases
    if args.json:
        print(json.dumps({"nodes": [{"file": f, "packs": s.packs, "right": s.cases[0], "wrong": s.cases[1], "not_judged": s.cases[2]} for f, s in nodes],
                          "packs": total.packs, "right": right, "wrong": wrong, "not_judged": not_judged, "first": total.first, "flips": total.flips(),
                          "roles": [{"module": m, "role": r, **vars(s)} for (m, r), s in sorted(total.roles.items())]}, indent=1))
    else:
        for file, state in nodes:
            print(f"{file}: {state.packs} packs, {state.cases[0]} right, {state.cases[1]} wrong, {state.cases[2]} not judged")
        print("\n" + screen(total, ", ".join(map(str, args.folders)), 0, 0.0, 200, 1 << 20).partition("\n")[2].strip("\n"))
        print("\n" + _last_lines(total))
    return 1 if wrong else 0 if right else 3


def main(command: str, words: Sequence[str]) -> int:
    """Runs one of the two. What goes wrong is told in one line, with status 2."""
    try:
        return {"watch": watch, "report": report}[command](words)
    except (AssayError, OSError) as error:
        print(f"assay {command}: {error}", file=sys.stderr)
        return 2
