# SPDX-License-Identifier: MIT
"""Part of a training step: the forward of one loss function, its backward, and the update of one optimizer. `Updates`
looks at the optimizers of a step before each: at hooks, current hyper-parameters, and parameters that the array no
longer has.

Hyper-parameters are read when a step is asked for and are inputs of its recording, so a schedule records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from .._C import Guards
from .._torch import containers_of_step_hooks, has_gradient_hook
from .._under_way import cut_in
from ..errors import InvalidArgument
from ..optim import ArrayOptimizer, GradScaler, HyperParameters, guard_values
from .arguments import explain_loss, hooks_after_a_step, with_parts
from .capture.guards import GuardTable

_NOTHING = SimpleNamespace()
_COUNTERS = ("active", "skipped", "grad_norms")  # of an optimizer's group
LossFunction = Callable[..., "torch.Tensor | tuple[torch.Tensor, torch.Tensor]"]
Hyper = Mapping[str, torch.Tensor]
Vectors = Sequence[Hyper]
Plans = Sequence[tuple[str, list[int], list[int]] | None]


@dataclass(frozen=True)
class StepPart:
    """Loss function and optimizer that a step trains with, and how; `removed` are ids of parameters that are no longer
    in the array."""

    loss_function: LossFunction
    optimizer: ArrayOptimizer
    scaler: GradScaler | torch.amp.GradScaler | None = None
    accumulate: int = 1
    removed: frozenset[int] = frozenset()


class ShardPart:
    """One part of the step of a shard, models `start` to `start + length` of all.

    The optimizer's groups and states are views of those of all models.
    """

    def __init__(self, step_part: StepPart, views: Mapping[int, torch.Tensor], start: int, length: int) -> None:
        """`views` are the shard's parameters, by the identity of those of all models."""
        self.optimizer, self._loss_function = step_part.optimizer, step_part.loss_function
        self._accumulate = step_part.accumulate
        self.start, self.length = start, length
        self._whole = length == self.optimizer.B
        scaler = step_part.scaler
        self._scaler = scaler.narrow(start, length) if isinstance(scaler, GradScaler) else scaler
        self._groups: list[dict[str, Any]] = []
        self._of_all: list[torch.Tensor] = []
        self._state: dict[torch.Tensor, dict[str, Any]] = {}
        self._given: dict[torch.Tensor, Set[str]] = {}  # names of the states that are views of the optimizer's
        for group in self.optimizer.param_groups:
            held = [parameter for parameter in group["params"] if id(parameter) not in step_part.removed]
            self._groups.append(self._narrow_group(group, held, views))
            self._of_all += held
        self._held: list[torch.Tensor] = []

    def __len__(self) -> int:
        return len(self._groups)

    def _narrow_group(
        self, group: dict[str, Any], held: Sequence[torch.Tensor], views: Mapping[int, torch.Tensor]
    ) -> dict[str, Any]:
        params = []
        trained = [parameter for parameter in held if parameter.requires_grad]
        self.optimizer.init_state(group, trained, self.optimizer.state)
        states = dict(self.optimizer.state.items())  # at once: each reading of one takes back what steps have left
        for parameter in held:
            if id(parameter) not in views:
                raise InvalidArgument(
                    f"the optimizer holds a parameter {list(parameter.shape)} that the array does not: give "
                    "the models all that they train with as parameters, and the optimizer array.parameters(); what "
                    'was taken out of the array, take out of the optimizer\'s param_groups[...]["params"]'
                )
            if has_gradient_hook(parameter):
                raise InvalidArgument(
                    f"a parameter {list(parameter.shape)} has a gradient hook, which StepRunner's parts of the array "
                    "would not call: take it away, or train without StepRunner"
                )
            view = views[id(parameter)]
            # Of the array itself as it is: a forward may thaw more of it.
            state = states[parameter] if parameter in states else self.optimizer.state[parameter]
            self._state[view] = state if view is parameter else self._narrow_all(state)
            self._given[parameter] = set(state)
            params.append(view)
        # One formula for all models, chosen by all: a step that looks for momentum itself could not be replayed.
        rule = self.optimizer.rule(group, group)
        return {**group, **self._narrow_all(group), "params": params, "rule": rule}

    def _narrow_all(self, values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """View this shard's part of the tensors `[B, ...]` among `values`."""
        return {
            name: self.narrow(value)
            for name, value in values.items()
            if isinstance(value, torch.Tensor) and value.dim() > 0 and len(value) == self.optimizer.B
        }

    def give_back(self, others: Sequence[ShardPart]) -> None:
        """Give the optimizer the state that updates have made in this shard and in the `others` after it, which are all
        models: that of parameters which a forward has thawed."""
        rows = [[part._state[p] for group in part._groups for p in group["params"]] for part in (self, *others)]
        for parameter, *own in zip(self._of_all, *rows, strict=True):
            for name in own[0].keys() - self._given[parameter]:
                if all(name in row for row in own):
                    self.optimizer.state[parameter][name] = torch.cat([row[name] for row in own])

    def narrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """View this shard's part `[length, ...]` of a tensor `[B, ...]`."""
        return tensor if self._whole else tensor.narrow(0, self.start, self.length)

    def hold_others(self, parameters: Sequence[torch.Tensor]) -> None:
        """Hold those of the shard's `parameters` that are not the optimizer's while this part is trained."""
        own = {id(parameter) for group in self._groups for parameter in group["params"]}
        self._held = [p for p in parameters if p.requires_grad and id(p) not in own]

    @contextmanager
    def others_held(self) -> Iterator[None]:
        """Hold the parameters that another part of the step trains."""
        for parameter in self._held:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in self._held:
                parameter.requires_grad_(True)

    # -- for a recording -------------------------------------------------------------------------------------------

    def state(self, names: Mapping[torch.Tensor, str]) -> dict[str, torch.Tensor]:
        """Collect the tensors that an update changes: trained parameters, the optimizer's state and its counters.

        Args:
            names: those of the shard's parameters.
        """
        held = [parameter for group in self._groups for parameter in group["params"]]
        found = {names[parameter]: parameter for parameter in held if parameter.requires_grad}
        found |= {f"{n} of {names[p]}": t for p in held for n, t in self._state[p].items()}
        for number, group in enumerate(self._groups):
            names_of = (*_COUNTERS, *self.optimizer.counters)
            counters = {f"{name} of group {number}": group.get(name) for name in names_of}
            found |= {name: value for name, value in counters.items() if isinstance(value, torch.Tensor)}
        return found

    def roles(self) -> dict[str, Any]:
        """Collect by role what stays from step to step: the optimizer's state, groups and plans, and the scaler's."""
        found: dict[str, Any] = {}
        for number, group in enumerate(self._groups):
            for place, parameter in enumerate(group["params"]):
                found |= {f"state {number} {place} {n}": t for n, t in self._state[parameter].items()}
            found |= {f"group {number} {name}": value for name, value in group.items()}
            for place, tensor in enumerate(self.optimizer.planner(group).plan_tensors(group)):
                found[f"plan {number} {place}"] = tensor
        held = vars(self._scaler or _NOTHING)
        scaler = {**held, **held.get("_vectors", {})}
        return found | {f"scaler {name}": value for name, value in scaler.items()}

    def facts(self, names: Mapping[torch.Tensor, str]) -> tuple[Any, ...]:
        """List the Python values that the optimizer's code sees; `names` are those of the shard's parameters."""
        flags = tuple(
            tuple((name, value) for name, value in group.items() if isinstance(value, (bool, int, float, str)))
            for group in self._groups
        )
        updated = [[names[p] for p in group["params"]] for group in self._groups]  # in which order
        return type(self.optimizer), self.optimizer.on_nan, flags, updated, self._accumulate

    def plans(self) -> Plans:
        """Describe the optimizer's plan of each group: its rule, and the places of its parameters."""
        return [self.optimizer.planner(group).planned(group) for group in self._groups]

    def prepare(self, plans: Plans) -> None:
        """Make the optimizer's plans, equal to another shard's."""
        for group, plan in zip(self._groups, plans, strict=True):
            if plan is not None:
                self.optimizer.planner(group).prepare(group, self._state, *plan)

    def follow_memory(self) -> bool:
        """Let the optimizer's plans point to the memory that parameters have now; return False if one cannot."""
        return all(self.optimizer.planner(group).follow_memory(group) for group in self._groups)

    # -- a step ----------------------------------------------------------------------------------------------------

    def backward(self, array: torch.nn.Module, batch: tuple[Any, ...]) -> torch.Tensor:
        """Compute the losses, and leave the gradients in the parameters; figures follow the losses."""
        parts = self._accumulate
        if parts == 1:
            losses, figures = self._checked(self._losses(array, batch))
            self._scaled(losses).backward()
            return _beside(losses.detach(), figures)
        total: torch.Tensor | None = None
        for index in range(parts):
            with cut_in(parts) as wholes:
                losses, figures = self._checked(self._losses(array, _slice(batch, index, parts, wholes)))
            losses = losses / parts
            self._scaled(losses).backward()
            own = _beside(losses.detach(), figures)
            total = own if total is None else total + own
        assert total is not None
        return total

    def _losses(self, array: torch.nn.Module, batch: tuple[Any, ...]) -> Any:
        try:
            return self._loss_function(array, *batch)
        except (TypeError, RuntimeError) as error:
            explain_loss(self._loss_function, batch, error)
            raise

    def second_pass(self, array: torch.nn.Module, batch: tuple[Any, ...], hyper: Sequence[Hyper]) -> None:
        """Take the gradients again where an optimizer of two passes wants them."""
        optimizer: Any = self.optimizer
        moved = optimizer.perturb(self._groups, hyper)
        self.forget_gradients()
        try:
            self.backward(array, batch)
        finally:
            optimizer.put_back(moved)

    def update(self, hyper: Sequence[Hyper]) -> None:
        """Let the optimizer read the gradients, with the hyper-parameters of each of its groups."""
        scaler = self._scaler
        if scaler is None:
            self.optimizer.step_groups(self._groups, self._state, hyper)
        elif isinstance(scaler, GradScaler):
            scaler.step_groups(self.optimizer, self._groups, self._state, hyper)
            scaler.update()
        else:
            # torch's asks for an optimizer only to see its gradients and to call or to skip its step.
            step = partial(self.optimizer.step_groups, self._groups, self._state, hyper)
            whole: Any = SimpleNamespace(param_groups=self._groups, step=step)
            scaler.step(whole)
            scaler.update()

    def gradients_of_all(self) -> list[tuple[int, int]]:
        """Mark the gradients of the array's own parameters; these marks stay as they are in a step of a shard."""
        grads = [p.grad for p in self._of_all if p.grad is not None]
        return [(id(grad), grad._version) for grad in grads]

    def forget_gradients(self) -> None:
        """Take the gradients away, or the next step would add to what this one left."""
        for group in self._groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _checked(self, found: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Check that there is one loss, or one loss and figures, for each of this shard's models."""
        losses, figures = found, None
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], torch.Tensor):
            losses, figures = found
        if isinstance(losses, torch.Tensor) and losses.shape == (self.length,):
            if figures is None or (figures.dim() == 2 and len(figures) == self.length):
                return losses, None if figures is None else figures.detach()
            raise InvalidArgument(
                f"the loss function returned figures {list(figures.shape)} beside the losses of {self.length} models: "
                f"they must be [{self.length}, n], n numbers of each model"
            )
        got = list(losses.shape) if isinstance(losses, torch.Tensor) else f"a {type(losses).__name__}"
        raise InvalidArgument(
            f"the loss function returned {got} for {self.length} models; StepRunner takes one loss per model, "
            f"[{self.length}]: use a loss of dnnsuite.nn.functional, or take the mean of each model's own, as in "
            "losses.flatten(1).mean(1)"
        )

    def _scaled(self, losses: torch.Tensor) -> torch.Tensor:
        """Sum the losses, scaled, into the number to differentiate."""
        scaler = self._scaler
        if scaler is None:
            return losses.sum()
        return scaler.scale(losses).sum() if isinstance(scaler, GradScaler) else scaler.scale(losses.sum())


