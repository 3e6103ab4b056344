# SPDX-License-Identifier: Apache-2.0
"""A communication hook that sends DDP's gradients through Spillway's tolerant all-reduce.

    hook = spillway.torch.attach(ddp_model, Planes(bits=5), loss_bound=0.01)
    ...
    print(hook.report())                     # of the last step

Invariants: all ranks end a step with the same gradients. The first warm_up_steps, and steps for which `exact` is set,
lose nothing. Errors come out of backward(). Error feedback begins after the warm-up, and DDP rebuilds its buckets after
the first step: with at least one warm-up step no residual is ever dropped; without, that of the first step is. As a
bucket's index thus says nothing about its contents, error feedback is kept under a hash of the bucket's parameters,
which is the same at all ranks. A bucket with other parameters is another tensor, without a residual.

Reports are made when somebody asks, or for a writer. A step keeps its finished requests until the next one ends, and
the library keeps their reports.

Threads: DDP calls it from the thread that runs the backward pass; any thread may read reports.
"""
import contextlib
import dataclasses
import hashlib
import itertools
import threading
import weakref
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from .. import abi
from ..request import OperationReport, PartSeconds
from .auto_codec import (HOOK_CANDIDATES, MAX_ERROR, MAX_ERROR_WITHOUT_FEEDBACK, AutoCodec, accepted,
                         tolerances_of)
from .backward import LayerPolicy, before_backward_ends, level_of
from .codec_chooser import Candidate, Choice
from .codecs import Auto, Codec, Exact, Planes, codec_named
from .operation import Member, Operation, make_future, resolve, waiters
from .process_group import collectives_of
from .rendezvous import join_through_group
from .tensors import FLOATING, span_of

# ---- Buckets ----

class BucketNames:
    """`hook`: a number that tells hooks of one communicator apart."""

    def __init__(self, parameters: Iterable[Any], hook: int) -> None:
        self._hook = hook
        self._positions = {id(parameter): position for position, parameter in enumerate(parameters)}

    def feedback_tensor(self, parameters: Iterable[Any]) -> int:
        """Never 0, which means no name."""
        words = [str(self._hook), *(str(self._positions[id(parameter)]) for parameter in parameters)]
        digest = hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") or 1


class BucketRun:
    """One bucket of one step. If it is measured, an exact all-reduce of a copy follows."""

    def __init__(self, buffer: torch.Tensor, is_measured: bool) -> None:
        self._buffer: Optional[torch.Tensor] = buffer
        self._operation: Optional[Operation] = None
        self._copy = buffer.detach().clone() if is_measured else None
        self._exact_operation: Optional[Operation] = None
        self.bytes = buffer.numel() * buffer.element_size()

    def start(self, member: Member, options: abi.OperationOptions) -> None:
        assert self._buffer is not None
        self._operation = self._average(member, self._buffer, options)
        if self._copy is not None:
            self._exact_operation = self._average(member, self._copy, member.communicator.options())

    @staticmethod
    def _average(member: Member, tensor: torch.Tensor, options: abi.OperationOptions) -> Operation:
        span = span_of(tensor, "all_reduce", options, member.communicator.world)
        return Operation("all_reduce", span, span, span.pointer, span.pointer, span.count, span.type, abi.AVERAGE,
                         options=options).start(member)

    def future(self) -> "torch.futures.Future[torch.Tensor]":
        operation, buffer = self._started, self._buffer
        future = make_future(operation.devices)
        waiters.run(lambda: resolve(future, operation, buffer))
        return future

    def wait(self) -> None:
        for operation in (self._operation, self._exact_operation):
            if operation is not None:
                operation.wait()

    def is_done(self) -> bool:
        return all(operation is None or operation.is_done() for operation in (self._operation, self._exact_operation))

    def seconds(self) -> float:
        """From the call to the end, once it has ended."""
        return self._started.request.seconds()

    def report(self) -> OperationReport:
        return self._started.request.report()

    def copy_seconds(self) -> PartSeconds:
        return self._started.copy_seconds()

    @property
    def _started(self) -> Operation:
        assert self._operation is not None
        return self._operation

    def release_tensors(self) -> None:
        """Once it has ended. Its operation has released them already."""
        self._buffer = self._copy = self._exact_operation = None

    def error_and_energy(self) -> Tuple[float, float]:
        assert self._copy is not None and self._buffer is not None
        exact = self._copy.double()
        return float((self._buffer.double() - exact).square().sum()), float(exact.square().sum())


