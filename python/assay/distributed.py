"""More packs than one node judges: tasks for the scheduler that the fleet already has. Assay has no engine of its own.

    from dask.distributed import Client
    found = assay.distributed.judge(sorted(glob("dumps/*.safetensors")), Client("tcp://scheduler:8786"))
    print(found.cases, found.first, found.flips())

    import ray
    ray.init("auto")
    found = assay.distributed.judge(sorted(glob("dumps/*.safetensors")), ray)

judge_pack is a function of a path that returns plain values, so that other schedulers take it as it is.
The workers need the package, and the packs under the same path (shared storage).
"""
from __future__ import annotations

import os
from typing import Any, Iterable, Sequence

from ._errors import AssayError
from ._ledger import State
from ._records import Record, judge_pack

__all__ = ["DaskJudges", "State", "judge", "judge_pack", "judge_pack_or_say"]


def judge_pack_or_say(path: str, settings: dict[str, Any]) -> list[Record] | str:
    """judge_pack of a path as a task, with its settings as a mapping: what cannot be read is an answer in words, not an error of the cluster."""
    try:
        return judge_pack(path, **settings)
    except AssayError as error:
        return str(error)


def _client(client: Any) -> Any:
    if not isinstance(client, str):
        return client
    try:
        from dask.distributed import Client
    except ImportError:
        raise AssayError("expected Dask, found none; type  python3 -m pip install '.[distributed]'  in a clone of Assay") from None
    try:
        return Client(client, timeout="30s")
    except OSError as error:
        raise AssayError(f"expected a Dask scheduler at {client}, found none: {error}") from error


class DaskJudges:
    """Judges packs as tasks of a Dask cluster, many at once; `assay watch --dask ADDRESS` uses it. `batch`: packs that are under way at a time."""

    def __init__(self, client: Any, batch: int = 0):
        self.client = _client(client)
        self.batch = batch or 4 * max(sum(self.client.nthreads().values()), 1)

    def judge(self, paths: Sequence[str], **settings: Any) -> Iterable[list[Record] | str]:
        """Answers in the order of the paths; settings are those of judge_pack."""
        tasks = self.client.map(judge_pack_or_say, [os.path.abspath(p) for p in paths], settings=settings, pure=False)
        for task in tasks:
            answer: list[Record] | str = task.result()
            yield answer


def judge(paths: Iterable[str], client: Any, **settings: Any) -> State:
    """Judges packs on a cluster and adds up the verdicts, as `assay report` does.

    paths     packs, under a path that every worker has
    client    a Dask client or the address of a scheduler; the module ray, once ray.init has found its cluster; or an executor of concurrent.futures
    settings  of judge_pack: sdc, cause_s, threads

    Returns a State: .cases (right, wrong, not judged), .first, .flips(), .roles by (module, role). Raises AssayError where there is no scheduler.
    """
    found, names = State(), [str(p) for p in paths]
    if hasattr(client, "remote") and hasattr(client, "get"):
        task = client.remote(judge_pack_or_say)
        answers: Iterable[Any] = client.get([task.remote(os.path.abspath(p), settings) for p in names])
    elif hasattr(client, "submit") and not hasattr(client, "nthreads") and not isinstance(client, str):
        answers = client.map(judge_pack_or_say, names, [settings] * len(names))
    else:
        answers = DaskJudges(client).judge(names, **settings)
    for name, answer in zip(names, answers):
        error = answer if isinstance(answer, str) else ""
        found.add({"event": "pack", "pack": os.path.basename(name), "identity": "", "cases": [] if error else answer, **({"error": error} if error else {})})
    return found