def _beside(losses: torch.Tensor, figures: torch.Tensor | None) -> torch.Tensor:
    """Put figures `[b, n]` beside losses `[b]`: `[b, 1 + n]`, in a dtype that holds both."""
    return losses if figures is None else torch.cat([losses[:, None], figures], 1)


def of_all_parts(found: Sequence[torch.Tensor]) -> torch.Tensor:
    """Put the losses of all parts in front of their figures: `[b, parts + n]`; of one part they are as they are."""
    if len(found) == 1:
        return found[0]
    wide = [one if one.dim() == 2 else one[:, None] for one in found]
    return torch.cat([*(one[:, :1] for one in wide), *(one[:, 1:] for one in wide)], 1)


def _slice(batch: Any, index: int, parts: int, wholes: dict[int, torch.Tensor]) -> Any:
    """Take part `index` of `parts` equal parts of the samples, dimension 1 of every tensor, which `wholes` gets by the
    identity of its part."""
    if isinstance(batch, torch.Tensor):
        if batch.dim() < 2 or batch.size(1) % parts:
            raise InvalidArgument(
                f"accumulate={parts} cuts dimension 1 of a batch in equal parts; a tensor of it is {list(batch.shape)}"
            )
        size = batch.size(1) // parts
        part = batch.narrow(1, index * size, size)
        wholes[id(part)] = batch
        return part
    return with_parts(batch, lambda part: _slice(part, index, parts, wholes))


