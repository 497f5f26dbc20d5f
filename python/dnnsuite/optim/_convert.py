# SPDX-License-Identifier: MIT
"""Conversion of an array's optimizers to and from torch's, and after models were dropped, cloned or added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from ..errors import InvalidArgument
from ..ops.array_layers import changed_slots
from ..ops.decay_groups import ChosenGroup
from ._group import SWITCHES, Group, plain
from ._state import KeptAnswers, OptimizerState
from ._state_table import SCALARS, STATES
from ._values import check_range, fill_fresh, fresh_values, pick

OptimizerT = TypeVar("OptimizerT", bound=OptimizerState)


def to_model(optimizer: OptimizerState, index: int, params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Make torch's optimizer of model `index`."""
    if optimizer.torch_class is None:
        raise InvalidArgument(
            f"torch has no {type(optimizer).__name__}: give the model a {type(optimizer).__name__} of dnnsuite with "
            "B=1 (select([index]) keeps the state)"
        )
    own = [p for group in optimizer.param_groups for p in group["params"]]
    if len(own) != len(params):
        raise InvalidArgument(f"this optimizer has {len(own)} parameters, the model {len(params)}")
    groups, start = [], 0
    for group in optimizer.param_groups:
        count = len(group["params"])
        groups.append({"params": params[start : start + count], **model_arguments(optimizer, group, index)})
        start += count
    alone = optimizer.torch_class(groups)
    targets = iter(params)
    states = dict(optimizer.state.items())  # at once: each reading waits for steps, and takes back what they left
    for group in optimizer.param_groups:
        for source in group["params"]:
            target = next(targets)
            state = states.get(source)
            if state and float(state["step"][index]) > 0:
                alone.state[target] = _model_state(optimizer, state, group, index, source, target)
    return alone


def model_arguments(optimizer: OptimizerState, group: Group, index: int) -> Group:
    """Collect the arguments of torch's optimizer of model `index`."""
    arguments: Group = {name: float(group[name][index]) for name in optimizer.per_model}
    for pair, names in optimizer.pairs.items():
        arguments[pair] = tuple(arguments.pop(name) for name in names)
    return {**arguments, **{name: group[name] for name in optimizer.flags}}


def _model_state(
    optimizer: OptimizerState, state: Group, group: Group, index: int, source: torch.Tensor, target: torch.Tensor
) -> Group:
    names, _ = optimizer.names_of(optimizer.rule(group, group), source)
    # An array may hold room that a model does not have, as for adapters of larger rank. A parameter without numbers
    # stands for one whose memory was given up.
    room = tuple(slice(size) for size in target.shape) if target.numel() else ()
    own: Group = {name: state[name][index][room if state[name].shape == source.shape else ()].clone() for name in names}
    step = float(state["step"][index])
    if optimizer.torch_class is not torch.optim.SGD:
        own["step"] = torch.tensor(step)
    for name in ("mu_product", "eta"):
        if name in state:
            own[name] = torch.tensor(float(state[name][index]))
    if "eta" in own:
        own["mu"] = torch.tensor(1 / max(1.0, step - float(group["t0"][index])))
    return own


def from_models(
    cls: type[OptimizerT], optimizers: list[torch.optim.Optimizer], params: list[torch.nn.Parameter], options: Group
) -> OptimizerT:
    """Make one optimizer for an array out of B of torch."""
    if not optimizers:
        raise InvalidArgument("there is no optimizer to start from")
    kinds = {type(optimizer) for optimizer in optimizers}
    kind = _class_of(cls, kinds)
    groups: list[Group] = []
    start = 0
    for place, each in enumerate(_zipped([o.param_groups for o in optimizers], "groups")):
        counts = {len(group["params"]) for group in each}
        if len(counts) > 1:
            raise InvalidArgument(f"the models' groups {place} have different numbers of parameters: {sorted(counts)}")
        count = counts.pop()
        arguments = _stacked_arguments(kind, place, each)
        groups.append(ChosenGroup({"params": params[start : start + count], **arguments}))
        start += count
    if start != len(params):
        raise InvalidArgument(f"the models' optimizers have {start} parameters, the array {len(params)}")
    sizes = {p.size(0) if p.dim() else 0 for p in params}
    if sizes != {len(optimizers)}:
        raise InvalidArgument(f"{len(optimizers)} optimizers for an array of {min(sizes)} models")
    array: OptimizerT = kind(groups, **options)
    flat = [[p for group in o.param_groups for p in group["params"]] for o in optimizers]
    states = [[o.state.get(p, {}) for p in own] for o, own in zip(optimizers, flat, strict=True)]
    for group in array.param_groups:
        array.init_state(group, group["params"], array.state)
    with torch.no_grad():
        for place, parameter in enumerate(params):
            for index, own in enumerate(states):
                _take_state(array.state[parameter], own[place], index)
    array.took(optimizers)
    return array


