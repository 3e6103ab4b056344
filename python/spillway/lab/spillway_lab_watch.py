# SPDX-License-Identifier: Apache-2.0
"""Observes a PyTorch script for `spillway lab compare`, without any change to the script.

    SPILLWAY_LAB_STEPS    a file to which rank 0 adds a line per event
    SPILLWAY_LAB_BACKEND  gloo or spillway: what init_process_group() makes, whatever the script asks for
    SPILLWAY_LAB_HOOK     fp16 or powersgd: torch's own hook, put around each DistributedDataParallel that has none
                          flat: one priority for all layers of a model, instead of front layers first

Events are JSON, one per line:

    {"event": "group", "backend": "gloo", "asked": "nccl"}
    {"event": "hook", "hook": "fp16", "by": "lab"}                 by: script, if the script has its own hook
    {"event": "step", "step": 7, "seconds": 1.25, "step_ms": 80.5}

A step ends with the step() of an optimizer that was already called since the last end: with several optimizers, their
round is one step. It begins with the first forward pass of a DistributedDataParallel after the last end, so that
evaluations and data loading are not part of it. It begins with the last end if there is no such forward pass, or if
CUDA may still be at work when step() returns. `seconds` count from the start of Python. Models and optimizers of
spillway.torch.overlap() count as those of DistributedDataParallel do.

torch is not imported here: modules are changed when the script imports them. A script without torch pays for one
dictionary lookup per import. Works with torch 1.13 and 2.x; Python 3.9.
"""
import functools
import importlib.machinery
import json
import os
import queue
import stat
import sys
import threading
import time
from types import ModuleType
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Set, Tuple

POWERSGD_START = 2  # torch's minimum: DDP rebuilds its buckets after the first step


# ---- Events ----

class EventFile:
    """Opened at rank 0's first event. If the file cannot be written, reporting ends and the script goes on."""

    def __init__(self, path: str) -> None:
        self._path, self._file = path, -1

    def write(self, event: str, **values: Any) -> None:
        if not self._path or not is_first_rank():
            return
        line = json.dumps({"event": event, **values}) + "\n"
        try:
            if self._file < 0:
                self._file = open_own_file(self._path)
            os.write(self._file, line.encode())
        except OSError as error:
            print(f"spillway lab: cannot write {self._path}: {error}", file=sys.stderr)
            self._path = ""


def open_own_file(path: str) -> int:
    """Opens it for appending. Refuses links and other users' files, which could redirect the lines."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
        os.close(file)
        raise PermissionError(f"it must be a regular file of user {os.geteuid()}")
    return file


def is_first_rank() -> bool:
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"


# ---- Steps ----

class Steps:
    """Steps of all optimizers of the process, as one sequence."""

    def __init__(self, events: EventFile, clock: Callable[[], float] = time.monotonic) -> None:
        self._events, self._clock = events, clock
        self._start = clock()
        self._begin: Optional[float] = None     # of the step under way
        self._last_end: Optional[float] = None
        self._stepped: Set[int] = set()         # optimizer ids since the last end
        self._count = 0

    def note_forward(self) -> None:
        if self._begin is None and sys.modules["torch"].is_grad_enabled():
            self._begin = self._clock()

    def note_step(self, optimizer: object) -> None:
        if self._count and id(optimizer) not in self._stepped:
            self._stepped.add(id(optimizer))
            return
        now, begin = self._clock(), self._begin
        if begin is None or (self._last_end is not None and sys.modules["torch"].cuda.is_initialized()):
            begin = self._last_end
        self._count += 1
        times = {} if begin is None else {"step_ms": round(1000 * (now - begin), 3)}
        self._events.write("step", step=self._count, seconds=round(now - self._start, 4), **times)
        self._begin, self._last_end, self._stepped = None, now, {id(optimizer)}


class WatchedOptimizers:
    """Subclasses override step(), so each class is changed when its first optimizer is made. Only the outermost of
    nested calls counts: optimizers call the ones that they wrap or inherit from."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._depth = steps, threading.local()

    def install(self, module: ModuleType) -> None:
        original = module.Optimizer.__init__

        @functools.wraps(original)
        def init(optimizer: Any, *arguments: Any, **named: Any) -> None:
            original(optimizer, *arguments, **named)
            self._watch(type(optimizer))
        module.Optimizer.__init__ = init

    def install_overlapped(self, module: ModuleType) -> None:
        """spillway.torch.overlap() changes the class of an optimizer that was made before. The steps that it then takes
        for single layers do not count."""
        self._watch(module.OverlappedOptimizer)

    def _watch(self, kind: Any) -> None:
        original = kind.step
        if getattr(original, "seen_by_spillway_lab", False):
            return

        @functools.wraps(original)
        def step(optimizer: Any, *arguments: Any, **named: Any) -> Any:
            depth = getattr(self._depth, "value", 0)
            self._depth.value = depth + 1
            try:
                result = original(optimizer, *arguments, **named)
            finally:
                self._depth.value = depth
            if depth == 0 and not getattr(optimizer, "_is_updating", False):
                self._steps.note_step(optimizer)
            return result
        step.seen_by_spillway_lab = True  # type: ignore[attr-defined]
        kind.step = step


