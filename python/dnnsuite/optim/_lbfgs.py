# SPDX-License-Identifier: MIT
"""LBFGS of each model of an array: B searches of torch's own, which share every evaluation of the losses.

A search asks for losses and gradients where it wants to know them, as often as it needs. Each model's runs in a thread
of its own over views of the model's parameters; once all that are not done have asked, one call of the closure answers
them together. So each model's numbers are those of torch's optimizer on the model alone.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import _under_way as under_way
from ..errors import InvalidArgument, StepCancelled
from ._base import ArrayOptimizer
from ._group import Group
from ._plan import Hyper
from ._values import check_indices

_WHOLE = ("max_iter", "max_eval", "history_size")


class LBFGS(ArrayOptimizer):
    """`torch.optim.LBFGS` for B models: each model has its own directions, line search and stopping point.

    `step` takes a closure that computes the losses `[B]`, runs backward and returns the losses. The closure is called
    until the last model has finished its search, so a StepRunner cannot use it.

    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(4, 1, B=3)
    >>> optimizer = optim.LBFGS(array.parameters(), lr=[1.0, 0.5, 0.1], line_search_fn="strong_wolfe")
    """

    torch_class = torch.optim.LBFGS
    per_model = ("lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size")
    flags = ("line_search_fn",)
    passes = 0
    _alone: Sequence[Any] = ()

    def _check_group(self, group: Group) -> None:
        if group["max_eval"] is None:
            group["max_eval"] = torch.as_tensor(group["max_iter"]) * 5 // 4
        super()._check_group(group)
        if "max_grad_norm" in group or self.on_nan != "ignore":
            raise InvalidArgument(
                "LBFGS takes neither max_grad_norm nor on_nan: a search needs its gradients as they are"
            )
        if self.param_groups:
            raise InvalidArgument("LBFGS takes all parameters of a model in one group, as torch's does")

    def rule(self, group: Group, hyper: Hyper) -> str:
        return "LBFGS"

    def names_of(self, rule: str, parameter: torch.Tensor) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (), ()

    def _searches(self) -> list[Any]:
        """Return torch's optimizer of each model, over views of the parameters as they lie in memory now."""
        (group,) = self.own_groups()
        params, before, self._alone = group["params"], [*self._alone, *[None] * self.B], []
        for index in range(self.B):
            views = [torch.nn.Parameter(p.detach()[index], requires_grad=p.requires_grad) for p in params]
            arguments: Group = {name: float(group[name][index]) for name in self.per_model}
            arguments |= {name: int(arguments[name]) for name in _WHOLE}
            new = torch.optim.LBFGS(views, **arguments, line_search_fn=group["line_search_fn"])
            if before[index] is not None:
                new.state[views[0]] = next(iter(before[index].state.values()), {})
            self._alone.append(new)
        return self._alone

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Let each model search once. Returns the first losses `[B]`."""
        if closure is None:
            raise InvalidArgument("LBFGS.step takes a closure that computes the losses, runs backward and returns them")
        under_way.finish(self)
        params = self.own_groups()[0]["params"]
        places = [index for index, moves in enumerate(self.active.tolist()) if moves]
        alone = self._searches()
        searches = [alone[index] for index in places]
        turns, first = _Turns(len(searches)), None
        threads = [
            threading.Thread(target=turns.search, args=(place, one), daemon=True) for place, one in enumerate(searches)
        ]
        for thread in threads:
            thread.start()
        try:
            while turns.all_ask():
                with torch.enable_grad():
                    losses = closure()
                if not isinstance(losses, torch.Tensor) or losses.shape != (self.B,):
                    raise InvalidArgument(f"the closure returns one loss for each of {self.B} models, [{self.B}]")
                first = losses if first is None else first
                for one, index in zip(searches, places, strict=True):
                    for view, p in zip(one.param_groups[0]["params"], params, strict=True):
                        view.grad = (
                            None if p.grad is None else p.grad[index].clone(memory_format=torch.contiguous_format)
                        )
                turns.answer([losses.detach()[index] for index in places])
        except BaseException:
            turns.cancel()
            raise
        finally:
            for thread in threads:
                thread.join()
        if turns.error is not None:
            raise turns.error
        torch.autograd.graph.increment_version(params)
        return first

    def to_model(self, index: int, params: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        alone = super().to_model(index, params)
        (group,) = alone.param_groups
        group.update({name: int(group[name]) for name in _WHOLE})
        alone.load_state_dict(
            {**self._searches()[index].state_dict(), "param_groups": alone.state_dict()["param_groups"]}
        )
        return alone

    def took(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._alone = copy.deepcopy(list(optimizers))

    def select(self, indices: Sequence[int | None], **fresh: Any) -> None:
        chosen = check_indices(indices, self.B)
        before = [*self._alone, *[None] * self.B]
        super().select(indices, **fresh)
        self._alone = [None if index is None else copy.deepcopy(before[index]) for index in chosen]

    def state_dict(self) -> Group:
        searches = [one.state_dict()["state"] for one in self._searches()]
        return {**super().state_dict(), "searches": copy.deepcopy(searches)}

    def load_state_dict(self, state_dict: Group) -> None:
        searches = state_dict["searches"]
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "searches"})
        for one, state in zip(self._searches(), copy.deepcopy(searches), strict=True):
            one.state.update({one.param_groups[0]["params"][place]: row for place, row in state.items()})

    def __getstate__(self) -> Group:
        return {"_alone": self._alone, **super().__getstate__()}


class _Turns:
    """Searches in threads, of which each waits for the answer to what it asks."""

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self._searching, self._asking, self._round = count, 0, 0
        self._losses: list[torch.Tensor] | None = []
        self.error: BaseException | None = None

    def search(self, place: int, optimizer: Any) -> None:
        """Take a step of `optimizer`."""
        try:
            optimizer.step(lambda: self._ask(place))
        except StepCancelled:
            pass
        except BaseException as error:
            self.error = self.error or error
        finally:
            with self._changed:
                self._searching -= 1
                self._changed.notify_all()

    def _ask(self, place: int) -> torch.Tensor:
        with self._changed:
            self._asking += 1
            now = self._round
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._round > now)
            if self._losses is None:
                raise StepCancelled("the closure of another model's search failed")
            return self._losses[place]

    def all_ask(self) -> bool:
        """Wait until each search asks or is done; return False when all are done."""
        with self._changed:
            self._changed.wait_for(lambda: self._asking == self._searching)
            return self._searching > 0

    def answer(self, losses: list[torch.Tensor] | None) -> None:
        """Answer all that ask."""
        with self._changed:
            self._losses, self._asking = losses, 0
            self._round += 1
            self._changed.notify_all()

    def cancel(self) -> None:
        """End all searches."""
        self.answer(None)
