# SPDX-License-Identifier: MIT
"""Base of an array's optimizers: a value of every hyper-parameter per model, and one operator call per step."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _under_way as under_way
from .. import ops
from .._shown import shown
from ..errors import InvalidArgument
from ..ops.decay_groups import warn_of_dimensions
from ..ops.optimizer import clip_factors
from ..ops.shared import Maybe
from . import _convert
from ._group import Group, HyperParameter, ParameterGroup, plain
from ._plan import Groups, Hypers, refuse_other_width, refuse_sparse
from ._state import KeptAnswers, OptimizerState
from ._values import check_indices, plain_owner

# How torch computes, not what: accepted, and of no effect here.
_TORCH_ONLY = ("foreach", "fused", "capturable")


def _argument(name: str, default: Any, kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD) -> inspect.Parameter:
    return inspect.Parameter(name, kind, default=inspect.Parameter.empty if name == "params" else default)


_OPTIONS = [
    _argument(name, default, inspect.Parameter.KEYWORD_ONLY)
    for name, default in (("B", None), ("on_nan", "ignore"), ("max_grad_norm", None))
]
_POLICIES = ("ignore", "skip", "freeze")


class ArrayOptimizer(OptimizerState):
    """Base of the optimizers over parameters `[B, ...]`, one slot per model.

    One operator updates all parameters of all models in one pass. Arguments have the names and meanings of torch's
    optimizers; each takes one number for all models, or a sequence of B, one per model. `param_groups` holds them as
    float64 tensors `[B]` on the device of the parameters, and a pair such as `betas` as `beta1` and `beta2`.
    `param_groups[i][name] = value` takes a number, a sequence or a tensor at any time, and torch's schedulers may
    assign it. A parameter that a model did not use in a backward pass is not updated for that model, just as torch
    skips a parameter whose gradient is None.

    Args:
        params: parameters of arrays, or groups of them as torch takes them.
        B: number of models; required only if there is no parameter to infer it from.
        max_grad_norm: largest norm of each model's gradients, one number or one per model: it clips like
            `clip_grad_norm_`, but scales the gradients while the step reads them instead of writing them.
        on_nan: treatment of a model with a gradient that is not finite: "ignore" steps like torch, "skip" leaves the
            model out of this step, "freeze" out of this and all later steps. `skipped` counts and `frozen` names these
            models; all others step in any case.

    Raises:
        InvalidArgument: the parameters do not belong to an array, or a value is neither one number nor B of them.

    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(4, 2, B=3)
    >>> optimizer = optim.Adam(array.parameters(), lr=[1e-2, 1e-3, 1e-4], weight_decay=0.1)
    >>> optimizer.param_groups[0]["lr"].tolist()
    [0.01, 0.001, 0.0001]
    >>> optimizer.param_groups[0]["lr"] = 0.5
    >>> optimizer.param_groups[0]["lr"].tolist()
    [0.5, 0.5, 0.5]
    """

    def __new__(cls, params: Iterable[Any] = (), *args: Any, B: int | None = None, **kwargs: Any) -> Any:
        """`B=0` gives torch's own optimizer; otherwise B is that of the parameters."""
        if B == 0:
            if cls.torch_class is None:
                raise InvalidArgument(f"torch has no {cls.__name__}, so B=0 cannot give it: leave B out")
            return cls.torch_class(params, *args, **kwargs)
        return super().__new__(cls)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give a class the signature of torch's, or that of its `arguments`, and the options that all have."""
        super().__init_subclass__(**kwargs)
        named = [_argument(*each) for each in cls.arguments.items()]
        if cls.torch_class is not None and not named:
            named = list(inspect.signature(cls.torch_class).parameters.values())[1:]
        given = [p for p in named if p.name not in cls.fixed]
        shown = inspect.Signature([_argument("params", ()), *given, *_OPTIONS])
        if "__init__" in vars(cls):
            shown = inspect.signature(cls.__init__)
            shown = shown.replace(parameters=list(shown.parameters.values())[1:])
        cls.__signature__ = shown  # type: ignore[attr-defined]

    def __init__(self, params: Iterable[Any] = (), *args: Any, **kwargs: Any) -> None:
        signature = next(vars(kind)["__signature__"] for kind in type(self).__mro__ if "__init__" not in vars(kind))
        known = {name: value for name, value in kwargs.items() if name not in _TORCH_ONLY}
        for name in known:
            if name not in signature.parameters:
                raise TypeError(f"{type(self).__name__} has no argument {name!r}")
        bound = signature.bind(params, *args, **known)
        bound.apply_defaults()
        values = {name: value for name, value in bound.arguments.items() if name not in _TORCH_ONLY}
        if values.pop("differentiable", False):
            raise InvalidArgument("a step of an array is not differentiable; leave differentiable out")
        options = {parameter.name: values.pop(parameter.name) for parameter in _OPTIONS}
        self._start(values.pop("params"), {**values, **self.fixed}, **options)

    def _start(
        self,
        params: Iterable[Any],
        defaults: Group,
        B: int | None = None,
        on_nan: str = "ignore",
        max_grad_norm: Any = None,
    ) -> None:
        """Begin with groups and the values that they lack."""
        if isinstance(params, torch.nn.Module):
            raise InvalidArgument(f"give the array's parameters: {type(self).__name__}(array.parameters(), ...)")
        self.on_nan = on_nan
        self._plans, self._answers = {}, KeptAnswers()
        given = {pair: defaults[pair] for pair in self.pairs if pair in defaults}
        defaults = self._without_pairs(defaults)
        if max_grad_norm is not None:
            defaults["max_grad_norm"] = max_grad_norm
        params = list(params)
        torch.optim.Optimizer.__init__(self, params, defaults)
        if len(params) == 1 and isinstance(params[0], dict) and "weight_decay" in params[0]:
            warn_of_dimensions(params)
        self.defaults.update(given)  # torch's schedulers look for `betas` there
        if B is not None and B != self.B:
            raise InvalidArgument(f"B={B}, but the parameters are those of {self.B} models")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "on_nan" and value not in _POLICIES:
            raise InvalidArgument(f"on_nan is {value!r}; it must be one of {', '.join(_POLICIES)}")
        super().__setattr__(name, value)
        if name == "on_nan" and value != "ignore":
            self._keep_norms()

    def _without_pairs(self, values: Group) -> Group:
        """Copy `values` with each pair as the two hyper-parameters that it is."""
        values = copy.copy(values)
        for pair, names in self.pairs.items():
            if pair in values:
                try:
                    first, second = values.pop(pair)
                except (TypeError, ValueError) as error:
                    raise InvalidArgument(f"{pair} must be two values, each a number or one per model") from error
                values |= {names[0]: first, names[1]: second}
        return values

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, as torch's optimizers do. Raises InvalidArgument for parameters that belong to no array, and
        for values that are neither one number nor one per model."""
        given, B = self._without_pairs(param_group), self.B
        super().add_param_group(given)
        group = {name: value for name, value in self.param_groups.pop().items() if name not in self.pairs}
        try:
            self._check_group(group)
        except InvalidArgument:
            self.B = B
            raise
        self.param_groups.append(ParameterGroup(group, self))
        if param_group.get("max_grad_norm") is not None:
            self.limit(group["max_grad_norm"])
        self.note_change()

    def _check_group(self, group: Group) -> None:
        owner = plain_owner(group["params"])
        if owner is not None:
            name = type(self).__name__
            raise InvalidArgument(
                f"these are the parameters of a plain {type(owner).__name__}, which have no dimension for the models: "
                f"array = dnnsuite.fuse(models), then dnnsuite.optim.{name}(array.parameters(), ...); for one model "
                f"alone {'torch.optim.' + name if self.torch_class else 'fuse([model])'}"
            )
        for parameter in group["params"]:
            if parameter.dim() == 0:
                raise InvalidArgument("a scalar parameter has no dimension for the models; an array's are [B, ...]")
            self.B = self.B or parameter.size(0)
            if parameter.size(0) != self.B:
                raise InvalidArgument(
                    f"parameters of one array have the same B in dimension 0; got {self.B} and {parameter.size(0)} "
                    f"(shape {list(parameter.shape)}); those of a plain model, as array[i] is, train with torch.optim"
                )
        device = group["params"][0].device if group["params"] else None
        first = self.param_groups[0] if self.param_groups else None
        limit = group.pop("max_grad_norm", None) if first is None else first.get("max_grad_norm")
        limited = {} if limit is None else {"max_grad_norm": limit}
        group.update(limited)
        for name in (*self.hyper_names(group), *limited):
            group[name] = HyperParameter.of(name, group[name], self.B, device)
        # All groups share them: a model is active or not as a whole.
        for name, start, dtype in (("active", 1, torch.bool), ("skipped", 0, torch.int64)):
            shared = first[name] if first else torch.full((self.B,), start, dtype=dtype, device=device)
            group[name] = shared
        for name in self.counters:
            group[name] = torch.zeros(self.B, dtype=torch.float64, device=device)
        if limited or self.on_nan != "ignore":
            group["grad_norms"] = torch.zeros(self.B, dtype=torch.float64, device=device)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every model once. `closure`, if given, computes the losses `[B]` again and returns them."""
        under_way.finish(self)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.follow_parameters()
        self.step_groups(self.own_groups(), self.state)
        return loss

    def follow_parameters(self) -> None:
        """Move all state per model to the device of the parameters, which `array.to` may have changed."""
        group = self.param_groups[0]
        params = dict.__getitem__(group, "params")
        if params and params[0].device != dict.__getitem__(group, "active").device:
            _convert.follow_parameters(self)

    @torch.no_grad()
    def step_groups(
        self, groups: Groups, state: Any, hypers: Hypers | None = None, factor: Maybe = None, found: Maybe = None
    ) -> None:
        """Update `groups` once: this optimizer's groups, or the part of them that belongs to some of the models.

        Args:
            state: the state of these groups' parameters.
            hypers: per group the `[B]` vectors of `per_model`, instead of the group's own.
            factor: float64 `[B]`, multiplies the gradients as they are read.
            found: bool `[B]`: models that do not step, as a GradScaler finds them.
        """
        if not groups:
            return
        first = groups[0]
        active = first["active"]
        if found is not None:
            active = active & ~found
        if self.on_nan != "ignore" or "max_grad_norm" in first:
            limit = (hypers or groups)[0].get("max_grad_norm")
            factor, active = self._look_at_gradients(groups, factor, active, limit)
        self.update_groups(groups, state, hypers or groups, factor, active)

    def update_groups(self, groups: Groups, state: Any, hypers: Hypers, factor: Maybe, active: Tensor) -> None:
        """Update `groups` for the models that are `active`."""
        for group, hyper in zip(groups, hypers, strict=True):
            self.update(group, group["params"], state, hyper, factor, active)

    def _look_at_gradients(
        self, groups: Sequence[Group], factor: Tensor | None, active: Tensor, limit: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Compute the norms of all gradients; from them, clipping factors and the models that do not step."""
        grads = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        if not grads:
            return factor, active
        refuse_sparse(grads, grads)
        first = groups[0]
        refuse_other_width(grads, first["active"])
        norms = ops.gradient_norms(grads)
        if factor is not None:
            norms = norms * factor
        first["grad_norms"].copy_(norms)
        if self.on_nan != "ignore":
            bad = ~torch.isfinite(norms) & active
            first["skipped"].add_(bad)
            if self.on_nan == "freeze":
                first["active"].logical_and_(~bad)
            active = active & ~bad
        if limit is not None:
            clip = clip_factors(limit, norms, grads)
            factor = clip if factor is None else clip * factor
        return factor, active

    def to_model(self, index: int, params: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Make the torch optimizer of model `index` over `params` (in this one's order), with a copy of its state."""
        under_way.finish(self)
        return _convert.to_model(self, index, list(params))

    @classmethod
    def from_models(
        cls, optimizers: Sequence[torch.optim.Optimizer], params: Iterable[torch.nn.Parameter], **options: Any
    ) -> ArrayOptimizer:
        """Make an optimizer for an array from torch optimizers of its models, with copies of their states.

        `params` are the parameters of the array, in the order of the models' groups. Called on `ArrayOptimizer` it
        finds the class; `options` are keywords that torch does not have.
        """
        return _convert.from_models(cls, list(optimizers), list(params), options)

    def select(self, indices: Sequence[int | None], **fresh: Any) -> None:
        """Follow a change of the array: slot k now holds former model `indices[k]`, or a new one where that is None.

        Call it after the parameters were changed in place (the same Parameter objects, with new `.data` for the new B).
        Repeated indices are clones. `fresh` holds the hyper-parameters of new models, each one number or one per new
        model; their states are zero and their steps count from zero.
        """
        under_way.finish(self)
        _convert.select(self, check_indices(indices, self.B), fresh)

    def freeze(self, indices: int | Iterable[int]) -> None:
        """Stop these models: parameters, state and step count no longer change."""
        self._set_active(indices, False)

    def unfreeze(self, indices: int | Iterable[int]) -> None:
        """Undo `freeze`, also one by `on_nan`."""
        self._set_active(indices, True)

    def _set_active(self, indices: int | Iterable[int], value: bool) -> None:
        under_way.finish(self)
        chosen = check_indices([indices] if isinstance(indices, int) else list(indices), self.B)
        self.param_groups[0]["active"][chosen] = value

    @property
    def active(self) -> Tensor:
        """Models that step, bool `[B]`."""
        under_way.finish(self)
        return self.param_groups[0]["active"]

    @property
    def frozen(self) -> list[int]:
        """The models that do not step, frozen by `freeze` or by `on_nan`."""
        return [index for index, active in enumerate(self.active.tolist()) if not active]

    @property
    def skipped(self) -> Tensor:
        """Number of steps that each model left out because of gradients that were not finite, int64 `[B]`."""
        under_way.finish(self)
        return self.param_groups[0]["skipped"]

    @property
    def grad_norms(self) -> Tensor | None:
        """The norms `[B]` of the last step before clipping; None unless `max_grad_norm` or `on_nan` needs them."""
        under_way.finish(self)
        return self.param_groups[0].get("grad_norms")

    def __repr__(self) -> str:
        under_way.finish(self)
        lines = [f"{type(self).__name__} (B={self.B}"]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {text}" for name, value in sorted(group.items()) if (text := _text(name, value))]
        return "\n".join([*lines, ")"])

    def state_dict(self) -> Group:
        """Return the state as torch's optimizers do; hyper-parameters are float64 tensors `[B]`."""
        under_way.finish(self)
        found = super().state_dict()
        found["state"] = {key: dict(row) for key, row in found["state"].items()}
        found["param_groups"] = [
            {n: plain(v) if isinstance(v, Tensor) else v for n, v in group.items()} for group in found["param_groups"]
        ]
        return found

    def load_state_dict(self, state_dict: Group) -> None:
        """Load a state as torch's optimizers do; the state is copied."""
        _convert.check_loading(self, state_dict)
        under_way.finish(self)
        super().load_state_dict(copy.deepcopy(state_dict))
        _convert.after_loading(self, state_dict)

    def __getstate__(self) -> Group:
        under_way.finish(self)
        return {**super().__getstate__(), "B": self.B, "on_nan": self.on_nan}

    def __setstate__(self, state: Group) -> None:
        rest = {name: value for name, value in state.items() if name not in ("state", "param_groups")}
        super().__setstate__(rest)
        self.state, self.param_groups = state["state"], state["param_groups"]
        self.own_groups()
        self._plans = {}
        self._answers = KeptAnswers()


def _text(name: str, value: Any) -> str:
    """Text of an entry of a group; empty for parameters and for notes that say nothing yet."""
    if name == "params" or (name == "active" and value.all()) or (name == "skipped" and not value.any()):
        return ""
    return shown(value.tolist()) if isinstance(value, Tensor) and value.dim() == 1 else str(value)
