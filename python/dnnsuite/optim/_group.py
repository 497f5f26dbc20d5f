# SPDX-License-Identifier: MIT
"""Groups of an array's optimizer: `group[name] = value` takes what torch's groups take, and one value per model."""

from __future__ import annotations

import reprlib
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from .. import _under_way as under_way
from .._C import Guards
from ..errors import InvalidArgument
from ._values import as_vector, check_range

Group = dict[str, Any]

_GET = dict.get  # a value that a group holds, and no pair
FLAGS = ("maximize", "decoupled_weight_decay", "nesterov")
_STEPPED = frozenset(("params", "active", "skipped", "grad_norms"))
SWITCHES = frozenset((*FLAGS, "amsgrad", "centered"))


class HyperParameter(torch.Tensor):
    """Values of a hyper-parameter, a float64 tensor `[B]`; results of operators on it are plain tensors.

    torch's schedulers write `group["lr"].fill_(new)` and read `float(group["lr"])`: `fill_` takes one value per model
    here, and `float` gives the value that all models share.
    """

    # As torch.nn.Parameter's: operators do not look for an override.
    __torch_function__ = torch.nn.Parameter.__torch_function__

    @staticmethod
    def of(name: str, value: Any, B: int, device: torch.device | None = None) -> HyperParameter:
        """Make values of `name` out of one number or B of them; refuse what is out of its range."""
        vector = as_vector(value, B, name, device)
        check_range(name, vector)
        return HyperParameter.holding(name, vector)

    @staticmethod
    def holding(name: str, vector: torch.Tensor) -> HyperParameter:
        """Mark `vector` as the values of `name`; the memory is the same."""
        own = vector.as_subclass(HyperParameter)
        vars(own)["hyper_name"] = name
        return own

    def fill_(self, value: Any) -> HyperParameter:
        """Write one value for all models, or one per model."""
        self.copy_(HyperParameter.of(vars(self)["hyper_name"], value, len(self), self.device))
        return self

    def __float__(self) -> float:
        values = set(self.tolist())
        if len(values) != 1:
            name = vars(self)["hyper_name"]
            raise InvalidArgument(
                f"{name} differs from model to model, {self.tolist()}, and code needs one number: use the schedule "
                f"from dnnsuite.optim.lr_scheduler, or read {name}[i] for model i"
            )
        return float(values.pop())

    def __format__(self, spec: str) -> str:
        if not spec:
            return super().__format__(spec)
        texts = [format(value, spec) for value in self.tolist()]
        return texts[0] if len(set(self.tolist())) == 1 else f"[{', '.join(texts)}]"

    def __deepcopy__(self, memo: dict[int, Any]) -> HyperParameter:
        return HyperParameter.holding(vars(self)["hyper_name"], self.clone())

    def __reduce_ex__(self, protocol: Any) -> Any:  # files hold plain tensors
        return plain(self).__reduce_ex__(protocol)


def plain(vector: torch.Tensor) -> torch.Tensor:
    """View a hyper-parameter as a plain tensor."""
    return vector.as_subclass(torch.Tensor) if type(vector) is HyperParameter else vector


