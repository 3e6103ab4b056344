# SPDX-License-Identifier: Apache-2.0
"""A communication hook that sends DDP's gradients through Spillway's tolerant all-reduce.

    hook = spillway.torch.attach(ddp_model, precision=16, loss_bound=0.01)
    ...
    print(hook.report())                     # of the last step

Invariants: all ranks end a step with the same gradients, except with lossy_gather. The first warm_up_steps, and steps
for which `exact` is set, lose nothing. Errors come out of backward(). Error feedback begins after the warm-up, and
DDP rebuilds its buckets after the first step: with at least one warm-up step no residual is ever dropped; without,
that of the first step is.

Threads: DDP calls it from the thread that runs the backward pass; any thread may read reports.
"""
import contextlib
import dataclasses
import itertools
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

import torch

from .. import abi
from ..request import PartSeconds
from .auto_codec import (HOOK_CANDIDATES, MAX_ERROR, MAX_ERROR_WITHOUT_FEEDBACK, AutoCodec, accepted,
                         tolerances_of)
from .backward import before_backward_ends
from .buckets import BucketNames, BucketRun
from .codec_chooser import Candidate
from .codecs import AUTO, check_auto, code_fields, default_loss_bound, exact_algorithm
from .element_types import FLOATING
from .layers import LayerPolicy, level_of
from .meeting import join_through_group
from .operation import Member
from .process_group import SpillwayGroup
from .step_report import StepReport, step_report


GATHER_PRECISION = 16  # default


class DdpHook:
    """Made by attach(). `exact` may be set between steps, to the same at all ranks.

    `tolerance`: the options of buckets that may lose something; None if none may; or an AutoCodec that chooses them.
    `algorithm`: for exact buckets. `names`: of the tensors with error feedback; None without it."""

    def __init__(self, member: Member, tolerance: Union[abi.OperationOptions, AutoCodec, None], algorithm: int,
                 names: Optional[BucketNames], layers: LayerPolicy, warm_up_steps: int, measure_every: int, writer: Any,
                 tag: str) -> None:
        self.exact = False
        self._auto = tolerance if isinstance(tolerance, AutoCodec) else None
        self._tolerance = None if isinstance(tolerance, AutoCodec) else tolerance
        self._member, self._algorithm = member, algorithm
        self._names, self._layers = names, layers
        self._warm_up_steps, self._measure_every = warm_up_steps, measure_every
        self._writer, self._tag = writer, tag
        self._step = 0
        self._buckets = 0  # in the last step
        self._under_way: List[BucketRun] = []
        self._report: Optional[StepReport] = None
        self._copies: List[Callable[[], PartSeconds]] = []  # copy times that the report still lacks

    def report(self) -> Optional[StepReport]:
        """The last finished step's report; None before the first. Waits for the GPU while values are still being
        copied back."""
        report, copies = self._report, self._copies
        if report is None or not copies:
            return report
        parts = sum((seconds() for seconds in copies), report.parts)
        self._report, self._copies = dataclasses.replace(report, parts=parts), []
        return self._report

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
        """True if the code is found by trial."""
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
            self._under_way = []  # drops runs of a failed backward pass
            before_backward_ends(self._end_step)
            self._begin_step()
        if self._auto is not None:
            self._auto.add(bucket.buffer())
        run = BucketRun(bucket.buffer(), self._is_measured())
        run.start(self._member, self._options_for(bucket))
        self._under_way.append(run)
        return run.future()

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
            options.algorithm = self._algorithm
        else:
            options = abi.OperationOptions.from_buffer_copy(self._tolerance)
            options.feedback_tensor = self._names.feedback_tensor(bucket.parameters()) if self._names else 0
        self._layers.apply(options, bucket.index(), self._buckets)
        return options

    def _begin_step(self) -> None:
        if self._auto is not None:
            self._auto.begin_step(not self._must_be_exact())
            self._tolerance = self._auto.tolerance

    def _end_step(self) -> None:
        """Runs at the end of the backward pass, before DDP reads the results."""
        runs, self._under_way = self._under_way, []
        for run in runs:
            run.wait()
        if self._member.is_step_lost():
            return
        reports = [run.report() for run in runs]
        if self._auto is not None:
            self._auto.end_step(not self._must_be_exact(), max(report.seconds for report in reports))
        errors = [run.error_and_energy() for run in runs] if self._is_measured() else []
        nmse = sum(error for error, _ in errors) / max(sum(energy for _, energy in errors), 1e-300) if errors else None
        self._report = step_report(self._step, self._is_exact(), sum(run.bytes for run in runs),
                                   reports, nmse, self._auto and self._auto.choice)
        self._copies = [run.operation.copy_seconds for run in runs]
        self._buckets = len(runs)
        self._step += 1
        self._write_scalars()

    def _write_scalars(self) -> None:
        report = self.report() if self._writer is not None else None
        if report is not None:
            for name, value in report.scalars().items():
                self._writer.add_scalar(f"{self._tag}/{name}", value, report.step)


