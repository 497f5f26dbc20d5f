# SPDX-License-Identifier: MIT
"""Random numbers and new tensors in a model's code, where each model must have its own.

`torch.zeros(n)` in a forward makes one tensor for all models, which is cheapest. Values written into it later, and
random numbers, are each model's own: in code that was seen to write or draw, factories make one tensor per model.

The code of a plain model draws what it draws in an array, from the model's streams. A layer that draws, or whose
forward is for `[B, ...]`, runs as the array's layer, of one model; a function that draws runs by its rule, on tensors
`[1, ...]`. What draws in another way (a scripted function, a recurrent function of torch's) has torch's generator,
seeded from the model's stream: but not for tensors of no model, for which code of all models draws from it, too.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..._torch import (
    TorchDispatchMode,
    innermost_function_mode,
    sample_dirichlet,
    standard_gamma,
    tree_leaves,
    tree_map,
)
from ...errors import InvalidArgument
from ...nn.forward_state import unwatched
from ...nn.model_tensor import ModelTensor, NotFusable, WritesShared, state
from ...nn.random_draws import draw
from ...nn.random_streams import FUNCTION_STREAM, generators_of, seeds_of
from ...ops.library import is_read_by_backward
from ..hooks import hooks_in
from ..rules.once import DROPPING, draws_numbers, pass_over_a_draw
from ..rules.random import next_stream
from ..rules.table import interpret, settle_since
from .kept_state import torch_generators
from .late_draws import analysed_once, names_other_generators, names_that_draw, reachable


def _functions(home: Any, names: str, end: str = "") -> frozenset[Any]:
    return frozenset(getattr(home, f"{name}{end}") for name in names.split())


_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_MEMORY = (
    _functions(torch, "empty zeros ones full empty_like zeros_like ones_like full_like arange eye linspace logspace")
    | _functions(torch.Tensor, "new_empty new_zeros new_ones new_full clone")
    | {torch.tensor, torch.clone}
)
_DRAWN = _functions(
    torch, "rand randn rand_like randn_like randint randperm normal bernoulli multinomial poisson binomial"
) | {torch.Tensor.bernoulli, torch.Tensor.multinomial, sample_dirichlet}
_DRAWN_INTO = _functions(torch.Tensor, "normal uniform exponential bernoulli random geometric log_normal cauchy", "_")
_DROPPING = _functions(
    torch.nn.functional, "dropout alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d rrelu"
) | {torch.nn.functional.gumbel_softmax, torch.dropout, standard_gamma, _ATTENTION}
_LIKE = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}


#: Functions that draw random numbers, for tensors of each model or of all.
RANDOM = _DRAWN | _DRAWN_INTO | _DROPPING
_SPECIAL = (frozenset[Any](), RANDOM, RANDOM | _MEMORY)  # by `state.making`
_OF_MODELS = (ModelTensor,)


class PerModelMode(TorchFunctionMode):
    """Function mode in which each model draws its own numbers and, if `state.making` is 2, gets its own of new
    tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._outermost = innermost_function_mode() is None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _SPECIAL[state.making] or not state.B:
            if types == _OF_MODELS and self._outermost:  # what the call would come to
                return interpret(func, args, kwargs or {})
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = dict(kwargs or {})
        own = any(type(leaf) is ModelTensor for leaf in tree_leaves((args, kwargs)))
        if func is _ATTENTION and (own or not draws_numbers(func.__name__, args, kwargs)):
            return func(*args, **kwargs)
        if func not in _MEMORY:
            state.drew = True
        if kwargs.get("generator", 0) is None:
            del kwargs["generator"]  # torch.nn.init says so
        if not own and not _given(func, kwargs):
            return _made(func, args, kwargs)
        if not own and func in _DRAWN and "generator" not in kwargs:
            kwargs["generator"] = generators_of(next_stream(1), kwargs["out"].device)[0]
        return func(*args, **kwargs)


def _given(func: Any, kwargs: dict[str, Any]) -> bool:
    """Return True if the call is given one model's memory to write into, or its generator to draw from.

    Raises:
        NotFusable: if they are all models'.
    """
    given = [name for name in ("out", "generator") if kwargs.get(name) is not None]
    if given and state.B > 1 and func not in _MEMORY:
        raise NotFusable(
            f"{func.__name__} draws random numbers with {given[0]}=, which has no meaning for several models"
        )
    return bool(given)


