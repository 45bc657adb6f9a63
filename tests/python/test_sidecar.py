"""The sidecar: packs are judged as they come, once each, whatever kills it; the folder stays within its limit; what it tells others."""
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
import torchao_models

import assay
from assay._ledger import Ledger, events_of, state_of
from assay._records import place_of
from assay._sidecar import Settings, Sidecar
from assay._watch_command import main


def write(folder, step, wrong=(), modules=("fc1", "fc2"), rows=32, rank=None):
    pack = assay.Pack(made_by="a test")
    for n, module in enumerate(modules):
        x = assay.fill((rows, 128), "normal", 2 * step + n)
        made = assay.quantize(x, "mxfp8")
        planes = {name: np.array(made[name]) for name in made}
        if module in wrong:
            planes["row.data"].view(np.uint8)[3, 5:40] ^= 0x15
        pack.add_planes(made.line, {"x": x, **planes}, module=module, role="weight", step=step)
    return pathlib.Path(pack.write(folder / (f"step{step:08d}" + ("" if rank is None else f".rank{rank}") + ".safetensors")))


def sidecar(folder, **settings):
    return Sidecar(Settings(folder, folder / "verdicts", **{"explain": "never", "interval_s": 0.05, **settings}))


def packs_of(folder):
    return [e["pack"] for e in events_of(folder / "verdicts/verdicts.jsonl") if e["event"] == "pack"]


