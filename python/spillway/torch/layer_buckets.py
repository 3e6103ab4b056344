# SPDX-License-Identifier: Apache-2.0
"""The gradients of a model in the order in which its next forward pass needs them, divided into buckets.

A layer is what a forward pass waits for at once: a module's own parameters. A bucket has the gradients of one layer,
and of small ones that follow it: an operation of their own would take longer than the wait that they add. Buckets are
never rebuilt, so error feedback is kept throughout.

ForwardOrder learns when parameters are first used; rank 0's order is that of all ranks. Parameters that the first
forward pass does not use come last in every backward pass, because only its end shows that they have no gradient.

Threads: the owner's.
"""
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence

import torch
from torch import nn

SMALL_BYTES = 64 * 1024  # of the small layers in a bucket, together
UNUSED = -1


class Layer(NamedTuple):
    """A module that waits before its forward pass. A compiled one waits for its submodules, too: hooks in them would
    divide its graph."""
    name: str
    module: nn.Module
    parameters: List[nn.Parameter]
    has_buffers: bool


def is_compiled(module: nn.Module) -> bool:
    dynamo = getattr(torch, "_dynamo", None)
    optimized = getattr(getattr(dynamo, "eval_frame", None), "OptimizedModule", None)
    return (getattr(module, "_compiled_call_impl", None) is not None
            or (optimized is not None and isinstance(module, optimized)))


def layers_of(module: nn.Module, name: str = "") -> Iterator[Layer]:
    """A module that occurs twice is two layers; the caller's hooks bear that."""
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(f"overlap(): {name or 'the model'} is scripted, and no hook can wait before it runs. Use the "
                        "module that it was made from, or DistributedDataParallel")
    is_whole = is_compiled(module)
    parameters = list(module.parameters(recurse=is_whole))
    has_buffers = any(True for _ in module.buffers(recurse=is_whole))
    if parameters or has_buffers:
        yield Layer(name or type(module).__name__, module, parameters, has_buffers)
    if not is_whole:
        for child_name, child in module.named_children():
            yield from layers_of(child, f"{name}.{child_name}" if name else child_name)


class ForwardOrder:
    """Numbers parameters, given by their places in the model, in the order of their first use."""

    def __init__(self, parameters: int) -> None:
        self._ordinals = [UNUSED] * parameters
        self._next = 0

    def use(self, places: Sequence[int]) -> None:
        """The places are used at once."""
        for place in places:
            if self._ordinals[place] == UNUSED:
                self._ordinals[place] = self._next
        self._next += 1

    def tensor(self) -> torch.Tensor:
        return torch.tensor(self._ordinals, dtype=torch.int64)


class Bucket:
    """Has the methods of DDP's GradBucket that a hook needs. `place`: 0 is the least urgent."""

    def __init__(self, parameters: List[nn.Parameter], place: int) -> None:
        first = parameters[0]
        self._parameters, self._place = parameters, place
        self.sizes = [parameter.numel() for parameter in parameters]
        self._buffer = torch.zeros(sum(self.sizes), dtype=first.dtype, device=first.device)
        self.views = [part.view(parameter.shape) for part, parameter in
                      zip(self._buffer.split(self.sizes), parameters)]

    def index(self) -> int:
        return self._place

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def parameters(self) -> List[nn.Parameter]:
        return self._parameters


def bytes_of(parameters: Sequence[nn.Parameter]) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


class Run:
    """Layers of one bucket, while it grows."""

    def __init__(self, layer: List[nn.Parameter]) -> None:
        self.parameters, self._small_bytes = list(layer), 0

    def takes(self, layer: List[nn.Parameter]) -> bool:
        first, other = self.parameters[0], layer[0]
        self._small_bytes += bytes_of(layer)
        return (first.dtype, first.device) == (other.dtype, other.device) and self._small_bytes <= SMALL_BYTES


def runs_of(layers: Sequence[List[nn.Parameter]]) -> List[List[nn.Parameter]]:
    runs: List[Run] = []
    for layer in layers:
        if runs and runs[-1].takes(layer):
            runs[-1].parameters.extend(layer)
        else:
            runs.append(Run(layer))
    return [run.parameters for run in runs]


def buckets_of(parameters: Sequence[nn.Parameter], ordinals: Sequence[int]) -> List[Bucket]:
    """In the order in which a backward pass fills them."""
    def layers(places: Sequence[int]) -> List[List[nn.Parameter]]:
        made: dict = {}
        for place in places:
            parameter = parameters[place]
            made.setdefault((ordinals[place], parameter.dtype, parameter.device), []).append(parameter)
        return list(made.values())

    order = sorted(range(len(parameters)), key=lambda place: ordinals[place])
    used = runs_of(layers([place for place in order if ordinals[place] != UNUSED]))
    unused = runs_of(layers([place for place in order if ordinals[place] == UNUSED]))
    return [Bucket(run, place) for place, run in enumerate(reversed(used))] + [Bucket(run, 0) for run in unused]