# ---- Reports ----

@dataclasses.dataclass(frozen=True)
class StepReport:
    step: int                    # counted from 0 by the hook
    exact: bool
    codec: str                   # "exact", or the codec used: "planes", "levels", "blocks", "entropy" or
                                 # "sketch"
    buckets: int
    gradient_bytes: int          # in memory
    wire_bytes: int              # sent by this rank, with retransmissions
    packets: int                 # expected at this rank
    trimmed: int                 # of these, arrived shortened
    lost: int                    # of these, did not arrive and were not waited for
    repeated: int                # retransmitted by this rank
    late_ranks: Tuple[int, ...]  # that at least one bucket did not wait for
    contributors: int            # ranks in the smallest sum, without empty shards; 0 if exact
    empty_shards: int            # without a sum, because their owner was too late
    absent_elements: int         # elements without a contributor: zero at all ranks
    parts_added: int             # levels, blocks, in shards owned here: parts that switches added
    parts_alone: int             # parts that arrived unsummed
    chunks_flushed: int          # chunks whose parts the owner had to request
    values_clipped: int          # this rank's, too large for the scale; also with entropy and sketch
    nmse: Optional[float]        # squared error over energy, in measured steps
    seconds: float               # of the slowest bucket, from its call to its end
    bits_per_value: Optional[float] = None  # with entropy and sketch, for what this rank coded
    tables: int = 0              # with these, messages that had to carry a table
    predicted: int = 0           # with sketch, values expected to be nonzero; all of them in a dense step
    misses: int = 0              # other values that were nonzero
    unrecovered: int = 0         # of these, carried over to the next step
    gpu_bytes: int = 0           # gradient bytes that a GPU coded
    cpu_bytes: int = 0           # and that the CPU coded; the rest was sent as it was
    parts: PartSeconds = PartSeconds()  # time of each part, over all buckets
    choice: Optional[Choice] = None  # with auto: the last choice, its reason and trials; None before the first

    def scalars(self) -> "dict[str, float]":
        """For plots."""
        values = {"gradient_bytes": self.gradient_bytes, "wire_bytes": self.wire_bytes, "trimmed": self.trimmed,
                  "lost": self.lost, "late_ranks": len(self.late_ranks), "seconds": self.seconds}
        if self.gpu_bytes:
            values.update(gpu_bytes=self.gpu_bytes)
        parts = dataclasses.asdict(self.parts)
        values.update({f"{part}_seconds": seconds for part, seconds in parts.items() if seconds})
        if self.codec in ("levels", "blocks"):
            values.update(parts_added=self.parts_added, parts_alone=self.parts_alone,
                          chunks_flushed=self.chunks_flushed, values_clipped=self.values_clipped)
        if self.bits_per_value is not None:
            values.update(bits_per_value=self.bits_per_value, values_clipped=self.values_clipped)
        if self.codec == "sketch":
            values.update(predicted=self.predicted, misses=self.misses, unrecovered=self.unrecovered)
        return values if self.nmse is None else {**values, "nmse": self.nmse}


def codec_of(exact: bool, reports: Sequence[OperationReport]) -> str:
    """The codec of tolerant buckets. SPILLWAY_ALGORITHM may have replaced the hook's with one that switches can add."""
    codecs = [report.codec for report in reports if report.contributors > 0]
    return codecs[0] if codecs and not exact else "exact"


