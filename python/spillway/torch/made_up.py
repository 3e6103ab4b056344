# SPDX-License-Identifier: Apache-2.0
"""Detects where a script reads values that virtual ranks of a staged world contributed to. From there on its control
flow may differ from that of the real job.

Results of operations are recorded, as tensors with the virtual ranks' contribution. A script reads one when it turns
it, or a view of it, into a number, a list or an array (READS). A warning then names the place, the operation and
where that was called. Each place warns once. With `spillway emulate stage --strict` it is an error instead. torch's
own object collectives read their results, so they are detected as well.

Not tracked: values calculated from such a result, and copies. A result that the script has since written to counts as
the script's own.
"""
import functools
import os
import sys
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from ..errors import SpillwayError, Status
from .stage_link import StageLink

READS = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__")
PACKAGES = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)


def place_of_caller() -> str:
    """file:line of the nearest frame that is neither torch's nor this package's."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGES):
        frame = frame.f_back  # type: ignore[assignment]
    return "a thread of torch's" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


class MadeUp:
    """Any thread may note and look."""

    def __init__(self, link: StageLink) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._noted: Dict[int, Tuple["weakref.ref[torch.Tensor]", int, str]] = {}  # by id: tensor, version, text
        self._told: Set[str] = set()

    def note(self, tensors: List[torch.Tensor], text: str) -> None:
        for tensor in tensors:
            key = id(tensor)
            reference = weakref.ref(tensor, lambda _, key=key: self._noted.pop(key, None))
            self._noted[key] = (reference, tensor._version, text)

    def look(self, tensor: torch.Tensor, read: str) -> None:
        text = self._text_of(tensor) or (self._text_of(tensor._base) if tensor._base is not None else None)
        if text is None:
            return
        self.tell(f"{read}() looks at a result that virtual ranks had a part in ({text})")

    def tell(self, what: str) -> None:
        """Warns once per calling place."""
        place = place_of_caller()
        with self._lock:
            if place in self._told:
                return
            self._told.add(place)
            self._link.reads = len(self._told)
        message = f"{place}: {what}: what the script does with it may differ from the real job"
        if self._link.is_strict:
            raise SpillwayError(Status.MISMATCH, message)
        warnings.warn(f"Spillway: {message}", stacklevel=4)

    def _text_of(self, tensor: torch.Tensor) -> Optional[str]:
        noted = self._noted.get(id(tensor))
        if noted is None or noted[0]() is not tensor or noted[1] != tensor._version:
            return None
        return noted[2]

    def watch(self) -> None:
        """Watches reads in the whole process from now on."""
        for name in READS:
            setattr(torch.Tensor, name, self._looking(name, getattr(torch.Tensor, name)))

    def _looking(self, name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(read)
        def look_and_read(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
            if self._noted:
                self.look(tensor, name)
            return read(tensor, *arguments, **named)

        return look_and_read


class NotedOperation:
    """An operation (operation.py) that records its results when they are there."""

    def __init__(self, operation: Any, made_up: MadeUp, tensors: List[torch.Tensor]) -> None:
        self._operation, self._made_up, self._tensors = operation, made_up, tensors
        self._place = place_of_caller()

    def wait(self, timeout_s: Optional[float] = None) -> None:
        self._operation.wait(timeout_s)
        self._note()

    def is_done(self) -> bool:
        is_done = self._operation.is_done()
        if is_done:
            self._note()
        return is_done

    def _note(self) -> None:
        tensors, self._tensors = self._tensors, []
        if tensors:
            text = self._operation.request.made_up
            if text is not None:
                self._made_up.note(tensors, f"{text}, called at {self._place}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operation, name)