class ParameterGroup(dict[str, Any]):
    """Group of parameters with their hyper-parameters, as torch's dict is.

    A hyper-parameter takes a number, B of them, or a real tensor `[]` or `[B]`, and is a float64 tensor `[B]`; a pair
    such as `betas` takes two of these; a flag takes True or False. A value that is refused changes nothing.

    Raises:
        InvalidArgument: naming the group, the hyper-parameter and the value.
    """

    def __init__(self, values: Mapping[str, Any], owner: Any) -> None:
        super().__init__(values)
        self._owner = weakref.ref(owner)
        self._vectors = frozenset((*owner.per_model, "initial_lr", "max_grad_norm"))
        self._told = SWITCHES | frozenset(getattr(owner, "flags", ()))
        self._stepped = _STEPPED | frozenset(getattr(owner, "counters", ()))
        for name, value in values.items():
            self.put(name, value)

    def __getitem__(self, name: str) -> Any:
        if name in self._stepped:  # steps under way may change what it holds
            under_way.finish(self._owner())
        return super().__getitem__(name)

    def put(self, name: str, value: Any) -> None:
        """Set `name` to a value that is known to fit, without check or copy."""
        vector = isinstance(value, torch.Tensor) and name in self._vectors
        super().__setitem__(name, HyperParameter.holding(name, value) if vector else value)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, *given: Any, **named: Any) -> None:
        """Set several values at once, all of them or none."""
        owner = self._owner()
        values = dict(*given, **named)
        if owner is None:
            super().update(values)
            return
        made: dict[str, Any] = {}
        for name, value in values.items():
            try:
                made.update(self._made(owner, name, value))
            except InvalidArgument as error:
                place = owner.place_of(self)
                raise InvalidArgument(f"param_groups[{place}][{name!r}] = {reprlib.repr(value)}: {error}") from None
        if "max_grad_norm" in made:
            owner.limit(made.pop("max_grad_norm"))
        told = any(made[name] != self.get(name) for name in self._told & made.keys()) or "params" in made
        super().update(made)
        if told:
            owner.note_change()

    def _made(self, owner: Any, name: str, value: Any) -> Iterable[tuple[str, Any]]:
        """Pair each name to set with its value."""
        if name in owner.pairs and name not in self.keys():
            try:
                first, second = value
            except (TypeError, ValueError):
                raise InvalidArgument(f"{name} must be two values, each a number or one per model") from None
            names = owner.pairs[name]
            return [pair for n, v in zip(names, (first, second), strict=True) for pair in self._made(owner, n, v)]
        if name in self._vectors and not (name == "max_grad_norm" and value is None):
            return [(name, HyperParameter.of(name, value, owner.B, self._device()))]
        return [(name, _switch(name, value) if name in SWITCHES else value)]

    def _device(self) -> torch.device | None:
        params = self.get("params")
        return params[0].device if params else None

    def __missing__(self, name: str) -> Any:
        pair = self._pair(name)
        if pair is None:
            raise KeyError(name)
        return tuple(self[one] for one in pair)

    def _pair(self, name: Any) -> tuple[str, str] | None:
        owner = self._owner()
        names = None if owner is None else owner.pairs.get(name)
        return names if names and all(one in self.keys() for one in names) else None

    def __contains__(self, name: Any) -> bool:
        return super().__contains__(name) or self._pair(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, default) if self._pair(name) is None else self[name]

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, values: Any) -> ParameterGroup:  # type: ignore[override,misc]
        self.update(values)
        return self

    def __delitem__(self, name: str) -> None:
        self._refuse_to_lose(name)
        super().__delitem__(name)
        self._gone(name)

    def pop(self, name: str, *default: Any) -> Any:
        self._refuse_to_lose(name)
        value = super().pop(name, *default)
        self._gone(name)
        return value

    def _refuse_to_lose(self, name: str) -> None:
        owner = self._owner()
        if owner is not None and name in (*owner.per_model, "params"):
            raise InvalidArgument(
                f"{name} cannot be taken out of param_groups[{owner.place_of(self)}], for a step needs it: assign "
                "another value"
            )

    def _gone(self, name: str) -> None:
        owner = self._owner()
        if owner is not None and name in SWITCHES:
            owner.note_change()
        elif owner is not None and name == "max_grad_norm":
            owner.limit(None)

    def __reduce_ex__(self, protocol: Any) -> Any:  # of copies and files: the optimizer makes it a group again
        return dict, (dict(self),)


def _switch(name: str, value: Any) -> bool:
    if hasattr(value, "tolist"):  # of torch and numpy
        value = value.tolist()
    if type(value) not in (bool, int) or value not in (0, 1):
        raise InvalidArgument(f"{name} is True or False, for all models")
    return bool(value)


class HyperParameters:
    """Copies of an optimizer's hyper-parameters, as they were at the last call of `read`.

    A step that is still running keeps the values it started with. On a GPU, where a stream keeps the order, they are
    the tensors themselves.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[torch.Tensor, int, Any, bytes]] = []  # each tensor, its memory and what was in it
        self.copies: list[dict[str, torch.Tensor]] = []

    def read(self, groups: Sequence[ParameterGroup], names: Sequence[str]) -> bool:
        """Look at `names` in all groups; return True if `copies` is a new list, with another value."""
        now = [v for group in groups for name in names if (v := _GET(group, name)) is not None]
        if len(now) == len(self._seen) and all(
            vector is seen and (memory is None or (vector.data_ptr() == place and memory.tobytes() == held))
            for vector, (seen, place, memory, held) in zip(now, self._seen, strict=True)
        ):
            return False
        self._seen = list(map(_remembered, now))
        self.copies = [{name: _kept(v) for name in names if (v := _GET(group, name)) is not None} for group in groups]
        return True


def guard_values(guards: Guards, group: ParameterGroup, names: Sequence[str]) -> None:
    """Guard the values of `names` in a group; on a GPU nobody waits to look at them."""
    for vector in [v for name in names if (v := _GET(group, name)) is not None]:
        if vector.device.type == "cpu":
            guards.result(vector.data_ptr)  # `vector.data = ...` gives it another memory
            memory = vector.numpy()
            if memory.flags.c_contiguous:
                guards.memory(memory)
            else:
                guards.result(memory.tobytes)


def _remembered(vector: torch.Tensor) -> tuple[torch.Tensor, int, Any, bytes]:
    if vector.device.type != "cpu":
        return vector, 0, None, b""
    memory = vector.numpy()
    return vector, vector.data_ptr(), memory, memory.tobytes()


def _kept(vector: torch.Tensor) -> torch.Tensor:
    return plain(vector).clone() if vector.device.type == "cpu" else plain(vector)
