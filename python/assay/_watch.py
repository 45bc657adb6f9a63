"""Sampling a training run: what TransformerEngine and torchao quantize in one step of a hundred goes into packs, copied at once and written by a thread."""
from __future__ import annotations

import fnmatch
import functools
import os
import pathlib
import queue
import sys
import threading
import time
import warnings
from typing import Any, Callable, Iterable, Iterator, Sequence

from ._errors import AssayError

kRoles = ("input", "weight", "output", "grad_output", "grad_input")
# Where torchao quantizes: the module, what is replaced while a step is sampled, and whether that is a static method.
_TORCHAO = (("torchao.prototype.mx_formats.mx_tensor", "MXTensor.to_mx", True), ("torchao.prototype.mx_formats.nvfp4_tensor", "NVFP4Tensor.to_nvfp4", True),
            ("torchao.float8.float8_linear", "hp_tensor_to_float8_dynamic", False), ("torchao.float8.float8_linear", "hp_tensor_and_scale_to_float8", False))
# The quantizers that a TransformerEngine module keeps for each GEMM, in their order.
_TE = {"scaling_fwd": ("input", "weight", "output"), "scaling_bwd": ("grad_output", "grad_input")}
# What a linear layer of torchao in MXFP8 quantizes in its backward pass, in order: the rows of grad_output, then what is read along the other axis.
_BACKWARD = ("grad_output", "weight.col", "grad_output.col", "input.col")


class Snapshot:
    """The attributes of a quantized tensor, its memory copied: what the reader of packs reads later. A class of the tensor's own name is made of it."""


def snapshot(value: Any) -> Any:
    """A copy that later steps do not touch. Views keep their strides, which say how a tensor lies."""
    import torch
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return value.detach().clone(memory_format=torch.preserve_format)
    kept = type(type(value).__name__, (Snapshot,), {"__module__": type(value).__module__})()
    known = dict(vars(value))
    slots = [name for kind in type(value).__mro__ for name in (kind.__dict__.get("__slots__") or ()) if not name.startswith("__")]
    for name in ("dtype", "shape", *slots):
        if hasattr(value, name):
            known.setdefault(name, getattr(value, name))
    for name, held in known.items():
        inner = isinstance(held, torch.Tensor) or name == "_quantizer" or name in ("_rowwise_storage", "_columnwise_storage")
        setattr(kept, name, snapshot(held) if inner and held is not None else held)
    if isinstance(value, torch.Tensor) and value.dim() and not hasattr(kept, "stride"):
        strides = value.stride()
        setattr(kept, "stride", lambda: strides)
    return kept


def _tensors(held: Any) -> Iterator[Any]:
    """The tensors of a snapshot: itself, or those that it has."""
    import torch
    if isinstance(held, torch.Tensor):
        yield held
    elif isinstance(held, Snapshot):
        for inner in vars(held).values():
            yield from _tensors(inner)


def quantizes(module: Any) -> bool:
    """Whether a module is one of torchao's or TransformerEngine's that quantize, by where its class is from and by its attributes."""
    if isinstance(getattr(module, "quantizers", None), dict):
        return True
    from .pack import kKinds
    weight = vars(module).get("_parameters", {}).get("weight")
    kinds: Any = kKinds
    if weight is not None and any(all(any(hasattr(weight, a) for a in names) for names in attributes) for _, attributes, _ in kinds):
        return True
    return weight is not None and (_home(module) == "torchao" or _home(weight) == "torchao")


def _home(thing: Any) -> str:
    """The library that a class is from."""
    return type(thing).__module__.partition(".")[0]