def step_report(step: int, exact: bool, gradient_bytes: int, reports: Sequence[OperationReport],
                nmse: Optional[float], choice: Optional[Choice] = None) -> StepReport:
    def total(field: str) -> Any:
        return sum(getattr(report, field) for report in reports)

    entropy_values = total("entropy_values")
    late = sorted({rank for report in reports for rank in report.late_ranks})
    return StepReport(step=step, exact=exact, codec=codec_of(exact, reports), buckets=len(reports),
                      gradient_bytes=gradient_bytes, wire_bytes=total("wire_bytes_sent"),
                      packets=total("packets_whole") + total("packets_trimmed") + total("packets_missing"),
                      trimmed=total("packets_trimmed"), lost=total("packets_missing"),
                      repeated=total("packets_repeated"), late_ranks=tuple(late),
                      contributors=min((report.contributors for report in reports), default=0),
                      empty_shards=total("empty_shards"), absent_elements=total("absent_elements"),
                      parts_added=total("parts_added"), parts_alone=total("parts_alone"),
                      chunks_flushed=total("chunks_flushed"), values_clipped=total("values_clipped"),
                      nmse=nmse, seconds=max((report.seconds for report in reports), default=0.0),
                      bits_per_value=8 * total("entropy_bytes") / entropy_values if entropy_values else None,
                      tables=total("entropy_tables"), predicted=total("sketch_predicted"),
                      misses=total("sketch_misses"), unrecovered=total("sketch_unrecovered"),
                      gpu_bytes=total("gpu_bytes"), cpu_bytes=0 if exact else gradient_bytes - total("gpu_bytes"),
                      parts=sum((report.parts for report in reports), PartSeconds()), choice=choice)


class EndedStep:
    """A step whose report is made the first time that somebody asks."""

    def __init__(self, step: int, exact: bool, runs: Sequence[BucketRun], nmse: Optional[float],
                 choice: Optional[Choice]) -> None:
        self._lock = threading.Lock()
        self._step, self._exact, self._runs, self._nmse, self._choice = step, exact, list(runs), nmse, choice
        self._report: Optional[StepReport] = None

    def report(self) -> StepReport:
        with self._lock:
            if self._report is None:
                made = step_report(self._step, self._exact, sum(run.bytes for run in self._runs),
                                   [run.report() for run in self._runs], self._nmse, self._choice)
                parts = sum((run.copy_seconds() for run in self._runs), made.parts)
                self._report, self._runs = dataclasses.replace(made, parts=parts), []
            return self._report


# ---- The hook ----

SCALARS = "spillway"  # first part of a writer's names