def command(*words, **options):
    return subprocess.Popen([sys.executable, "-m", "assay", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_in_order_and_once(tmp_path):
    for step in (1000, 20, 300):
        write(tmp_path, step, wrong=["fc2"] if step == 300 else [])
    car = sidecar(tmp_path)
    assert car.run(once=True) == 1
    assert packs_of(tmp_path) == [f"step{n:08d}.safetensors" for n in (20, 300, 1000)]
    state = car.ledger.state
    assert state.cases == (5, 1, 0) and state.first["record"]["case"] == "step300/fc2/weight" and state.first["record"]["step"] == 300
    again = sidecar(tmp_path)
    assert again.run(once=True) == 1 and len(packs_of(tmp_path)) == 3 and again.ledger.state.cases == (5, 1, 0)
    os.utime(write(tmp_path, 20), ns=(1, 1))   # another pack of the same name
    more = sidecar(tmp_path)
    more.run(once=True)
    assert packs_of(tmp_path)[3:] == ["step00000020.safetensors"] and more.ledger.state.packs == 4


@pytest.mark.parametrize("case, place", [("step12/fc1/weight", (12, "fc1", "weight")), ("step12/a.b/grad_output.col", (12, "a.b", "grad_output.col")),
                                         ("outputs", (None, "outputs", "")), ("step3/fc1", (3, "fc1", "")), ("step3/a/b/input", (3, "a/b", "input"))])
def test_places(case, place):
    assert place_of(case) == place


def test_killed_again_and_again(tmp_path):
    """kill -9 at any time: every pack is judged, and none twice."""
    for step in range(40):
        write(tmp_path, step)
    log = tmp_path / "verdicts/verdicts.jsonl"
    kills = 0
    for _ in range(200):
        before = log.read_bytes().count(b'"event": "pack"') if log.exists() else 0
        if before >= 40:
            break
        process = command("watch", tmp_path, "--plain", "--nice", 0)
        wait_for(lambda: (log.exists() and log.read_bytes().count(b'"event": "pack"') > before) or process.poll() is not None)
        time.sleep(0.001 * (kills * 7 % 40))
        process.kill()
        process.communicate()
        kills += 1
    last = command("watch", tmp_path, "--once")
    text, _ = last.communicate(timeout=120)
    assert last.returncode == 0 and "80 passed, 0 failed, 0 skipped" in text, text
    assert packs_of(tmp_path) == [f"step{n:08d}.safetensors" for n in range(40)] and kills > 3


def test_a_line_that_was_cut_off(tmp_path):
    for step in (1, 2):
        write(tmp_path, step)
    sidecar(tmp_path).run(once=True)
    log = tmp_path / "verdicts/verdicts.jsonl"
    whole = log.read_bytes()
    for cut in (1, 40, 200):
        log.write_bytes(whole[:-cut])
        car = sidecar(tmp_path)
        car.run(once=True)
        assert packs_of(tmp_path) == ["step00000001.safetensors", "step00000002.safetensors"] and car.ledger.state.cases == (4, 0, 0)
    log.write_bytes(b"{broken\n" + whole)
    with pytest.raises(assay.AssayError, match="expected JSON in line 1"):
        sidecar(tmp_path)


def test_the_log_begins_anew_and_forgets_nothing(tmp_path):
    """Small files in place of large ones; a kill between the two renames too."""
    for step in range(6):
        write(tmp_path, step, wrong=["fc1"] if step == 2 else [])
    car = sidecar(tmp_path)
    car.ledger.most_bytes = 600
    car.run(once=True)
    verdicts = tmp_path / "verdicts"
    assert (verdicts / "verdicts.1.jsonl").exists() and (verdicts / "verdicts.jsonl").stat().st_size < 10_000
    os.replace(verdicts / "verdicts.jsonl", verdicts / "verdicts.jsonl.new")   # killed between the renames
    again = sidecar(tmp_path)
    assert again.run(once=True) == 1 and again.ledger.state.cases == (11, 1, 0) and again.ledger.state.packs == 6
    assert again.ledger.state.first["record"]["case"] == "step2/fc1/weight" and again.judged_here == 0
    (verdicts / "verdicts.jsonl.new").write_bytes(b'{"event": "carr')   # killed while it was written
    assert Ledger(verdicts, 1 << 20).state.packs == 6 and not (verdicts / "verdicts.jsonl.new").exists()


def test_the_folder_stays_within_its_limit(tmp_path):
    size = write(tmp_path, 0, rows=256).stat().st_size
    car, most = sidecar(tmp_path, most_bytes=6 * size), 0
    for step in range(1, 25):
        write(tmp_path, step, wrong=["fc1"] if step in (3, 9) else [], rows=256)
        if step % 3 == 0:
            while car.tick():
                most = max(most, sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()))
    assert most <= 6 * size and car.ledger.state.packs == 25 and car.ledger.state.dropped == 0
    left = {p.name for p in tmp_path.glob("*.safetensors")}
    assert "step00000003.safetensors" in left and "step00000024.safetensors" in left and "step00000000.safetensors" not in left
    for step in range(30, 40):   # more at once than there is room for: the newest are dropped, and counted
        write(tmp_path, step, rows=256)
    while car.tick():
        pass
    held = sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file())
    assert held <= 6 * size and car.ledger.state.dropped > 0 and car.ledger.state.dropped + car.ledger.state.packs == 35


def test_what_cannot_be_read(tmp_path):
    broken = tmp_path / "step00000001.safetensors"
    broken.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    os.utime(broken, (1, 1))   # old: nobody writes it any more
    write(tmp_path, 2)
    car = sidecar(tmp_path)
    assert car.run(once=True) == 0 and car.ledger.state.unreadable == 1 and car.ledger.state.cases == (2, 0, 0)
    whole = write(tmp_path, 3).read_bytes()
    half = tmp_path / "step00000003.safetensors"
    half.write_bytes(whole[:-100])
    car = sidecar(tmp_path)
    assert car.tick() == 0   # it may still be being written
    half.write_bytes(whole)
    assert car.tick() == 1 and car.ledger.state.unreadable == 1
    with pytest.raises(assay.AssayError, match="expected a folder"):
        sidecar(tmp_path / "none")