# ---- The backend ----

class ChosenBackend:
    def __init__(self, backend: str, events: EventFile) -> None:
        self._backend, self._events = backend, events

    def install(self, module: ModuleType) -> None:
        original = module.init_process_group

        @functools.wraps(original)
        def init_process_group(backend: Any = None, *arguments: Any, **named: Any) -> Any:
            asked, used = str(backend or "").lower(), self._backend or backend
            if self._backend == "spillway":
                import spillway.torch
            if asked != str(used).lower():
                named.pop("pg_options", None)  # they belong to another backend
            result = original(used, *arguments, **named)
            if str(used).lower() == "gloo" and sys.modules["torch"].__version__.startswith("1."):
                outlive(module._get_default_group())
            self._events.write("group", backend=str(used), asked=asked)
            return result
        module.init_process_group = init_process_group  # type: ignore[attr-defined]


def outlive(group: Any) -> None:
    """Keeps the group alive even at the process's end.

    In torch 1.13 a model's end may destroy the group. Its destructor joins Gloo's threads while holding Python's
    lock, and such a thread may wait for that lock to drop a tensor. Scripts that end this way would hang the lab,
    more often with a hook, whose tensors belong to Python."""
    import ctypes
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


# ---- Models ----

class WatchedModels:
    """Hooks are put in at the first forward pass: until then the script may register its own, which takes
    precedence."""

    def __init__(self, hook: str, steps: Steps, events: EventFile) -> None:
        self._hook, self._steps, self._events = hook, steps, events

    def install(self, module: ModuleType) -> None:
        ddp = module.DistributedDataParallel
        for name in ("register_comm_hook", "_register_builtin_comm_hook"):
            setattr(ddp, name, self._noting_hooks(getattr(ddp, name)))
        self._watch_forward(ddp, self._hook)

    def install_overlapped(self, module: ModuleType) -> None:
        self._watch_forward(module.OverlappedModel, "")

    def _watch_forward(self, kind: Any, hook: str) -> None:
        original = kind.forward

        @functools.wraps(original)
        def forward(model: Any, *inputs: Any, **named: Any) -> Any:
            if hook and not hasattr(model, "_spillway_lab_is_settled"):
                self._settle(model)
            self._steps.note_forward()
            return original(model, *inputs, **named)
        kind.forward = forward

    def _noting_hooks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def register(model: Any, *arguments: Any, **named: Any) -> Any:
            model._spillway_lab_has_hook = True
            return original(model, *arguments, **named)
        return register

    def _settle(self, model: Any) -> None:
        model._spillway_lab_is_settled = True
        if hasattr(model, "_spillway_lab_has_hook"):
            self._events.write("hook", hook=self._hook, by="script")
            return
        HOOKS[self._hook](model)
        self._events.write("hook", hook=self._hook, by="lab")


