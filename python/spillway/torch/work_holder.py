# SPDX-License-Identifier: Apache-2.0
"""Works as Python sees them where Spillway is a backend of torch's own group.

torch returns an operation's Work to Python in a holder of its own. The holder forwards wait() and get_future(), and
nothing else: is_completed() would be False for ever, exception() None, and a receive from any rank would not know its
source. The Future of a failed operation would return the error instead of raising it, because only its Python half
knows. forward_to_own_works() makes these methods ask the Work in the holder.

The holder of a Work is recognised by get_future(): while a thread asks, SpillwayWork.get_future() leaves itself in
`asking.found` and starts nothing. Works of other backends answer as before.

Threads: any.
"""
import functools
import threading
from typing import Any, Callable, Optional

from torch.distributed import Work

HIDDEN = ("get_future", "is_completed", "is_success", "exception", "result", "source_rank", "_source_rank")

future_of_torch = Work.get_future


class Asking(threading.local):
    is_asking = False
    found: Any = None


asking = Asking()


def own_work_in(work: Any) -> Optional[Any]:
    """The SpillwayWork that the holder has; None for any other Work."""
    asking.is_asking, asking.found = True, None
    try:
        future_of_torch(work)
    except RuntimeError:  # works of some backends have no future
        return None
    finally:
        asking.is_asking = False
    return asking.found


def forwarding(name: str, torchs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(torchs)
    def forward(work: Any, *arguments: Any) -> Any:
        own = own_work_in(work)
        return torchs(work, *arguments) if own is None else getattr(own, name)(*arguments)

    return forward


@functools.lru_cache(maxsize=None)
def forward_to_own_works() -> None:
    for name in HIDDEN:
        setattr(Work, name, forwarding(name, getattr(Work, name)))