class Watch:
    """The hooks of assay.torch.watch. `close()` takes them away, and waits until everything is written; it is a context manager too.

    step     the step of training that runs, counted from 0: forward passes of the model in training mode
    written  the packs so far; cases: how many tensors they hold
    dropped  samples that were not written, for the writer was behind or the folder full
    errors   what could not be taken, in words; training goes on
    writer_seconds   of the CPU, in the thread that writes
    """

    def __init__(self, model: Any, every: int, roles: Iterable[str] | None, to: Any, modules: Sequence[str], per_sample: int, keys: str, most_bytes: int):
        if not isinstance(every, int) or every < 1:
            raise AssayError(f"expected every= to be a number of steps from 1, found {every!r}")
        if isinstance(roles, str):
            roles = [roles]
        unknown = set(roles or ()) - set(kRoles)
        if unknown:
            raise AssayError(f"expected roles= of {', '.join(kRoles)}, found {', '.join(sorted(map(str, unknown)))}")
        self.modules = {name or "model": m for name, m in model.named_modules() if quantizes(m) and any(fnmatch.fnmatch(name or "model", p) for p in modules)}
        if not self.modules:
            raise AssayError(f"expected a model with modules of torchao or TransformerEngine that quantize, found none that match {', '.join(modules)}; "
                             "convert the model first, or pass other modules=")
        self.every, self.roles, self.folder, self.keys, self.most_bytes = every, set(roles or kRoles), pathlib.Path(to), keys, most_bytes
        self.per_sample = min(per_sample, len(self.modules))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.step, self.cases, self.dropped, self.writer_seconds = -1, 0, 0, 0.0
        self.written: list[str] = []
        self.errors: list[str] = []
        self._next = 0
        self._sample: Any = None
        self._current: Any = None
        self._stack: list[Any] = []
        self._undo: list[Callable[[], None]] = []
        self._queue: queue.Queue[Any] = queue.Queue(2)
        self._thread: threading.Thread | None = threading.Thread(target=self._write_all, name="assay-watch", daemon=True)
        self._thread.start()
        self._root = model.register_forward_pre_hook(self._begin)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return (f"<Watch of {len(self.modules)} modules, every {self.every} steps to {self.folder}: step {self.step}, {len(self.written)} packs, "
                f"{self.cases} tensors, {self.dropped} dropped, {len(self.errors)} errors>")

    def close(self) -> None:
        """Takes the hooks away, writes what was sampled last, and ends the thread. Twice does no harm."""
        if self._thread is None:
            return
        self._root.remove()
        self._end()
        self._queue.put(None)
        self._thread.join()
        self._thread = None

    # ---- in the training loop ----------------------------------------------------------------------------------------

    def _begin(self, model: Any, args: Any) -> None:
        """Before each forward pass of the model: ends the sample of the step before, and begins one where it is due."""
        import torch
        if not (model.training and torch.is_grad_enabled()):
            return
        if self._sample is not None:
            self._guarded(self._end)
        self.step += 1
        if self.step % self.every == 0:
            self._guarded(self._start)

    def _guarded(self, work: Callable[..., Any], *args: Any) -> Any:
        """An error of the watch is noted, and never one of the training run."""
        try:
            return work(*args)
        except Exception as error:   # noqa: BLE001
            self._note(f"step {self.step}: {type(error).__name__}: {error}")
            return None

    def _note(self, words: str) -> None:
        if not self.errors:
            warnings.warn(f"assay.torch.watch: {words} (training goes on; further ones are in .errors)", stacklevel=2)
        if len(self.errors) < 1000:
            self.errors.append(words)

    def _start(self) -> None:
        names = list(self.modules)
        chosen = {names[(self._next + n) % len(names)] for n in range(self.per_sample)}
        self._next = (self._next + self.per_sample) % len(names)
        self._sample, self._current, self._stack = Sample(self.step), None, []
        for name, module in self.modules.items():
            place = Place(name, module) if name in chosen else None
            self._undo.append(module.register_forward_pre_hook(lambda m, args, p=place: self._guarded(self._enter, p, m, args)).remove)
            self._undo.append(module.register_forward_hook(lambda m, args, out, p=place: self._guarded(self._leave, p, m, out), always_call=True).remove)
        for where, what, static in _TORCHAO:
            if where in sys.modules:
                self._replace(sys.modules[where], what, static)

    def _replace(self, module: Any, what: str, static: bool) -> None:
        owner_name, _, name = what.rpartition(".")
        owner = getattr(module, owner_name, None) if owner_name else module
        original = getattr(owner, name, None)
        if original is None:
            return
        held = vars(owner).get(name)

        def quantize(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if self._current is not None:
                role = kwargs.get("gemm_input_role")
                self._guarded(self._take, args[0] if args else next(iter(kwargs.values())), made, str(getattr(role, "value", "")))
            return made

        setattr(owner, name, staticmethod(quantize) if static else quantize)
        self._undo.append(lambda: setattr(owner, name, held))

    def _enter(self, place: Any, module: Any, args: Any) -> None:
        self._stack.append(self._current)
        self._current = place
        if place is not None:
            place.backward, place.input = False, next((a for a in args if hasattr(a, "shape")), None)
            self._replace_quantizers(place, module)

    def _replace_quantizers(self, place: Any, module: Any) -> None:
        """TransformerEngine's quantizers are objects of the module, each for one tensor."""
        quantizers: Any = getattr(module, "quantizers", None)
        for key, roles in _TE.items() if isinstance(quantizers, dict) else ():
            for n, quantizer in enumerate(quantizers.get(key) or ()):
                if quantizer is None or "quantize" in vars(quantizer):
                    continue
                original = quantizer.quantize

                def quantize(tensor: Any, *args: Any, _original: Any = original, _role: str = roles[n % len(roles)], **kwargs: Any) -> Any:
                    made = _original(tensor, *args, **kwargs)
                    self._guarded(self._put, place, _role, tensor, made)
                    return made

                quantizer.quantize = quantize
                self._undo.append(functools.partial(_forget, quantizer))

    def _leave(self, place: Any, module: Any, outputs: Any) -> None:
        self._current = self._stack.pop() if self._stack else None
        if place is not None:
            self._workspaces(place, module)
        for out in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
            if getattr(out, "requires_grad", False):
                out.register_hook(lambda grad, p=place: self._guarded(self._enter_backward, p, grad))

    def _workspaces(self, place: Any, module: Any) -> None:
        """Weights that TransformerEngine quantized by its own code and keeps; and weights that are quantized tensors themselves."""
        kept = getattr(module, "_fp8_workspaces", None)
        for name, made in (kept or {}).items() if isinstance(kept, dict) else ():
            self._put(place, "weight", getattr(module, name, None), made)

    def _enter_backward(self, place: Any, grad: Any) -> None:
        self._current = place
        if place is not None:
            place.backward, place.grad = True, grad

    def _take(self, source: Any, made: Any, said: str) -> None:
        place = self._current
        role = place.role_of(source, said)
        if role is not None:
            self._put(place, role, source, made)

    def _put(self, place: Any, role: str, source: Any, made: Any) -> None:
        """The only work of a sampled step: copies of what was quantized and of what came of it."""
        if self._sample is None or role.removesuffix(".col") not in self.roles or made is None:
            return
        if (place.name, role) in self._sample.taken:
            role += "" if role.endswith(".col") else ".col"
            if (place.name, role) in self._sample.taken:
                return   # a module that runs twice in a step: the first is enough
        self._sample.taken.add((place.name, role))
        self._sample.items.append((place.name, role, None if source is None else snapshot_source(source), snapshot(made)))

    def _end(self) -> None:
        while self._undo:
            self._undo.pop()()
        sample, self._sample, self._current = self._sample, None, None
        if sample is None or not sample.items:
            return
        sample.mark()
        try:
            self._queue.put_nowait(sample) if self._root_alive() else self._queue.put(sample)
        except queue.Full:
            self.dropped += 1

    def _root_alive(self) -> bool:
        return self._root.id in (self._root.hooks_dict_ref() or {})

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while (sample := self._queue.get()) is not None:
            self._guarded(self._write, sample)
            self.writer_seconds = time.thread_time()

    def _write(self, sample: Any) -> None:
        from .pack import Pack
        import torch
        held = sum(e.stat().st_size for e in os.scandir(self.folder) if e.name.endswith(".safetensors"))
        if held >= self.most_bytes:
            return self._drop(sample, held)
        sample.wait()
        rank = torch.distributed.get_rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else None
        pack = Pack(made_by="assay.torch.watch" + ("" if rank is None else f", rank {rank}"), versions=_versions())
        for module, role, source, made in sample.items:
            self._guarded(self._add, pack, made, source, module, role, sample.step)
        if pack.lines and held + pack.size() > self.most_bytes:
            return self._drop(sample, held)
        if pack.lines:
            name = f"step{sample.step:08d}" + ("" if rank is None else f".rank{rank}") + ".safetensors"
            self.written.append(str(pack.write(self.folder / name)))
            self.cases += len(pack.lines)

    def _drop(self, sample: Any, held: int) -> None:
        self.dropped += 1
        self._note(f"step {sample.step}: {self.folder} holds {held} bytes, the limit is {self.most_bytes}; nothing is written until it has room")

    def _add(self, pack: Any, made: Any, source: Any, module: str, role: str, step: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)   # stochastic codes are left out, as the pack says
            pack.add(made, x=source, step=step, module=module, role=role, keys=self.keys)


def _forget(quantizer: Any) -> None:
    """The class's own method serves again."""
    vars(quantizer).pop("quantize", None)


def snapshot_source(source: Any) -> Any:
    import torch
    return torch.Tensor.detach(source).clone(memory_format=torch.contiguous_format)


def _versions() -> dict[str, str]:
    return {name: str(getattr(sys.modules[name], "__version__", "")) for name in ("torch", "torchao", "transformer_engine") if name in sys.modules}


class Sample:
    """What one step gave so far."""

    def __init__(self, step: int):
        self.step = step
        self.items: list[Any] = []
        self.taken: set[tuple[str, str]] = set()
        self.events: list[Any] = []

    def mark(self) -> None:
        """Marks where the current stream of each device that holds copies stands, so that wait() can wait for them."""
        import torch
        devices = {t.device for _, _, source, made in self.items for held in (source, made) for t in _tensors(held) if t.is_cuda}
        for device in devices:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            self.events.append(event)

    def wait(self) -> None:
        for event in self.events:
            event.synchronize()


def _held(weight: Any) -> Any:
    """The tensor inside of a weight that torchao's quantize_ has wrapped for training: its operations are quantized, itself is not."""
    inner = getattr(weight, "_data", None)
    return inner if inner is not None and _home(weight) == "torchao" and "TrainingWeightWrapper" in type(weight).__name__ else weight


class Place:
    """A module whose tensors are taken in this step, and how to tell which of its tensors one is."""

    def __init__(self, name: str, module: Any):
        self.name, self.weight = name, _held(vars(module).get("_parameters", {}).get("weight"))
        self.input: Any = None
        self.grad: Any = None
        self.backward = False
        self.seen: set[str] = set()

    def role_of(self, source: Any, said: str) -> str | None:
        """By torchao's own word where it gives one; by the memory of the weight; else by shape, in the order in which a linear layer quantizes."""
        if said in ("input", "weight", "grad_output"):
            return said
        if self.weight is not None and source.untyped_storage().data_ptr() == self.weight.untyped_storage().data_ptr():
            return "weight.col" if self.backward else "weight"
        if not self.backward:
            return "input"
        shape = tuple(source.shape)
        for role in _BACKWARD:
            if role not in self.seen and shape == self._shape(role):
                self.seen.add(role)
                return role
        return None

    def _shape(self, role: str) -> tuple[int, ...] | None:
        tensor = {"grad_output": self.grad, "weight": self.weight, "input": self.input}[role.removesuffix(".col")]
        if tensor is None:
            return None
        last = int(tensor.shape[-1])
        rows = tensor.numel() // max(last, 1)
        return (last, rows) if role.endswith(".col") else (rows, last)