def register_fp16(model: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    model.register_comm_hook(model.process_group, default_hooks.fp16_compress_hook)


def register_powersgd(model: Any) -> None:
    """Uses torch's defaults, except that it does not wait a thousand steps before it begins."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    check_all_reduces_are_the_hooks(model)
    let_cpus_be_synchronized()
    state = powerSGD_hook.PowerSGDState(model.process_group, start_powerSGD_iter=POWERSGD_START)
    model.register_comm_hook(state, one_at_a_time(powerSGD_hook.powerSGD_hook))


@functools.lru_cache(maxsize=None)
def let_cpus_be_synchronized() -> None:
    """On a machine with a GPU, torch's PowerSGD hook synchronizes the device of each bucket, and that raises an error
    if the bucket is in the CPU's memory."""
    torch: Any = sys.modules["torch"]
    original = torch.cuda.synchronize

    @functools.wraps(original)
    def synchronize(device: Any = None) -> None:
        if not (isinstance(device, torch.device) and device.type == "cpu"):
            original(device)
    torch.cuda.synchronize = synchronize


def check_all_reduces_are_the_hooks(model: Any) -> None:
    """Rejects find_unused_parameters on CPUs. DistributedDataParallel then all-reduces which parameters were used,
    from the backward pass, while buckets wait in the queue: ranks would start the two in different orders."""
    finds_unused = getattr(model, "find_unused_parameters", False) and not getattr(model, "static_graph", False)
    if finds_unused and not all(parameter.is_cuda for parameter in model.parameters() if parameter.requires_grad):
        raise RuntimeError("tcp-powersgd cannot run a DistributedDataParallel with find_unused_parameters=True on "
                           "CPUs: its own all-reduces would get between those of the hook. Leave the option out, or "
                           "tcp-powersgd out of --transports")


@functools.lru_cache(maxsize=None)
def bucket_queue() -> "queue.Queue[Tuple[Any, Any, Any, Any]]":
    """One queue for all models of the process: with a queue each, ranks would interleave the all-reduces of two
    models differently."""
    torch: Any = sys.modules["torch"]
    waiting: "queue.Queue[Tuple[Any, Any, Any, Any]]" = queue.Queue()

    def work() -> None:
        while True:
            hook, state, bucket, future = waiting.get()
            try:
                with torch.no_grad():
                    future.set_result(hook(state, bucket).wait())
            except Exception as error:  # the backward pass raises it
                future.set_exception(error)
            del hook, state, bucket, future  # keep none until the next one comes
    threading.Thread(target=work, daemon=True).start()
    return waiting


def one_at_a_time(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Makes the hook start a bucket when the previous one is done. It runs on its own thread, so that the backward
    pass goes on meanwhile.

    torch's PowerSGD hook starts all-reduces in callbacks, on Gloo's threads. With two buckets under way, ranks start
    them in different orders: sizes do not match, and Gloo aborts the process. Each callback also blocks its thread
    until the next all-reduce is done; Gloo has two threads, so two buckets can wait for each other."""
    torch: Any = sys.modules["torch"]
    waiting = bucket_queue()

    @functools.wraps(hook)  # torch reads the name and the signature
    def queued(state: Any, bucket: Any) -> Any:
        if bucket.buffer().is_cuda:  # kernels belong to the stream of the calling thread
            future = hook(state, bucket)
            future.wait()
            return future
        future = torch.futures.Future()
        waiting.put((hook, state, bucket, future))
        return future
    return queued


HOOKS = {"fp16": register_fp16, "powersgd": register_powersgd}


# ---- Layers ----

FLAT = "flat"
FLAT_PRIORITY = 0


def install_flat_layers(module: ModuleType) -> None:
    """Gives all layers one priority, unless the script chose one itself. The difference to a run without this is the
    gain of scheduling."""
    original = module.LayerPolicy.__init__

    @functools.wraps(original)
    def init(policy: Any, priority: Optional[int] = None) -> None:
        original(policy, FLAT_PRIORITY if priority is None else priority)
    module.LayerPolicy.__init__ = init


# ---- Modules that the script has yet to import ----

Installer = Callable[[ModuleType], None]


class ImportWatch:
    """A finder that delegates to the other finders. It changes a module after its execution, before the importing
    code sees it."""

    def __init__(self, installers: Dict[str, Installer]) -> None:
        self._installers = installers

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None,
                  target: Optional[ModuleType] = None) -> Optional[importlib.machinery.ModuleSpec]:
        install = self._installers.get(name)
        if install is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None  # type: ignore[arg-type]
            if spec is not None:
                run_after(spec.loader, install)
                return spec
        return None


def run_after(loader: Any, install: Installer) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        install(module)
    loader.exec_module = exec_module


def begin(environment: Mapping[str, str]) -> None:
    hook, backend = environment.get("SPILLWAY_LAB_HOOK", ""), environment.get("SPILLWAY_LAB_BACKEND", "")
    if hook and hook not in (*HOOKS, FLAT):
        raise ValueError(f"SPILLWAY_LAB_HOOK is {hook!r}; there are {', '.join((*HOOKS, FLAT))}")
    events = EventFile(environment.get("SPILLWAY_LAB_STEPS", ""))
    steps = Steps(events)
    models = WatchedModels(hook if hook in HOOKS else "", steps, events)
    optimizers = WatchedOptimizers(steps)
    installers = {"torch.optim.optimizer": optimizers.install,
                  "torch.distributed.distributed_c10d": ChosenBackend(backend, events).install,
                  "torch.nn.parallel.distributed": models.install,
                  "spillway.torch.overlapped_optimizer": optimizers.install_overlapped,
                  "spillway.torch.overlapped_model": models.install_overlapped}
    if hook == FLAT:
        installers["spillway.torch.backward"] = install_flat_layers
    watch: Any = ImportWatch(installers)
    sys.meta_path.insert(0, watch)