class Updates:
    """Optimizers whose groups and hooks are looked at before each step.

    Attributes:
        vectors: the current hyper-parameters; the same list as before while every value in it is the same.
        hooks: those that wait for the end of a step, each with its optimizer.
    """

    def __init__(self, optimizers: Sequence[ArrayOptimizer]) -> None:
        self._each = [(one, HyperParameters(), (*one.per_model, "max_grad_norm")) for one in optimizers]
        self.vectors: Vectors = []
        self.hooks: list[tuple[ArrayOptimizer, Any]] = []
        self._rules: list[Any] = []
        self.table = GuardTable()
        self._before = self._read()

    def changed(self) -> bool:
        """Look at all of it; return True once groups, flags, rules or state of an optimizer have changed.

        Raises:
            InvalidArgument: an optimizer has a hook that cannot be called.
        """
        if self.table.hold():
            return False
        fresh = self.table.renewed(self._guard)
        self.hooks = [(one, hook) for one, _, _ in self._each for hook in hooks_after_a_step(one)]
        if self._read() != self._before:
            return True
        self.table.keep(fresh)
        return False

    def _guard(self, guards: Guards) -> None:
        for one, _, names in self._each:
            held = vars(one)
            for key in ("_changes", "param_groups", "step"):
                guards.item(held, key)
            for hooks in containers_of_step_hooks(one):
                guards.container(hooks, hooks.copy())
            for tensor in _states(one):
                guards.result(tensor.data_ptr)
            groups = one.own_groups()
            guards.container(groups)
            for group in groups:
                guards.container(group)
                guards.container(dict.__getitem__(group, "params"))
                guard_values(guards, group, names)

    def _read(self) -> tuple[list[Any], ...]:
        """Read the hyper-parameters; return how often each optimizer was changed, the rules of its groups, how many
        parameters each has, and where its state lies, which `.data = ...` changes."""
        found = [(one.own_groups(), hypers, names) for one, hypers, names in self._each]
        changed = [hypers.read(groups, names) for groups, hypers, names in found]  # all are looked at
        if any(changed):
            self._rules = [one.rule(group, group) for one, _, _ in self._each for group in one.own_groups()]
            self.vectors = [own for _, hypers, _ in found for own in hypers.copies]
        trained = [len(dict.__getitem__(group, "params")) for groups, _, _ in found for group in groups]
        places = [tensor.data_ptr() for one, _, _ in self._each for tensor in _states(one)]
        return [one.revision for one, _, _ in self._each], self._rules, trained, places


def _states(optimizer: ArrayOptimizer) -> list[torch.Tensor]:
    """List the tensors in an optimizer's state as they are: a step that is under way need not end for it."""
    rows = dict.values(optimizer.state)
    return [value for row in rows for value in dict.values(row) if isinstance(value, torch.Tensor)]


class RemovedParameters:
    """Search for such parameters. As in torch they get no gradient, and are not stepped; a parameter that the array
    never had is none of them."""

    def __init__(self) -> None:
        self._array: torch.nn.Module | None = None
        self._known: dict[int, torch.Tensor] = {}
        self.ids: frozenset[int] = frozenset()

    def look(self, array: torch.nn.Module, optimizers: Sequence[ArrayOptimizer]) -> None:
        """Find those that `optimizers` hold, for `ids`."""
        held = {id(p): p for p in array.parameters()}
        known = self._known if array is self._array else {}
        trained = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
        self.ids = frozenset(trained & known.keys() - held.keys())
        self._array, self._known = array, {**known, **held}
