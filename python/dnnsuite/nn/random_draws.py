# SPDX-License-Identifier: MIT
"""Random numbers of torch's functions, one stream per model, as one operator.

It takes the streams as a tensor, so a recorded step replays it like any other, and every model gets the same numbers
as in the step as written. Uniform, normal, Bernoulli and exponential numbers are drawn by `ops.random_numbers`; all
others by `torch.ops.dnnsuite.draw`, which calls torch's function once for each model.
"""

from __future__ import annotations

import functools
import json
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import ops
from .._torch import standard_gamma_grad
from .model_tensor import NotFusable
from .random_streams import seeds_of

#: By method: its distribution, and names and usual values of its parameters.
_FILLS: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "uniform_": ("uniform", (("from", 0.0), ("to", 1.0))),
    "normal_": ("normal", (("mean", 0.0), ("std", 1.0))),
    "bernoulli_": ("bernoulli", (("p", 0.5),)),
    "exponential_": ("exponential", (("lambd", 1.0),)),
}
_MADE = {"rand": "uniform", "randn": "normal"}
_MOST = 2**40  # of which 2^53 equally likely numbers make no two differ in frequency by more than 1 in 8000


def filled_by_ours(method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, float, float] | None:
    """Return (distribution, first, second) of `Tensor.method(*args, **kwargs)`; None if torch's own has to do it, or to
    refuse it."""
    if method not in _FILLS:
        return None
    distribution, parameters = _FILLS[method]
    names = [name for name, _ in parameters]
    given = {**dict(parameters), **dict(zip(names, args, strict=False)), **kwargs}
    values = [given[name] for name in names]
    if len(args) > len(names) or len(given) > len(names) or not all(type(v) in (int, float) for v in values):
        return None
    first, second = float(values[0]), float(values[1]) if len(values) > 1 else 0.0
    return (distribution, first, second) if _is_valid(distribution, first, second) else None


def _is_valid(distribution: str, first: float, second: float) -> bool:
    """Return True for finite parameters that torch would take."""
    infinite = float("inf")
    if distribution == "uniform":
        return -infinite < first <= second < infinite and second - first < torch.finfo(torch.float32).max
    if distribution == "normal":
        return -infinite < first < infinite and 0.0 <= second < infinite
    return 0.0 <= first <= 1.0 if distribution == "bernoulli" else 0.0 < first < infinite


def made_by_ours(
    name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[int], torch.dtype, str] | None:
    """Return (shape, dtype, distribution) of `torch.name(*args, **kwargs)` for one model, as of `filled_by_ours`."""
    if name not in _MADE or not kwargs.keys() <= {"size", "dtype", "device"} or bool(args) == ("size" in kwargs):
        return None
    sizes = args or (kwargs["size"],)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    if not _are_sizes(sizes):
        return None
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return (sizes, dtype, _MADE[name]) if isinstance(dtype, torch.dtype) else None


def integers_by_ours(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[int], int, int] | None:
    """Return (shape, low, high) of `torch.randint(*args, **kwargs)` for one model; None for other integers than int64,
    more than a float64 tells apart, and what torch refuses."""
    if not kwargs.keys() <= {"low", "high", "size", "dtype", "device"}:
        return None
    named = [kwargs[name] for name in ("low", "high", "size") if name in kwargs]
    *bounds, sizes = (*args, *named) if "size" in kwargs or not named else (*args[:-1], *named, *args[-1:])
    low, high = (0, *bounds)[-2:] if 1 <= len(bounds) <= 2 else (0, 0)
    fits = type(low) is type(high) is int and -_MOST <= low < high <= _MOST
    whole = kwargs.get("dtype") in (None, torch.int64)
    return (sizes, low, high) if fits and whole and isinstance(sizes, (tuple, list)) and _are_sizes(sizes) else None


def _are_sizes(sizes: Sequence[Any]) -> bool:
    return all(type(size) is int and size >= 0 for size in sizes)