def _made(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func in _DRAWN_INTO:
        raise WritesShared(f"{func.__name__} draws for a tensor that all models share")
    if func in _MEMORY:
        one = func(*args, **kwargs)
        return ModelTensor(one.unsqueeze(0).repeat(state.B, *(1,) * one.dim()))
    if func in _DROPPING:
        first, *others = args or (kwargs.pop("input"),)
        return func(ModelTensor(first.unsqueeze(0).repeat(state.B, *(1,) * first.dim())), *others, **kwargs)
    if func in _LIKE:
        like = args[0]
        kwargs = {"dtype": like.dtype, "device": like.device, **kwargs}
        kwargs.pop("memory_format", None)
        func, args = _LIKE[func], (like.shape,)
    return ModelTensor(draw(func.__name__, args, kwargs, [], next_stream(state.B)))


def watched(owner: Any, call: Callable[[], Any], method: str = "") -> Any:
    """Call code of all models, that of `method` or of `forward`; each model draws numbers of its own if it draws any.

    `PerModelMode` costs time in every torch function, so it is on for the first call, and later only where numbers
    were drawn or a name in the code says that they may be. Other code that begins to draw is noticed by torch's
    generator.

    Raises:
        InvalidArgument: such code has drawn, and all models got the same numbers.
    """
    seen: dict[Any, bool] = owner.__dict__.setdefault("_fused_draws", {})
    if method in seen:
        return _watched(owner, call, method, seen)
    with analysed_once():
        seen[method] = _look_out(owner.__dict__.get("_root", owner), method)
        return _watched(owner, call, method, seen)


def _watched(owner: Any, call: Callable[[], Any], method: str, seen: dict[Any, bool]) -> Any:
    key = (method, owner.training, torch.is_grad_enabled())
    before = torch_generators()
    alone, state.drew_alone = state.drew_alone, False
    if seen.get(key, True):
        drew, state.drew = state.drew, False
        try:
            with making(memory=False):
                result = call()
            seen[key] = state.drew or seen.get(key, False) or seen[method]
        finally:
            state.drew = drew
    else:
        result = call()
    if not state.drew_alone and before != torch_generators():
        seen[key] = True
        _tell_of_shared_numbers(owner)
    state.drew_alone = alone or state.drew_alone
    return result


@contextmanager
def drawing_alone() -> Iterator[None]:
    """Context manager: models run one by one, so that numbers from torch's generator are each model's own."""
    before = torch_generators()
    yield
    state.drew_alone = state.drew_alone or before != torch_generators()


def _look_out(root: torch.nn.Module, method: str) -> bool:
    """Return True if the code may draw; its modules are then ready to begin anew in every call."""
    code = reachable(root, method)
    found = names_that_draw(code)
    elsewhere = bool(found) and names_other_generators(code)
    for module in root.modules() if found else ():
        if "_fused_known" in module.__dict__:
            module.__dict__["_fused_unsure"] = True
            module.__dict__["_fused_elsewhere"] = module.__dict__["_fused_elsewhere"] or elsewhere
    return bool(found)


def _tell_of_shared_numbers(owner: torch.nn.Module) -> None:
    text = (
        f"{type(owner.__dict__.get('_root', owner)).__name__} drew random numbers in a way that its code did not "
        "show, so in this call all models had the same numbers: call torch.rand, x.normal_() and the like by name, or "
        "array.per_model(name) for the module that draws"
    )
    on_arrays = any(getattr(module, "_fused_code", True) is False for module in owner.modules())
    if on_arrays or state.B == 1:
        return
    if threading.active_count() == 1:  # nobody else can have drawn
        raise InvalidArgument(text)
    warnings.warn(text, stacklevel=2)


@contextmanager
def making(memory: bool) -> Iterator[None]:
    """Context manager: `PerModelMode`, unless an outer one does as much."""
    outer = state.mode  # which does more from now on
    mode = PerModelMode() if outer is None else outer
    entered = mode if outer is None else nullcontext()
    with state.having(making=max(state.making, 2 if memory else 1), mode=mode), entered:
        yield


#: Why models run one by one whose code draws from torch's generator for a tensor of no model.
ONE_GENERATOR = "it draws random numbers by a function that knows one generator alone"


_STRIDED = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default)