class Receiver(http.server.BaseHTTPRequestHandler):
    """Refuses the first request and keeps the others."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(json.loads(body))
        self.send_response(500 if len(self.server.bodies) == 1 else 200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_webhook_and_metrics(tmp_path):
    receiver = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    receiver.bodies = []
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    write(tmp_path, 10)
    process = command("watch", tmp_path, "--plain", "--nice", 0, "--interval", 0.1, "--listen", _free_port(),
                      "--webhook", f"http://127.0.0.1:{receiver.server_port}/hook")
    try:
        wait_for(lambda: (tmp_path / "verdicts/metrics.prom").exists() and "assay_packs_total 1" in (tmp_path / "verdicts/metrics.prom").read_text())
        write(tmp_path, 20, wrong=["fc1"])
        wait_for(lambda: len(receiver.bodies) == 2)
        assert [b["record"]["case"] for b in receiver.bodies] == ["step20/fc1/weight"] * 2 and receiver.bodies[1]["pack"] == "step00000020.safetensors"
        port = process.args[process.args.index("--listen") + 1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert samples['assay_tensors_total{module="fc1",role="weight",outcome="wrong"}'] == "1" and samples["assay_first_divergence_step"] == "20"
        assert all(re.fullmatch(r'# (HELP|TYPE) assay_\w+ .+|assay_\w+(\{(\w+="[^"]*",?)+\})? [0-9.e+-]+', line) for line in text.splitlines())
        time.sleep(0.5)
        assert len(receiver.bodies) == 2   # taken once, told once
    finally:
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=30)
        receiver.shutdown()
    assert process.returncode == 1 and "3 passed, 1 failed, 0 skipped" in text, text


def _free_port():
    with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
        return str(server.server_port)


def test_ends_at_the_first_divergence(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path, step, wrong=["fc1"] if step == 2 else [])
    process = command("watch", tmp_path, "--exit-on-divergence")
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and len(packs_of(tmp_path)) == 2 and "first divergence: step2/fc1/weight" in text
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main("watch", [str(empty), "--once"]) == 3
    assert main("watch", [str(tmp_path / "none"), "--once"]) == 2 and main("report", [str(empty / "verdicts2")]) == 2


def test_nodes_are_merged(tmp_path, capsys):
    for rank in (0, 1):
        for step in (10, 20):
            write(tmp_path, step, wrong=["fc2"] if (rank, step) in ((1, 10), (0, 20)) else [], rank=rank)
        assert main("watch", [str(tmp_path), "--once", "--only", f"*.rank{rank}.*", "--to", str(tmp_path / f"node{rank}"), "--explain", "never"]) == 1
    capsys.readouterr()
    assert main("report", [str(tmp_path), "--json", "--prometheus", str(tmp_path / "all.prom")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["right"], found["wrong"], found["packs"], len(found["nodes"])) == (6, 2, 4, 2)
    assert found["first"]["record"]["step"] == 10 and found["first"]["pack"] == "step00000010.rank1.safetensors"
    assert 'assay_tensors_total{module="fc2",role="weight",outcome="wrong"} 2' in (tmp_path / "all.prom").read_text()
    assert main("report", [str(tmp_path)]) == 1 and "6 passed, 2 failed, 0 skipped" in capsys.readouterr().out


def test_the_view(tmp_path):
    for step in (1, 2):
        write(tmp_path, step, wrong=["fc2"] if step == 2 else [])
    car = sidecar(tmp_path)
    car.run(once=True)
    width = 60 + len(str(tmp_path))   # the first row has the path
    view = car.screen(width, 12).splitlines()
    assert "2 packs, 4 tensors judged, 1 wrong" in view[0] and all(len(row) <= width for row in view) and len(view) <= 12
    rows = [row.split() for row in view[view.index("") + 2:]]
    assert [r[0] for r in rows] == ["fc2", "fc1"] and rows[0][1:5] == ["weight", "2", "1", "1"] and "wrong:" in view[-2]


def test_causes_are_looked_for(tmp_path):
    x = assay.fill((32, 128), "normal", 3)
    made = assay.quantize(x, "mxfp8 flavour=ocp")
    for step in (1, 2):
        pack = assay.Pack()
        pack.add_planes("quantize mxfp8 32x128 bf16 dir=row", {"x": x, **{n: np.array(made[n]) for n in made}}, module="fc1", role="weight", step=step)
        pack.write(tmp_path / f"step{step}.safetensors")
    car = sidecar(tmp_path, explain="first", sdc=True)
    car.run(once=True)
    records = [e["cases"][0] for e in events_of(tmp_path / "verdicts/verdicts.jsonl") if e["event"] == "pack"]
    assert "floored exponent" in records[0]["cause"] and not records[1]["cause"] and {r["flips"]["verdict"] for r in records} == {"arithmetic"}


def test_executor_and_dask(tmp_path):
    from concurrent.futures import ThreadPoolExecutor
    paths = [str(write(tmp_path, step, wrong=["fc1"] if step == 3 else [])) for step in range(6)]
    (tmp_path / "broken.safetensors").write_bytes(b"no pack")
    with ThreadPoolExecutor(2) as pool:
        found = assay.distributed.judge([*paths, str(tmp_path / "broken.safetensors")], pool)
    assert found.cases == (11, 1, 0) and found.packs == 7 and found.unreadable == 1 and found.first["record"]["case"] == "step3/fc1/weight"


def test_dask_cluster(tmp_path):
    distributed = pytest.importorskip("dask.distributed")
    paths = [str(write(tmp_path, step, wrong=["fc1"] if step == 3 else [])) for step in range(6)]
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster, distributed.Client(cluster) as client:
        found = assay.distributed.judge(paths, client)
        assert found.cases == (11, 1, 0) and found.first["record"]["case"] == "step3/fc1/weight"
        process = command("watch", tmp_path, "--once", "--dask", cluster.scheduler_address, "--explain", "never")
        text, _ = process.communicate(timeout=120)
        assert process.returncode == 1 and "11 passed, 1 failed, 0 skipped" in text, text
        assert packs_of(tmp_path) == [pathlib.Path(p).name for p in paths]
    with pytest.raises(assay.AssayError, match="Dask scheduler"):
        assay.distributed.DaskJudges("tcp://127.0.0.1:1")


def test_ray_cluster(tmp_path):
    """Ray on this machine; skipped where it is not installed."""
    ray = pytest.importorskip("ray")
    paths = [str(write(tmp_path, step, wrong=["fc1"] if step == 3 else [])) for step in range(6)]
    (tmp_path / "broken.safetensors").write_bytes(b"no pack")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        found = assay.distributed.judge([*paths, str(tmp_path / "broken.safetensors")], ray, sdc=True)
    finally:
        ray.shutdown()
    assert found.cases == (11, 1, 0) and found.packs == 7 and found.unreadable == 1 and found.first["record"]["case"] == "step3/fc1/weight"


def test_beside_a_training_run(tmp_path):
    """What assay.torch.watch drops is judged while the loop runs."""
    torch = pytest.importorskip("torch")
    model = torchao_models.mx(torch.nn.Sequential(torch.nn.Linear(128, 64, dtype=torch.bfloat16)))
    folder = tmp_path / "dumps"
    folder.mkdir()
    process = command("watch", folder, "--plain", "--nice", 0, "--interval", 0.1, "--explain", "never")
    with assay.torch.watch(model, every=2, to=folder, keys="flavour=ocp") as watch:
        for _ in range(5):
            model(torch.randn(32, 128, dtype=torch.bfloat16)).float().square().mean().backward()
            time.sleep(0.2)
    try:
        wait_for(lambda: (folder / "verdicts/verdicts.jsonl").exists() and len(packs_of(folder)) == len(watch.written) == 3)
    finally:
        process.terminate()
        text, _ = process.communicate(timeout=30)
    state = state_of(folder / "verdicts/verdicts.jsonl")
    assert process.returncode == 0 and state.cases == (watch.cases, 0, 0) and ("0", "weight") in state.roles, text