class DdpHook:
    """Made by attach(). `exact` may be set between steps, to the same at all ranks.

    `tolerance`: the options of buckets that may lose something; None if none may; or an AutoCodec that chooses them.
    `names`: of the tensors with error feedback; None without it."""

    def __init__(self, member: Member, tolerance: Union[abi.OperationOptions, AutoCodec, None],
                 names: Optional[BucketNames], layers: LayerPolicy, warm_up_steps: int, measure_every: int,
                 writer: Any) -> None:
        self.exact = False
        self._auto = tolerance if isinstance(tolerance, AutoCodec) else None
        self._tolerance = None if isinstance(tolerance, AutoCodec) else tolerance
        self._member = member
        self._names, self._layers = names, layers
        self._warm_up_steps, self._measure_every = warm_up_steps, measure_every
        self._writer = writer
        self._step = 0
        self._buckets = 0  # in the last step
        self._under_way: List[BucketRun] = []
        self._ended: Optional[EndedStep] = None

    def report(self) -> Optional[StepReport]:
        """The last finished step's report; None before the first. Waits for the GPU while values are still being
        copied back."""
        ended = self._ended
        return None if ended is None else ended.report()

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """Steps inside it lose nothing."""
        before, self.exact = self.exact, True
        try:
            yield
        finally:
            self.exact = before

    @property
    def member(self) -> Member:
        return self._member

    @property
    def is_auto(self) -> bool:
        """True if the codec is found by trial."""
        return self._auto is not None

    def state_dict(self) -> Dict[str, Any]:
        """The hook's part of a checkpoint. Error feedback is not included: it starts anew after load_state_dict()."""
        choice = self._auto.choice if self._auto is not None else None
        return {"step": self._step, **({} if choice is None else {"choice": str(choice.candidate)})}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self._step = state["step"]
        if self._auto is not None and "choice" in state:
            self._auto.resume(Candidate.parse(state["choice"]))

    def run(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        if bucket.index() == 0:
            self.begin_step()
            before_backward_ends(self.end_step)
        return self.start(bucket).future()

    def start(self, bucket: Any) -> BucketRun:
        """`bucket` is one of DDP's, or has the same methods."""
        if self._auto is not None:
            self._auto.add(bucket.buffer())
        run = BucketRun(bucket.buffer(), self._is_measured())
        run.start(self._member, self._options_for(bucket))
        self._under_way.append(run)
        return run

    def _must_be_exact(self) -> bool:
        return self.exact or self._step < self._warm_up_steps

    def _is_exact(self) -> bool:
        return self._must_be_exact() or self._tolerance is None

    def _is_measured(self) -> bool:
        every = self._measure_every
        return every > 0 and self._step % every == 0 and not self._is_exact()

    def _options_for(self, bucket: Any) -> abi.OperationOptions:
        if self._is_exact() or self._tolerance is None or bucket.buffer().dtype not in FLOATING:
            options = self._member.communicator.options()
        else:
            options = abi.OperationOptions.from_buffer_copy(self._tolerance)
            options.feedback_tensor = self._names.feedback_tensor(bucket.parameters()) if self._names else 0
        self._layers.apply(options, bucket.index(), self._buckets)
        return options

    def begin_step(self) -> None:
        """Call before the step's first bucket."""
        self._under_way = []  # drops runs of a failed backward pass
        if self._auto is not None:
            self._auto.begin_step(not self._must_be_exact())
            self._tolerance = self._auto.tolerance

    def end_step(self) -> None:
        """Waits for the step's buckets. With DDP it runs at the end of the backward pass, before DDP reads them."""
        runs, self._under_way = self._under_way, []
        for run in runs:
            run.wait()
        if self._member.is_step_lost():
            return
        if self._auto is not None:
            self._auto.end_step(not self._must_be_exact(), lambda: max(run.seconds() for run in runs))
        errors = [run.error_and_energy() for run in runs] if self._is_measured() else []
        nmse = sum(error for error, _ in errors) / max(sum(energy for _, energy in errors), 1e-300) if errors else None
        for run in runs:
            run.release_tensors()
        self._ended = EndedStep(self._step, self._is_exact(), runs, nmse, self._auto and self._auto.choice)
        self._buckets = len(runs)
        self._step += 1
        self._write_scalars()

    def _write_scalars(self) -> None:
        report = self.report() if self._writer is not None else None
        if report is not None:
            for name, value in report.scalars().items():
                self._writer.add_scalar(f"{SCALARS}/{name}", value, report.step)


# No annotations: DDP accepts only torch's own types in them.
def run_bucket(hook, bucket):
    return hook.run(bucket)


# Number of hooks per communicator; it tells their tensors apart.
_hooks: "weakref.WeakKeyDictionary[Any, Iterator[int]]" = weakref.WeakKeyDictionary()


def hook_number(member: Member) -> int:
    return next(_hooks.setdefault(member.communicator, itertools.count()))


_attached: "weakref.WeakKeyDictionary[Any, DdpHook]" = weakref.WeakKeyDictionary()


def member_of(group: Any) -> Member:
    """The group's own member if it is a Spillway group, else a new one whose ranks meet through the group."""
    own = collectives_of(group)
    return Member(join_through_group(group, "torch ddp")) if own is None else own.member


def make_hook(group: Any, parameters: Iterable[Any], codec: Codec, *, loss_bound: Optional[float] = None,
              least_contributors: float = 0.0, error_feedback: bool = True, priority: Union[str, int] = "layer",
              warm_up_steps: int = 1, measure_every: int = 0, writer: Any = None) -> DdpHook:
    """The hook of a model whose gradients the group averages; the arguments are those of attach()."""
    if not isinstance(codec, Codec):
        raise TypeError(f"codec is {codec!r}: give a codec of spillway.torch, such as Planes(bits=5) or Entropy()")
    if warm_up_steps < 0 or measure_every < 0:
        raise ValueError("warm_up_steps and measure_every are 0 or more")
    layers = LayerPolicy(level_of(priority, "layer", "priority"))
    codec.check_feedback(error_feedback)

    def candidate_options(name: str, bits: int) -> abi.OperationOptions:
        """Options of a candidate of Auto. Codecs whose packets all arrive ignore the caller's loss bound."""
        candidate = codec_named(name, bits)
        candidate.check_feedback(error_feedback)
        return candidate.options(loss_bound if candidate.loss_bound else None, least_contributors)

    if isinstance(codec, Auto):
        tolerances = tolerances_of(HOOK_CANDIDATES, candidate_options)
    elif not isinstance(codec, Exact):
        tolerance = codec.options(loss_bound, least_contributors)
    member = member_of(group)
    names = BucketNames(parameters, hook_number(member)) if error_feedback else None
    chosen: Union[abi.OperationOptions, AutoCodec, None] = None
    if isinstance(codec, Auto):
        limit = codec.max_error or (MAX_ERROR if error_feedback else MAX_ERROR_WITHOUT_FEEDBACK)
        chosen = AutoCodec(member, accepted(member, tolerances), candidate_options, limit)
    elif not isinstance(codec, Exact):
        chosen = tolerance
    return DdpHook(member, chosen, names, layers, warm_up_steps, measure_every, writer)


def attach(model: Any, codec: Codec = Planes(), *, loss_bound: Optional[float] = None, least_contributors: float = 0.0,
           error_feedback: bool = True, priority: Union[str, int] = "layer", warm_up_steps: int = 1,
           measure_every: int = 0, writer: Any = None) -> DdpHook:
    """Makes a DistributedDataParallel model average its gradients through Spillway.

    All ranks call it with the same arguments, once per model, before its first backward pass. It works with process
    groups of any backend; one that is not Spillway's only lets the ranks meet.

    codec               how gradients travel: Planes, Levels, Blocks, Entropy, Sketch, Exact or Auto
    loss_bound          share of a contribution's packets that may stay missing. None: 0.01; 0 for Entropy and Sketch
    least_contributors  above 0: late ranks are not waited for, as long as this share of ranks contributes
    error_feedback      add what did not get into a sum (rounded, trimmed, lost, late, dropped) to the bucket's next
                        step
    priority            what is sent first. "layer": the front of the model. 0 to 7: all alike
    warm_up_steps       number of exact steps at the start
    measure_every       steps between measurements of the error against an exact all-reduce; 0: never
    writer              an object with add_scalar(name, value, step), such as TensorBoard's SummaryWriter
    """
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError(f"attach() takes a DistributedDataParallel model, not {type(model).__name__}; wrap it first")
    hook = make_hook(model.process_group, model.parameters(), codec, loss_bound=loss_bound,
                     least_contributors=least_contributors, error_feedback=error_feedback, priority=priority,
                     warm_up_steps=warm_up_steps, measure_every=measure_every, writer=writer)
    model.register_comm_hook(hook, run_bucket)
    _attached[model] = hook
    return hook


def hook_of(model: Any) -> Optional[DdpHook]:
    """The hook that attach() returned for the model."""
    return _attached.get(model)
