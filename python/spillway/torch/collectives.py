# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's operations over a communicator. Everything is exact, except for all-reduces and reduce-scatters
if the group has a codec (backend_codec.py).

torch calls a group of Spillway's through one of two faces (process_group.py), and both inherit all operations from
here. Methods have the names, arguments and keywords of torch's own groups and backends, in all releases: if releases
differ, both are here. Threads: any may call; all ranks call in the same order.
"""
import datetime
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from .. import abi
from ..communicator import Communicator
from .backend_codec import BackendCodec
from .backward import MAX_LEVEL, BackwardOrder, LayerPolicy
from .operation import IntegerAverage, Member, Operation, OperationGroup, SpillwayWork, milliseconds_of
from .sparse import SparseAllReduce
from .tensors import FLOATING, HostSpan, Span, reduction_of, span_of

BACKEND = "spillway"
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
OWN_TAG = abi.MAX_TAG  # for messages that no receive of the caller may match


def one_of(tensors: Any, operation: str) -> torch.Tensor:
    """Unpacks torch's lists, which have one tensor per device of the process."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{operation}: Spillway takes one tensor per rank, not {len(tensors)}; run one process per "
                         "device")
    return tensors[0]


def list_of(lists: Any, operation: str) -> List[torch.Tensor]:
    """Takes [[tensor per rank]] or [tensor per rank]; empty if this rank has none."""
    if lists and isinstance(lists[0], (list, tuple)):
        if len(lists) != 1:
            raise ValueError(f"{operation}: Spillway takes one list of tensors per rank, not {len(lists)}")
        return list(lists[0])
    return list(lists or [])


def root_of(options: Any, root: Optional[int]) -> int:
    """The root is given by itself, in torch's options, or in their place."""
    if root is not None:
        return root
    return options if isinstance(options, int) else getattr(options, "rootRank", 0)


