# SPDX-License-Identifier: MIT
"""Random numbers of plain models: each model's code draws those that it draws in an array, from its own streams.

A layer that draws, or whose forward is for `[B, ...]`, runs as the array's layer, of one model; a function that draws
runs by its rule, on tensors `[1, ...]`. What draws in another way (a scripted function, a recurrent function of
torch's) has torch's generator, seeded from the model's stream: but not for tensors of no model, for which code of all
models draws from it, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..._torch import TorchDispatchMode, tree_map
from ...nn.forward_state import unwatched
from ...nn.model_tensor import ModelTensor, NotFusable, state
from ...nn.random_streams import FUNCTION_STREAM, seeds_of
from ...ops.library import is_read_by_backward
from ..hooks import hooks_in
from ..rules.once import DROPPING, draws_numbers, pass_over_a_draw
from ..rules.random import next_stream
from ..rules.table import settle_since
from .per_model_factories import RANDOM, PerModelMode

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
        before = state.mode, state.random, state.wary
        state.mode, state.random, state.wary = self, self._random, False
        try:
            with self:
                yield self
        finally:
            state.mode, state.random, state.wary = before

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
    before, mark = (state.B, state.making), len(state.pending)
    state.B, state.making = 1, 1
    try:
        result = call(*args, **kwargs, **out)
        settle_since(mark)
        for tensor, one, value in given:
            if one.value is not value:  # written, as another tensor
                tensor.copy_(one.value.squeeze(0))
        return tree_map(take_out, result)
    finally:
        state.B, state.making = before


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


_classes: dict[Any, Any] = {}


def draw_as(owner: Any, layer: Any, in_evaluation: bool = False) -> None:
    """Let torch's layer `owner` run as `layer`, an array of one: in training, where it draws, or `in_evaluation`,
    too."""
    for hooks in hooks_in(layer):
        hooks.clear()  # the owner has them
    original = type(owner)
    owner.__dict__["_fused_layer"] = layer, in_evaluation
    if issubclass(original, _OfOne):
        return
    if original not in _classes:
        _classes[original] = type(original.__name__, (_OfOne, original), {"__module__": original.__module__})
    owner.__class__ = _classes[original]


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
