# SPDX-License-Identifier: Apache-2.0
"""An optimizer whose step() returns before all gradients have come, and updates each parameter when its own has.

The optimizer stays the same object; its class becomes a subclass made here. An update of some parameters is the
optimizer's own step() with parameter groups that have only these, and the options of the groups as of the call of
step(). So it has the same bits, with state in the usual place, if the optimizer treats each parameter by itself.

Readers of `state` and state_dict() wait for all updates. zero_grad() does not wait: a gradient that is
yet to be applied is cleared afterwards.

Limits: a parameter group may have no state that step() changes. Optimizers with hooks on step() update in step(), so
that the hooks see a whole step.

Threads: the one that trains; `state` may be read by any.
"""
import inspect
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import torch

Options = List[Dict[str, Any]]  # of each parameter group, without its parameters

WHOLE = (torch.optim.LBFGS,)  # they use all parameters at once


def value_now(option: Any) -> Any:
    """Schedulers change a learning rate that is a tensor in place."""
    return option.clone() if isinstance(option, torch.Tensor) else option


class OverlappedOptimizer(torch.optim.Optimizer):
    """The mixin in front of the optimizer's own class. `_overlap` has the gradients (overlapped_model.py)."""

    _overlap: Any
    _is_updating: bool

    def step(self, closure: Optional[Callable[[], Any]] = None, **keywords: Any) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if keywords or self._has_step_hooks() or not self._overlap.defer(self):
            self.synchronize()
            self._with_all(super().step, **keywords)
        return loss

    def synchronize(self) -> None:
        """Returns when all gradients have come and all updates are done."""
        self._overlap.finish_all("synchronize()")

    def zero_grad(self, set_to_none: Optional[bool] = None) -> None:
        if set_to_none is None:
            set_to_none = inspect.signature(super().zero_grad).parameters["set_to_none"].default
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self._overlap.zero_gradients(parameters, set_to_none)

    @property
    def state(self) -> Any:
        with self._overlap.lock:
            if not self._is_updating:
                self._overlap.finish_updates("optimizer.state")
            return self.__dict__["state"]

    @state.setter
    def state(self, value: Any) -> None:
        self.__dict__["state"] = value

    def load_state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        self._overlap.finish_updates("load_state_dict()")
        return super().load_state_dict(*arguments, **keywords)

    # ---- For the overlap ----

    def _options_now(self) -> Options:
        return [{name: value_now(option) for name, option in group.items() if name != "params"}
                for group in self.param_groups]

    def _update(self, options: Options, ids: Set[int]) -> None:
        """Updates the parameters of these ids."""
        parts = [dict(own, params=[each for each in group["params"] if id(each) in ids])
                 for own, group in zip(options, self.param_groups)]
        before, whole = [dict(part) for part in parts], self.param_groups
        self.param_groups = parts
        try:
            self._with_all(super().step)
        finally:
            self.param_groups = whole
        for part, group in zip(parts, before):
            changed = [name for name in part if name not in group or part[name] is not group[name]]
            if changed:
                raise RuntimeError(f"{type(self).__name__} changes {changed[0]!r} of its parameter groups in step(), "
                                   "so overlap() cannot update one layer after the other. Use DistributedDataParallel")

    def _with_all(self, function: Callable[..., Any], **keywords: Any) -> Any:
        """Calls the optimizer's own method, for which `state` does not wait."""
        with self._overlap.lock:
            self._is_updating = True
            try:
                return function(**keywords)
            finally:
                self._is_updating = False

    def _has_step_hooks(self) -> bool:
        return any(getattr(self, name, None) for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"))


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"overlap() takes an optimizer of torch.optim, not {type(optimizer).__name__}")
    if isinstance(optimizer, WHOLE):
        raise TypeError(f"{type(optimizer).__name__} updates all parameters at once, so nothing can overlap with it. "
                        "Use DistributedDataParallel")
    if isinstance(optimizer, OverlappedOptimizer):
        raise ValueError("overlap() has this optimizer already; each model needs its own")
    if "step" in vars(optimizer):
        raise ValueError("something has replaced the optimizer's step(), such as a learning-rate scheduler: call "
                         "overlap() before you make the scheduler")


def become_overlapped(optimizer: torch.optim.Optimizer, overlap: Any) -> None:
    base = type(optimizer)
    optimizer._is_updating, optimizer._overlap = False, overlap  # type: ignore[attr-defined]
    optimizer.__class__ = type(base.__name__, (OverlappedOptimizer, base), {"__module__": base.__module__})