def _class_of(cls: type[OptimizerState], kinds: set[type]) -> Any:
    candidates, known = [cls], []
    while candidates:
        candidate = candidates.pop()
        candidates.extend(candidate.__subclasses__())
        if candidate.torch_class is not None:
            known.append(candidate)
    for candidate in known:
        if kinds == {candidate.torch_class}:
            return candidate
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise InvalidArgument(
        f"the models' optimizers are {names}; {cls.__name__} is made from B optimizers of one class of torch, one of "
        + ", ".join(sorted(candidate.__name__ for candidate in known))
    )


def _zipped(lists: list[list[Group]], what: str) -> Any:
    if len({len(one) for one in lists}) > 1:
        raise InvalidArgument(f"the models' optimizers have different numbers of {what}")
    return zip(*lists, strict=True)


def _stacked_arguments(kind: type[OptimizerState], place: int, each: Sequence[Group]) -> Group:
    arguments: Group = {}
    in_pairs = {name: (pair, i) for pair, names in kind.pairs.items() for i, name in enumerate(names)}
    for name in kind.per_model:
        pair, position = in_pairs.get(name, (name, None))
        found = [g[pair] if position is None else g[pair][position] for g in each]
        arguments[name] = None if None in found else [float(value) for value in found]
    for name in kind.flags:
        values = {bool(group[name]) if name in SWITCHES else group[name] for group in each}
        if len(values) > 1:
            raise InvalidArgument(f"{name} differs between the models' groups {place}: an array has one for all models")
        arguments[name] = values.pop()
    return arguments


def _take_state(state: Group, own: Group, index: int) -> None:
    """Write one model's state of torch into its slot."""
    for name, value in own.items():
        if name in state and value is not None:
            state[name][index] = value
    if "step" in state and "step" not in own and own.get("momentum_buffer") is not None:
        state["step"][index] = 1  # SGD of torch does not count: a buffer says that there was a step


def follow_parameters(optimizer: OptimizerState) -> None:
    """Bring vectors and states to the device of the parameters, which `array.to` has moved since they were made."""
    moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # what the groups share stays one tensor
    for group in optimizer.own_groups():
        params = dict.__getitem__(group, "params")
        for name, value in [*group.items()] if params else ():
            if isinstance(value, torch.Tensor):
                group.put(name, moved.setdefault(id(value), (value, plain(value).to(params[0].device)))[1])
        for parameter in params:
            for name, value in [*optimizer.state.get(parameter, {}).items()]:
                if isinstance(value, torch.Tensor):
                    optimizer.state[parameter][name] = value.to(parameter.device)
    optimizer._plans, optimizer._answers = {}, KeptAnswers()
    optimizer.note_change()


def select(optimizer: OptimizerState, indices: list[int | None], fresh: Group) -> None:
    """Fill slot k of every vector and state from model indices[k]. Everything is made before anything is changed; where
    the number of models stays, only the rows of those that change are written, in place."""
    B = len(indices)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            _check_shape(parameter, optimizer.state.get(parameter), B)
    values = _fresh_hypers(optimizer, fresh, indices.count(None))
    changed = changed_slots(indices, optimizer.B)
    slots = list(range(B)) if changed is None else changed
    chosen, states = [indices[slot] for slot in slots], dict(optimizer.state.items())
    new = [slot for slot, index in zip(slots, chosen, strict=True) if index is None]
    rows: dict[int, torch.Tensor] = {}  # what the groups share is one tensor
    for name, value in [entry for row in (*optimizer.own_groups(), *states.values()) for entry in row.items()]:
        if slots and _is_per_model(value, optimizer.B) and id(value) not in rows:
            rows[id(value)] = fill_fresh(pick(value, chosen), chosen, _start_of(name, values, len(new)))

    def filled(value: Any) -> Any:
        if id(value) not in rows or changed is None:
            return rows.get(id(value), value)
        for slot, row in zip(slots, rows[id(value)], strict=True):
            plain(value)[slot] = row
        return value

    optimizer.B = B
    for group in optimizer.own_groups():
        made = {name: filled(value) for name, value in group.items()}
        for name, value in made.items():
            if value is not dict.get(group, name):
                group.put(name, value)
    for parameter, state in states.items():
        row = {name: filled(value) for name, value in state.items()}
        if changed is None:
            optimizer.state[parameter], optimizer._plans = row, {}
    for group in optimizer.own_groups() if new else ():
        for parameter in group["params"]:
            for name, value in optimizer.state.get(parameter, {}).items():
                if name in STATES:
                    value[new] = optimizer.start_state(name, torch.zeros_like(value), group)[new]