# No annotations: DDP accepts only torch's own types in them.
def run_bucket(hook, bucket):
    return hook.run(bucket)


# Number of hooks per communicator; it tells their tensors apart.
_hooks: "weakref.WeakKeyDictionary[Any, Iterator[int]]" = weakref.WeakKeyDictionary()


_attached: "weakref.WeakKeyDictionary[Any, DdpHook]" = weakref.WeakKeyDictionary()


def member_of(group: Any, fields: Dict[str, Any]) -> Member:
    """The group's own member if it is a Spillway group, else a new one whose ranks meet through the group."""
    unknown = [name for name in fields if not hasattr(abi.CommConfig, name)]
    if unknown:
        raise TypeError(f"attach() has no argument {', '.join(unknown)}; help(spillway.torch.attach) lists them")
    if isinstance(group, SpillwayGroup):
        if fields:
            raise ValueError(f"{', '.join(fields)} cannot be set: the hook uses the communicator of the process group")
        return group.member
    return Member(join_through_group(group, "torch ddp", **fields))


def attach(model: Any, codec: str = "planes", precision: Optional[int] = None,
           loss_bound: Optional[float] = None, *,
           algorithm: str = "automatic", scale: str = "exact", gather_precision: Optional[int] = None,
           min_planes: int = 1, max_error: Optional[float] = None,
           least_contributors: float = 0.0, lossy_gather: bool = False, error_feedback: bool = True,
           importance: Union[str, int] = "energy", expendable: Optional[float] = None,
           priority: Union[str, int] = "layer", warm_up_steps: int = 1, measure_every: int = 0, writer: Any = None,
           tag: str = "spillway", **communicator: Any) -> DdpHook:
    """Makes a DistributedDataParallel model average its gradients through Spillway.

    All ranks call it with the same arguments, once per model, before its first backward pass.

    codec             "planes": bit planes of rotated rows, which may lose something; "exact": no loss. "thc": few
                      levels of rotated rows, and "blocks": 32-bit numbers; switches and servers can add both. Without
                      error_feedback, thc shrinks gradients a little, because it clips large values.
                      "coded": whole numbers in an entropy code that learns from earlier steps; "sketch": the same
                      for gradients that are mostly zero, often at the same places. "auto": tries codes in the first
                      steps, takes the one with the shortest steps, and looks again when steps change
    precision         bits per value on the way to the sums: 1 to 32, by default 16; for thc 2, 3, 4 or 8, by default 4;
                      for coded and sketch 2 to 16 before coding, by default 8
    algorithm         "switch": switches on the way add, if there are any; thc and blocks use them by default. For
                      coded and sketch "direct" or "ring". For exact steps "direct", "ring", "tree", "levels"
    scale             for all codes but planes. "exact": ranks agree on it first. "predicted": it follows from the last
                      step's. That saves a round trip (for coded, a pass over the values); error feedback makes up
                      for values that are too large for it
    loss_bound        share of a contribution's packets that may stay missing, by default 0.01; for coded and sketch 0
    gather_precision  bits per value of the returned sums, by default 16; for auto as many as on the way to the sums
    min_planes        bits per value that a trimmed packet must keep to count
    least_contributors  above 0: late ranks are not waited for, as long as this share of ranks contributes
    max_error         for auto: limit of a step's squared error over the energy of the exact sum; by default 0.3,
                      without error feedback 0.01
    lossy_gather      the returned sums may lose packets, so replicas may drift apart; for research
    error_feedback    add what did not get into a sum (coded away, trimmed, lost, late, dropped) to the bucket's next
                      step
    importance        what switches drop first. "energy": packets of rows with little energy. 0 to 7: all packets are
                      alike; 0 to 3 are dropped early, 4 to 6 are not, 7 must arrive
    expendable        with "energy": share of a contribution's packets to drop first. None: the loss_bound for the
                      front of the model, less towards its back
    priority          what is sent first. "layer": the front of the model. 0 to 7: all alike
    warm_up_steps     number of exact steps at the start
    measure_every     steps between measurements of the error against an exact all-reduce; 0: never
    writer, tag       an object with add_scalar(name, value, step), such as TensorBoard's SummaryWriter
    communicator      fields of spillway_comm_config (window, trimmed_target_ppm, ...), if the process group is not
                      Spillway's

    Works with process groups of any backend. One that is not Spillway's only lets the ranks meet.
    """
    if warm_up_steps < 0 or measure_every < 0:
        raise ValueError("warm_up_steps and measure_every are 0 or more")
    level = level_of(importance, "energy", "importance")
    layers = LayerPolicy(level_of(priority, "layer", "priority"))
    is_auto = codec == AUTO
    if max_error is None:
        max_error = MAX_ERROR if error_feedback else MAX_ERROR_WITHOUT_FEEDBACK
    if is_auto:
        check_auto(precision, algorithm, scale, lossy_gather, max_error)

    def options(name: str, bits: Optional[int]) -> abi.OperationOptions:
        its_scale = "exact" if is_auto and name == "planes" else scale
        fields = code_fields(name, bits, algorithm, its_scale, error_feedback)
        usual_loss, usual_gather = default_loss_bound(name), fields["precision"] if is_auto else GATHER_PRECISION
        has_usual_loss = loss_bound is None or (is_auto and usual_loss == 0.0)
        return abi.default_library().tolerant_options(
            **fields, gather_precision=usual_gather if gather_precision is None else gather_precision,
            min_planes=min_planes, loss_bound=usual_loss if has_usual_loss else loss_bound,
            least_contributors=least_contributors, lossy_gather=int(lossy_gather),
            importance=abi.IMPORTANCE_BY_ENERGY if level is None else level, expendable=expendable)

    tolerances = tolerances_of(HOOK_CANDIDATES, options) if is_auto else {}
    tolerance = None if is_auto else options(codec, precision)
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError(f"attach() takes a DistributedDataParallel model, not {type(model).__name__}; wrap it first")
    member = member_of(model.process_group, communicator)
    number = next(_hooks.setdefault(member.communicator, itertools.count()))
    names = BucketNames(model.parameters(), number) if error_feedback else None
    chosen = AutoCodec(member, accepted(member, tolerances), options, max_error) if is_auto else tolerance
    hook = DdpHook(member, None if codec == "exact" else chosen, exact_algorithm(algorithm), names, layers,
                   warm_up_steps, measure_every, writer, tag)
    model.register_comm_hook(hook, run_bucket)
    _attached[model] = hook
    return hook


def hook_of(model: Any) -> Optional[DdpHook]:
    """The hook that attach() returned for the model."""
    return _attached.get(model)