class Draws(TorchDispatchMode):
    """Dispatch mode that notes whether an operator draws from torch's generator, not from one that it is given, and
    whose memory, by address, it counts from the start: a model's tensor in an array begins later."""

    drew = False

    def __init__(self) -> None:
        super().__init__()
        self.counted: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _STRIDED and (kwargs.get("storage_offset") is not None or type(args[-1]) is int):
            self.counted.add(args[0].untyped_storage().data_ptr())
        draws = torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None
        self.drew = self.drew or draws
        return func(*args, **kwargs)

    def counts_in(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return True if an operator has counted from the start of the memory of one of `tensors`."""
        strided = (tensor for tensor in tensors if tensor.layout == torch.strided)
        return bool(self.counted) and any(one.untyped_storage().data_ptr() in self.counted for one in strided)


class StreamDraws(TorchFunctionMode):
    """Function mode: functions draw from `stream` `[1, 2]`, that of the model whose code runs.

    Args:
        taken: called after a part of the forward that a checkpoint has run again.
    """

    def __init__(self, stream: torch.Tensor, taken: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._random = SimpleNamespace(_buffers={FUNCTION_STREAM: stream})
        self.taken = taken
        self.drew = False

    @contextmanager
    def on(self) -> Iterator[StreamDraws]:
        """Context manager: code of the model runs inside."""
        with state.having(mode=self, random=self._random, wary=False), self:
            yield self

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _DRAWING or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        if func.__name__ in DROPPING and not draws_numbers(func.__name__, args, kwargs):
            pass_over_a_draw()
            return func(*args, **kwargs)
        self.drew = True
        with suppress(NotFusable):  # it knows one generator alone
            return as_of_one(lambda *a, **k: _OF_ONE.__torch_function__(func, types, a, k), args, kwargs)
        return func(*args, **kwargs)


_OF_ONE = PerModelMode()
_DRAWING = RANDOM | {torch.randint_like}


def as_of_one(call: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call code for arrays with the tensors of one model, as those of an array of it alone."""
    given: list[tuple[torch.Tensor, ModelTensor, torch.Tensor]] = []

    def put_in(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        one = value.unsqueeze(0)
        given.append((value, ModelTensor(one), one))
        return given[-1][1]

    def take_out(value: Any) -> Any:
        if type(value) is not ModelTensor:
            return value
        written = [tensor for tensor, one, _ in given if one is value]
        result = value.value.squeeze(0)
        return written[0] if written else result.clone() if is_read_by_backward(value.value) else result

    out = {"out": kwargs["out"]} if kwargs.get("out") is not None else {}
    args, kwargs = tree_map(put_in, (args, {name: value for name, value in kwargs.items() if name not in out}))
    mark = len(state.pending)
    with state.having(B=1, making=1):
        result = call(*args, **kwargs, **out)
        settle_since(mark)
        for tensor, one, value in given:
            if one.value is not value:  # written, as another tensor
                tensor.copy_(one.value.squeeze(0))
        return tree_map(take_out, result)


class _OfOne:
    """Mix-in of a layer of one model that runs as the array's layer."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        layer, in_evaluation = self.__dict__["_fused_layer"]
        whole: Any = self
        if not in_evaluation and not (whole.training and _drops(layer)):
            with unwatched():  # what it calls is none of the functions of the models' code
                return super().forward(*args, **kwargs)  # type: ignore[misc]
        owners = dict(whole.named_modules())
        for path, part in layer.named_modules():
            own = owners.get(path)
            part.training = (whole if own is None else own).training
            for registry in ("_parameters", "_buffers") if own is not None else ():
                held, mine = getattr(part, registry), getattr(own, registry)
                names = held.keys() & mine.keys() - set(getattr(part, "shared_buffers", ()))
                held.update({name: mine[name].unsqueeze(0) for name in names if mine[name] is not None})
        return as_of_one(layer, args, kwargs)


def _drops(layer: Any) -> bool:
    """Return True for a layer that draws, or counts draws: one with weights does neither where its rates are zero."""
    return not layer._parameters or any(any(getattr(part, "rates", ())) for part in layer.modules())


@functools.cache
def _of_one(original: Any) -> Any:
    return type(original.__name__, (_OfOne, original), {"__module__": original.__module__})


def draw_as(owner: Any, layer: Any, in_evaluation: bool = False) -> None:
    """Let torch's layer `owner` run as `layer`, an array of one: in training, where it draws, or `in_evaluation`,
    too."""
    for hooks in hooks_in(layer):
        hooks.clear()  # the owner has them
    owner.__dict__["_fused_layer"] = layer, in_evaluation
    if not isinstance(owner, _OfOne):
        kind: Any = type(owner)
        owner.__class__ = _of_one(kind)


_lock = threading.RLock()


@contextmanager
def seeded_generator() -> Iterator[None]:
    """Context manager: torch's generator, seeded from the stream of the model; it is put back on exit."""
    with _lock:  # it belongs to all threads
        # The seed is that of every GPU.
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seeds_of(next_stream(1))[0])
            yield