class _OwnGenerators(threading.local):
    """One torch generator per device and thread, seeded anew for each draw."""

    def __init__(self) -> None:
        self.by_device: dict[torch.device, torch.Generator] = {}

    def seeded(self, device: torch.device, seed: int) -> torch.Generator:
        generator = self.by_device.get(device)
        if generator is None:
            generator = self.by_device[device] = torch.Generator(device)
        return generator.manual_seed(seed)


_generators = _OwnGenerators()


def fill(
    method: str,
    like: Tensor,
    stream: Tensor,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    own: Sequence[Tensor] = (),
) -> Tensor:
    """Make a contiguous tensor like `like` `[B, ...]`; fill each model's part by `Tensor.method`, such as `normal_`.

    Args:
        stream: (key, step) of each model, int64 `[B, 2]`.
        own: the tensors among the arguments that are `[B, ...]`; others are shared by all models.
    """
    numbers = filled_by_ours(method, args, kwargs or {})
    if numbers is not None and ops.draws_numbers(like, stream):
        return ops.random_numbers(like, stream, *numbers)
    made = {"shape": list(like.shape[1:]), "dtype": str(like.dtype), "device": str(like.device)}
    call = _Call(method, args, kwargs or {}, own, made)
    return _operator(call.text, call.own, call.shared, stream)


def draw(name: str, args: Sequence[Any], kwargs: dict[str, Any], own: Sequence[Tensor], stream: Tensor) -> Tensor:
    """Call `torch.name` once for each model and stack the results, `[B, ...]`; arguments as those of `fill`."""
    wanted = {key: value for key, value in kwargs.items() if key != "requires_grad"}
    made = _drawn_by_ours(name, args, wanted, stream) if _is_here(wanted.get("device"), stream) else None
    if made is not None:
        return made.requires_grad_() if kwargs.get("requires_grad") else made
    call = _Call(name, args, wanted, own, None)
    result = _operator(call.text, call.own, call.shared, stream)
    if kwargs.get("requires_grad"):
        return result.requires_grad_()
    roots = [t for t in call.roots if t.requires_grad]
    if roots and torch.is_grad_enabled() and result.is_floating_point():
        return _ZeroGradient.apply(result, *roots)
    return result


def _drawn_by_ours(name: str, args: Sequence[Any], kwargs: dict[str, Any], stream: Tensor) -> Tensor | None:
    """Draw `torch.name(*args, **kwargs)` of each model by `ops.random_numbers`; None where that cannot."""
    whole = integers_by_ours(args, kwargs) if name == "randint" else None
    if whole is not None:  # rounded down
        shape, low, high = whole
        real = _real_by_ours(shape, torch.float64, "uniform", float(low), float(high), stream)
        return None if real is None else real.floor_().long()
    ours = made_by_ours(name, args, kwargs)
    return None if ours is None else _real_by_ours(*ours, 0.0, 1.0, stream)


def _real_by_ours(
    shape: Sequence[int], dtype: torch.dtype, distribution: str, first: float, second: float, stream: Tensor
) -> Tensor | None:
    like = stream.new_empty((len(stream), *shape), dtype=dtype)
    if not ops.draws_numbers(like, stream):
        return None
    return ops.random_numbers(like, stream, distribution, first, second)


def _is_here(device: Any, stream: Tensor) -> bool:
    """Return True if `device`, or torch's default without one, is that of the stream."""
    wanted = torch.get_default_device() if device is None else torch.device(device)
    return wanted.type == stream.device.type


def draw_gamma(name: str, concentration: Tensor, stream: Tensor) -> Tensor:
    """Draw from gamma distributions of the models' `concentration` `[B, ...]` by `torch.name`, with its gradient."""
    with torch.no_grad():
        call = _Call(name, (concentration,), {}, [concentration], None)
    return _Gamma.apply(concentration, call, stream)


