# SPDX-License-Identifier: Apache-2.0
"""Parameters that tell somebody before they are used.

A guarded parameter is the same object with another class. Before an operation of torch that Python calls reads or
writes it, or its `grad`, its guard is called. A guard may remove itself and do whatever makes the use right. Modules,
optimizers and checkpoints need not know.

Limits: code in C++ that keeps a reference (a TorchScript module, a CUDA graph) does not pass through here. Parameters
must be plain nn.Parameter, because subclasses may rely on their class.

Threads: any thread may use a guarded parameter; guards must bear that.
"""
import enum
from typing import Any, Callable, Dict, Iterator

import torch
from torch import nn

# torch 2 has a second kind of torch function, of modes, which must stay on.
Unhooked = getattr(torch._C, "DisableTorchFunctionSubclass", torch._C.DisableTorchFunction)

# Attributes and methods that involve neither values nor the gradient.
DESCRIPTIONS = frozenset((
    "_backward_hooks", "_is_view", "_post_accumulate_grad_hooks", "_version", "device", "dim", "dtype",
    "element_size", "get_device", "grad_fn", "is_complex", "is_contiguous", "is_cpu", "is_cuda", "is_floating_point",
    "is_leaf", "is_meta", "is_nested", "is_quantized", "is_same_size", "is_sparse", "itemsize", "layout", "name",
    "nbytes", "ndim", "ndimension", "nelement", "numel", "output_nr", "register_hook", "requires_grad", "shape", "size",
    "storage_offset", "stride"))
GRADIENTS = frozenset(("grad", "_grad"))


class Use(enum.Enum):
    GRADIENT = 1
    VALUE = 2


Guard = Callable[[Use], None]

_guards: Dict[int, Guard] = {}  # by id: the guard's owner keeps the parameter alive


def name_of(func: Any) -> str:
    """Accessors of attributes are called __get__ and __set__; the attribute is what they belong to."""
    name = getattr(func, "__name__", "")
    return getattr(func.__self__, "__name__", name) if name in ("__get__", "__set__", "__delete__") else name


def parameters_in(arguments: Any) -> Iterator["GuardedParameter"]:
    if isinstance(arguments, GuardedParameter):
        yield arguments
    elif isinstance(arguments, (list, tuple)):
        for each in arguments:
            yield from parameters_in(each)
    elif isinstance(arguments, dict):
        for each in arguments.values():
            yield from parameters_in(each)


class GuardedParameter(nn.Parameter):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = name_of(func)
        if name not in DESCRIPTIONS:
            use = Use.GRADIENT if name in GRADIENTS else Use.VALUE
            for parameter in list(parameters_in([args, kwargs])):
                call_guard(parameter, use)
        with Unhooked():
            return func(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: Any) -> Any:
        """A plain parameter: torch's own would have this class."""
        if id(self) not in memo:
            copied = self.data.clone(memory_format=torch.preserve_format)
            memo[id(self)] = nn.Parameter(copied, self.requires_grad)
        return memo[id(self)]


def call_guard(parameter: nn.Parameter, use: Use) -> None:
    guard = _guards.get(id(parameter))  # None: another thread has removed it meanwhile
    if guard is not None:
        guard(use)


def guard(parameter: nn.Parameter, on_use: Guard) -> None:
    """Replaces an earlier guard."""
    _guards[id(parameter)] = on_use
    parameter.__class__ = GuardedParameter


def unguard(parameter: nn.Parameter) -> None:
    parameter.__class__ = nn.Parameter
    _guards.pop(id(parameter), None)