class Collectives:
    """Without a `codec`, everything is exact."""

    def __init__(self, communicator: Communicator, codec: Optional[BackendCodec] = None) -> None:
        self._codec = codec
        self._backward_order, self._layers = BackwardOrder(), LayerPolicy()
        self.member = Member(communicator)
        if codec is not None and codec.auto is not None:
            codec.auto.join(self.member)
        self._batch: Optional[List[SpillwayWork]] = None
        self._timeout_ms = 0  # of every operation; 0: as the communicator was told
        self._started = 0

    # ---- Identity ----

    @property
    def communicator(self) -> Communicator:
        return self.member.communicator

    # Current values: torch's C++ half keeps those from the start.
    @property
    def _rank(self) -> int:
        return self.communicator.rank

    @property
    def _world(self) -> int:
        return self.communicator.world

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._world

    def getBackendName(self) -> str:
        return BACKEND

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Applies to later operations. torch's 0 stands for the timeout that the group was made with."""
        self._timeout_ms = milliseconds_of(timeout)

    def _get_sequence_number_for_group(self) -> int:
        return self._started

    def _set_sequence_number_for_group(self) -> None:
        """torch asks for it; the count begins at 0 at every rank."""

    def shutdown(self) -> None:
        self.communicator.close()

    def abort(self) -> None:
        self.communicator.abort("the process group was aborted")

    def __del__(self) -> None:
        member = getattr(self, "member", None)
        if member is not None:
            member.communicator.close()

    # ---- Reductions ----

    def allreduce(self, tensors: Any, opts: Any = None, op: Any = None) -> SpillwayWork:
        return self._all_reduce(tensors, opts, op, self._backward_order.next_place, self._layers)

    def sum_at(self, place: Tuple[int, int], layers: LayerPolicy, tensor: torch.Tensor) -> SpillwayWork:
        """For a caller that knows when the next forward pass needs the sum: `place` is an index, from the back of the
        model, and a count."""
        return self._all_reduce(tensor, None, None, lambda: place, layers)

    def _all_reduce(self, tensors: Any, opts: Any, op: Any, next_place: Callable[[], Optional[Tuple[int, int]]],
                    layers: LayerPolicy) -> SpillwayWork:
        tensor = one_of(tensors, "all_reduce")
        if tensor.layout == torch.sparse_coo:
            sparse = SparseAllReduce(tensor, opts if op is None else op)
            return self._work(sparse.start(self.member), [tensor])
        reduction = self._reduction([tensor], opts if op is None else op, "all_reduce")
        options = self._coded_options("all_reduce", [tensor], reduction, next_place, layers)
        span = span_of(tensor, "all_reduce", options, self._world)
        return self._start("all_reduce", span, span, [tensor], reduction, options=options)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, root: Optional[int] = None) -> SpillwayWork:
        tensor = one_of(tensors, "reduce")
        chosen = opts if op is None and not isinstance(opts, int) else op
        reduction = self._reduction([tensor], chosen, "reduce")
        root = root_of(opts, root)
        span = HostSpan([tensor], "reduce")
        receive = span if root == self._rank else None
        return self._start("reduce", span, receive, [tensor], reduction, root)

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> SpillwayWork:
        output = one_of(output_tensors, "reduce_scatter")
        inputs = self._per_rank(list_of(input_tensors, "reduce_scatter"), output, "reduce_scatter")
        return self._reduce_scatter(HostSpan(inputs, "reduce_scatter"), output, inputs, opts)

    def _reduce_scatter_base(self, outputTensor: torch.Tensor, inputTensor: torch.Tensor,
                             opts: Any = None) -> SpillwayWork:
        self._check_whole(inputTensor, outputTensor, "reduce_scatter")
        return self._reduce_scatter(HostSpan([inputTensor], "reduce_scatter", self._world), outputTensor,
                                    [inputTensor], opts)

    def _reduce_scatter(self, send: HostSpan, output: torch.Tensor, inputs: List[torch.Tensor],
                        opts: Any) -> SpillwayWork:
        reduction = self._reduction([output, *inputs], opts, "reduce_scatter")
        options = self._coded_options("reduce_scatter", inputs, reduction, self._backward_order.next_place,
                                      self._layers)
        return self._start("reduce_scatter", send, HostSpan([output], "reduce_scatter"), [output], reduction,
                           options=options)

    # ---- Data movement ----

    def broadcast(self, tensors: Any, opts: Any = None, root: Optional[int] = None) -> SpillwayWork:
        return self._broadcast(one_of(tensors, "broadcast"), root_of(opts, root))

    def broadcast_urgently(self, tensor: torch.Tensor) -> SpillwayWork:
        """From the first rank, before all else that travels."""
        options = self._options()
        options.priority = MAX_LEVEL
        return self._broadcast(tensor, 0, options)

    def _broadcast(self, tensor: torch.Tensor, root: int,
                   options: Optional[abi.OperationOptions] = None) -> SpillwayWork:
        span = HostSpan([tensor], "broadcast")
        return self._start("broadcast", span if root == self._rank else None, span, [tensor], root, options=options)

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> SpillwayWork:
        tensor = one_of(input_tensors, "all_gather")
        outputs = self._per_rank(list_of(output_tensors, "all_gather"), tensor, "all_gather")
        return self._start("all_gather", HostSpan([tensor], "all_gather"), HostSpan(outputs, "all_gather"), outputs)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> SpillwayWork:
        self._check_whole(output, input, "all_gather")
        return self._start("all_gather", HostSpan([input], "all_gather"),
                           HostSpan([output], "all_gather", self._world), [output])

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
               root: Optional[int] = None) -> SpillwayWork:
        tensor = one_of(input_tensors, "gather")
        root = root_of(opts, root)
        if root != self._rank:
            return self._start("gather", HostSpan([tensor], "gather"), None, [], root)
        outputs = self._per_rank(list_of(output_tensors, "gather"), tensor, "gather")
        return self._start("gather", HostSpan([tensor], "gather"), HostSpan(outputs, "gather"), outputs, root)

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                root: Optional[int] = None) -> SpillwayWork:
        output = one_of(output_tensors, "scatter")
        root = root_of(opts, root)
        receive = HostSpan([output], "scatter")
        if root != self._rank:
            return self._start("scatter", None, receive, [output], root)
        inputs = self._per_rank(list_of(input_tensors, "scatter"), output, "scatter")
        return self._start("scatter", HostSpan(inputs, "scatter"), receive, [output], root)

    def alltoall_base(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                      output_split_sizes: Sequence[int], input_split_sizes: Sequence[int],
                      opts: Any = None) -> SpillwayWork:
        if output_split_sizes or input_split_sizes:
            return self.alltoall(self._split(output_tensor, output_split_sizes),
                                 self._split(input_tensor, input_split_sizes), opts)
        self._check_same_type(output_tensor, input_tensor, "all_to_all")
        return self._start("all_to_all", HostSpan([input_tensor], "all_to_all", self._world),
                           HostSpan([output_tensor], "all_to_all", self._world), [output_tensor])

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> SpillwayWork:
        """Sends and receives, because sizes may differ from pair to pair, and only a pair knows its own."""
        outputs, inputs = list(output_tensors), list(input_tensors)
        if len(outputs) != self._world or len(inputs) != self._world:
            raise ValueError(f"all_to_all: {self._world} ranks need as many tensors; there are {len(inputs)} in and "
                             f"{len(outputs)} out")
        operations = [self._begin_receive(outputs[peer], peer, OWN_TAG)
                      for peer in self._others() if outputs[peer].numel()]
        operations += [self._begin_send(inputs[peer], peer, OWN_TAG)
                       for peer in self._others() if inputs[peer].numel()]
        outputs[self._rank].detach().copy_(inputs[self._rank].detach())
        return self._work(OperationGroup(operations), outputs)

    def barrier(self, opts: Any = None) -> SpillwayWork:
        """If its options have a timeout, it fails after that and names the ranks that did not come."""
        return self._barrier(getattr(opts, "timeout", None))

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Names all ranks that did not come, at every rank that did, whatever wait_all_ranks says. `timeout` is a
        timedelta, or torch's options that have one."""
        self._barrier(getattr(timeout, "timeout", timeout)).wait()

    def _barrier(self, timeout: Optional[datetime.timedelta]) -> SpillwayWork:
        options = self._options()
        options.timeout_ms = milliseconds_of(timeout) or options.timeout_ms
        return self._work(Operation("barrier", None, None, options=options).start(self.member), [])

    # ---- Point to point ----

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> SpillwayWork:
        self._check_tag(tag, "send")
        return self._work(self._begin_send(one_of(tensors, "send"), dstRank, tag), [])

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> SpillwayWork:
        self._check_tag(tag, "recv")
        tensor = one_of(tensors, "recv")
        return self._work(self._begin_receive(tensor, srcRank, tag), [tensor])

    def recv_anysource(self, tensors: Any, tag: int = 0) -> SpillwayWork:
        return self.recv(tensors, abi.ANY_RANK, tag)

    # ---- Coalesced ----

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> SpillwayWork:
        return self._together([self.allreduce(tensor, opts) for tensor in tensors], list(tensors))

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> SpillwayWork:
        works = [self.allgather([list(each[at] for each in output_lists)], [tensor], opts)
                 for at, tensor in enumerate(input_list)]
        return self._together(works, [tensor for each in output_lists for tensor in each])

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> SpillwayWork:
        works = [self._allgather_base(output, tensor, opts) for output, tensor in zip(outputs, inputs)]
        return self._together(works, list(outputs))

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> SpillwayWork:
        works = [self._reduce_scatter_base(output, tensor, opts) for output, tensor in zip(outputs, inputs)]
        return self._together(works, list(outputs))

    def _start_coalescing(self, device: Any = None) -> None:
        self._batch = []

    def _end_coalescing(self, device: Any = None) -> SpillwayWork:
        works, self._batch = self._batch or [], None
        return self._together(works, [])

    # Names in newer releases of torch.
    allreduce_sparse = allreduce
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    start_coalescing = _start_coalescing
    end_coalescing = _end_coalescing

    # ---- Shared helpers ----

    def _start(self, name: str, send: Optional[Span], receive: Optional[Span], result: List[torch.Tensor],
               *rest: Any, options: Optional[abi.OperationOptions] = None) -> SpillwayWork:
        """`rest`: the arguments after the type."""
        either = send if send is not None else receive
        assert either is not None
        is_average = name in REDUCING and rest[0] == abi.AVERAGE and either.dtype not in FLOATING
        if is_average:
            rest = (abi.SUM, *rest[1:])
        operation = Operation(name, send, receive, send and send.pointer, receive and receive.pointer, either.count,
                              either.type, *rest, options=options or self._options()).start(self.member)
        if is_average and receive is not None:
            return self._work(IntegerAverage(operation, result[0], self._world), result)
        return self._work(operation, result)

    def _coded_options(self, operation: str, tensors: Sequence[torch.Tensor], reduction: int,
                       next_place: Callable[[], Optional[Tuple[int, int]]],
                       layers: LayerPolicy) -> abi.OperationOptions:
        """Options of a reduction of gradients, perhaps with the group's codec."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        codec = self._codec
        if codec is None or not codec.applies_to(operation, tensors[0].dtype, size, reduction):
            options = self._options()
        else:
            options = codec.options_in_turn(self.member, operation, size)
            options.timeout_ms = self._timeout_ms
        place = next_place()
        if place is not None:
            layers.apply(options, *place)
        return options

    def _options(self) -> abi.OperationOptions:
        options = self.communicator.options()
        options.timeout_ms = self._timeout_ms
        return options

    def _begin_send(self, tensor: torch.Tensor, peer: int, tag: int) -> Operation:
        span = HostSpan([tensor], "send")
        return Operation("send", span, None, span.pointer, span.count, span.type, peer,
                         options=self._tagged(tag)).start(self.member)

    def _begin_receive(self, tensor: torch.Tensor, peer: int, tag: int) -> Operation:
        span = HostSpan([tensor], "recv")
        return Operation("receive", None, span, span.pointer, span.count, span.type, peer,
                         options=self._tagged(tag)).start(self.member)

    def _tagged(self, tag: int) -> abi.OperationOptions:
        options = self._options()
        options.tag = tag
        return options

    def _work(self, operation: Any, result: List[torch.Tensor]) -> SpillwayWork:
        work = SpillwayWork(operation, result)
        self._started += 1
        if self._batch is not None:
            self._batch.append(work)
        return work

    def _together(self, works: List[SpillwayWork], result: List[torch.Tensor]) -> SpillwayWork:
        return SpillwayWork(OperationGroup([work.operation for work in works]), result)

    def _others(self) -> List[int]:
        return [(self._rank + distance) % self._world for distance in range(1, self._world)]

    def _reduction(self, tensors: Sequence[torch.Tensor], options: Any, operation: str) -> int:
        return [reduction_of(tensor.dtype, options, operation) for tensor in tensors][0]

    def _per_rank(self, tensors: List[torch.Tensor], own: torch.Tensor, operation: str) -> List[torch.Tensor]:
        if len(tensors) != self._world:
            raise ValueError(f"{operation}: {self._world} ranks need a list of as many tensors; it has {len(tensors)}")
        if tensors[0].numel() != own.numel():
            raise ValueError(f"{operation}: the tensors of the list have {tensors[0].numel()} elements, this rank's "
                             f"has {own.numel()}; they must be the same")
        self._check_same_type(tensors[0], own, operation)
        return tensors

    def _check_whole(self, whole: torch.Tensor, part: torch.Tensor, operation: str) -> None:
        if whole.numel() != self._world * part.numel():
            raise ValueError(f"{operation}: {self._world} parts of {part.numel()} elements are not the "
                             f"{whole.numel()} of the whole")
        self._check_same_type(whole, part, operation)

    @staticmethod
    def _check_same_type(one: torch.Tensor, other: torch.Tensor, operation: str) -> None:
        if one.dtype != other.dtype:
            raise TypeError(f"{operation}: its tensors must have one type, not {one.dtype} and {other.dtype}")

    def _split(self, tensor: torch.Tensor, sizes: Sequence[int]) -> List[torch.Tensor]:
        """Splits along the first dimension; equally if no sizes are given."""
        rows = tensor.shape[0]
        if not sizes and rows % self._world:
            raise ValueError(f"all_to_all: {rows} rows cannot be divided among {self._world} ranks")
        return list(tensor.detach().split(list(sizes) if sizes else [rows // self._world] * self._world))

    @staticmethod
    def _check_tag(tag: int, operation: str) -> None:
        if not 0 <= tag < OWN_TAG:
            raise ValueError(f"{operation}: tag {tag} is outside 0 to {OWN_TAG - 1}")