class _Gamma(torch.autograd.Function):
    """Draws whose derivative is that of torch's own: by the distribution function, where the draw lies."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, call: _Call, stream: Tensor) -> Tensor:
        drawn = _operator(call.text, call.own, call.shared, stream)
        ctx.save_for_backward(concentration, drawn)
        return drawn

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * standard_gamma_grad(*ctx.saved_tensors), None, None


class _ZeroGradient(torch.autograd.Function):
    """Return the first argument. The others get a gradient of zeros, as from torch's draws."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, *roots: Tensor) -> Tensor:
        ctx.save_for_backward(*roots)
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, *(torch.zeros_like(root) for root in ctx.saved_tensors)


class _Call:
    """Call of a function as text, which the recorder compares and the interpreter takes; tensors go into lists."""

    def __init__(
        self, name: str, args: Sequence[Any], kwargs: dict[str, Any], own: Sequence[Tensor], made: dict[str, Any] | None
    ) -> None:
        self.own: list[Tensor] = []
        self.shared: list[Tensor] = []
        self.roots: list[Tensor] = []
        self._name, self._ids = name, {id(t) for t in own}
        named = {key: self._plain(value) for key, value in kwargs.items()}
        self.text = json.dumps([name, self._plain(args), named, made])

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            kind, held = ("own", self.own) if id(value) in self._ids else ("shared", self.shared)
            held.append(value.detach())
            self.roots.append(value)
            return {kind: len(held) - 1}
        if isinstance(value, (tuple, list)):
            return [self._plain(part) for part in value]
        if isinstance(value, (torch.dtype, torch.device)):
            return {type(value).__name__: str(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if hasattr(value, "__index__"):
            return operator.index(value)
        raise NotFusable(f"{self._name} takes a {type(value).__name__}")


@functools.lru_cache(maxsize=256)
def _read(call: str) -> tuple[Any, Any, Any, Any]:
    name, args, kwargs, made = json.loads(call)
    if made is not None:
        dtype = getattr(torch, made["dtype"].removeprefix("torch."))
        device = None if made["device"] == "None" else torch.device(made["device"])
        made = (made["shape"], dtype, device)
    return name, args, kwargs, made


def _filled_in(value: Any, own: Sequence[Any], shared: Sequence[Tensor]) -> Any:
    if isinstance(value, list):
        return [_filled_in(part, own, shared) for part in value]
    if isinstance(value, dict):
        ((kind, what),) = value.items()
        if kind == "dtype":
            return getattr(torch, what.removeprefix("torch."))
        return torch.device(what) if kind == "device" else {"own": own, "shared": shared}[kind][what]
    return value


@torch.no_grad()
def _drawn(call: str, own: Sequence[Tensor], shared: Sequence[Tensor], stream: Tensor) -> Tensor:
    name, args, kwargs, made = _read(call)
    device = _device(kwargs, made, [*own, *shared])
    target = None
    if made is not None:
        target = torch.empty((stream.size(0), *made[0]), dtype=made[1], device=device)
    results = []
    for index, seed in enumerate(seeds_of(stream)):
        parts = [t[index] for t in own]
        given = [_filled_in(value, parts, shared) for value in args]
        named = {key: _filled_in(value, parts, shared) for key, value in kwargs.items()}
        generator = _generators.seeded(device, seed)
        if target is not None:
            getattr(target[index], name)(*given, **named, generator=generator)
        else:
            results.append(getattr(torch, name)(*given, **named, generator=generator))
    return torch.stack(results) if target is None else target


def _device(kwargs: dict[str, Any], made: Any, tensors: Sequence[Tensor]) -> torch.device:
    where = kwargs.get("device") if made is None else made[2]
    if isinstance(where, dict):
        where = where["device"]
    if where is not None:
        return torch.device(where)
    return tensors[0].device if tensors else torch.get_default_device()


_library = torch.library.Library("dnnsuite", "FRAGMENT")
_library.define("draw(str call, Tensor[] own, Tensor[] shared, Tensor stream) -> Tensor")
_library.impl("draw", _drawn, "CompositeExplicitAutograd")
_operator: Callable[..., Tensor] = torch.ops.dnnsuite.draw