def _is_per_model(value: Any, B: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.size(0) == B


def _check_shape(parameter: torch.Tensor, state: Group | None, B: int) -> None:
    if parameter.size(0) != B:
        raise InvalidArgument(
            f"{B} indices, but a parameter has shape {list(parameter.shape)}: change the array's parameters first, "
            "and take what the array no longer has out of the optimizer's param_groups"
        )
    for name, value in (state or {}).items():
        if name in STATES and value.shape[1:] != parameter.shape[1:]:
            raise InvalidArgument(
                f"a parameter has shape {list(parameter.shape)} now, its {name} {list(value.shape)}: only the number "
                "of models may change"
            )


def _fresh_hypers(optimizer: OptimizerState, fresh: Group, count: int) -> dict[str, list[float]]:
    fresh = dict(fresh)
    for pair, names in optimizer.pairs.items():
        if pair in fresh:
            fresh.update(zip(names, fresh.pop(pair), strict=True))
    clipped = any("max_grad_norm" in group for group in optimizer.param_groups)
    wanted = (*optimizer.per_model, *(("max_grad_norm",) if clipped else ()))
    unknown = sorted(set(fresh) - set(wanted))
    if unknown:
        raise InvalidArgument(f"{type(optimizer).__name__} has no hyper-parameter {', '.join(unknown)}")
    for name in wanted:
        if count and name not in fresh:
            fresh[name] = _value_of_all(optimizer, name)
    values = {name: fresh_values(name, value, count) for name, value in fresh.items()} if count else {}
    for name, numbers in values.items():
        check_range(name, torch.tensor(numbers, dtype=torch.float64))
    return values


def _value_of_all(optimizer: OptimizerState, name: str) -> float:
    """Return the value that all models share of a hyper-parameter, which is the default of new ones."""
    values = {float(v) for group in optimizer.param_groups if name in group for v in group[name]}
    if len(values) != 1:
        raise InvalidArgument(
            f"a fresh model of {type(optimizer).__name__} needs a value of {name}, which differs from model to model: "
            "give it as a keyword"
        )
    return values.pop()


def _start_of(name: str, values: dict[str, list[float]], count: int) -> list[float]:
    if name in values:
        return values[name]
    if name == "initial_lr":
        return values.get("lr", [0.0] * count)
    return [1.0 if name == "active" else 0.0] * count


def check_loading(optimizer: OptimizerState, state_dict: Group) -> None:
    """Refuse a state of another kind of optimizer, or of another number of models."""
    for place, group in enumerate(state_dict["param_groups"]):
        known = place < len(optimizer.param_groups)
        names = optimizer.hyper_names(optimizer.param_groups[place]) if known else ()
        missing = [name for name in (*names, "active") if name not in group]
        if missing:
            raise InvalidArgument(
                f"group {place} of the state has no {missing[0]}: it is not that of a {type(optimizer).__name__} of "
                f"dnnsuite.optim; {type(optimizer).__name__}.from_models takes the models' optimizers of torch"
            )
        if group["active"].numel() != optimizer.B:
            raise InvalidArgument(
                f"the state is that of {group['active'].numel()} models, the parameters are of {optimizer.B}"
            )


def after_loading(optimizer: OptimizerState, state_dict: Group) -> None:
    """Restore what torch's loading loses: scalars in float64, and vectors that are one for all groups."""
    saved = [index for group in state_dict["param_groups"] for index in group["params"]]
    own = [p for group in optimizer.param_groups for p in group["params"]]
    for index, parameter in zip(saved, own, strict=True):
        for name, value in state_dict["state"].get(index, {}).items():
            if name in SCALARS:
                optimizer.state[parameter][name] = value.to(parameter.device, torch.float64, copy=True)
    for group in optimizer.own_groups():
        for name, vector in group.items():
            if isinstance(vector, torch.Tensor) and group["params"]:
                group.put(name, vector.to(group["params"][0].device))
        for name in ("active", "skipped"):
            group.put(name, optimizer.param_groups[0][name])
