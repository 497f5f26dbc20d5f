# SPDX-License-Identifier: MIT
"""Random streams of an array: a (key, step) per model, so that a model's numbers do not depend on its neighbours.

A stream is an int64 tensor `[B, 2]`. A draw is a function of (key, step, element); `advance` returns the (key, step)
of one draw and moves the stream on. A tape repeats the draws of a forward that a checkpoint runs again.

On a GPU a copy of a stream and its advance are two kernels for each layer, which take as long as the dropout itself.
In a step that becomes a CUDA graph, the states of the next draws of all streams are made by one sum when the first is
asked for, each draw is a view of them, and the streams are moved on by one call at the end of the step. Nothing else
may look at a stream meanwhile: what does, as a model that runs alone on its part of one, calls `settle`.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils.checkpoint

from .. import _under_way as under_way
from .._torch import backward_pass, foreach_copy_
from ..errors import InvalidArgument
from .array_module import ArrayModule
from .model_tensor import state
from .sharing import FUNCTION_STREAM as FUNCTION_STREAM

_MASK64 = (1 << 64) - 1


class _Tapes(threading.local):
    """Draws that this thread records, or repeats."""

    def __init__(self) -> None:
        self.noting: list[list[torch.Tensor]] = []
        self.repeating: Iterator[torch.Tensor] | None = None
        self.together: Any = None  # draws for the streams of a step at once


_tapes = _Tapes()


@contextlib.contextmanager
def noted(tape: list[torch.Tensor]) -> Iterator[None]:
    """Append every draw of this thread to `tape`."""
    _tapes.noting.append(tape)
    try:
        yield
    finally:
        _tapes.noting = [other for other in _tapes.noting if other is not tape]


@contextlib.contextmanager
def repeated(tape: list[torch.Tensor]) -> Iterator[None]:
    """Make the draws of `tape` again instead of new ones, in their order."""
    before, _tapes.repeating = _tapes.repeating, iter(tape)
    try:
        yield
    finally:
        _tapes.repeating = before


@contextlib.contextmanager
def draw_by(together: Any) -> Iterator[None]:
    """Let `together`, a `DrawnTogether`, make the draws of this thread."""
    before, _tapes.together = _tapes.together, together
    try:
        yield
    finally:
        _tapes.together = before


def settle_draws() -> None:
    """Move the streams of a step of this thread on to where its draws have come, before something looks at them."""
    if _tapes.together is not None:
        _tapes.together.settle()


def new_stream(B: int, device: Any = None) -> torch.Tensor:
    """Make streams `[B, 2]` with keys from torch's generator, at step 0."""
    keys = torch.randint(-(1 << 62), 1 << 62, (B,), dtype=torch.int64)
    return torch.stack([keys, torch.zeros_like(keys)], dim=1).to(device)


def advance(rng: torch.Tensor) -> torch.Tensor:
    """Return (key, step) `[B, 2]` of one draw from the streams `rng` `[B, 2]`, and advance them in place.

    A forward that runs in a backward pass is a checkpoint's, and must draw what it drew the first time.

    Raises:
        InvalidArgument: in a backward pass, if `dnnsuite.nn.checkpoint` is not the checkpoint.
    """
    if _tapes.repeating is not None:
        now = next(_tapes.repeating, None)
        if now is None:
            raise InvalidArgument("a checkpointed function drew more random numbers the second time than the first")
    elif backward_pass() != -1:
        raise InvalidArgument(
            "random numbers are drawn in a backward pass, where a checkpoint runs a forward again and needs those of "
            "the first time: use dnnsuite.nn.checkpoint in place of torch.utils.checkpoint.checkpoint"
        )
    else:
        now = None if _tapes.together is None else _tapes.together.draw(rng)
        if now is None:
            now = rng.clone()
            rng[:, 1].add_(1)
    for tape in _tapes.noting:
        tape.append(now)
    return now


def pass_over(rng: torch.Tensor) -> None:
    """Advance the streams past a draw that is not needed, so that later draws do not depend on that."""
    if _tapes.repeating is not None or backward_pass() != -1:
        return
    if _tapes.together is None or not _tapes.together.pass_over(rng):
        rng[:, 1].add_(1)


def seeds_of(rng: torch.Tensor) -> list[int]:
    """Mix each (key, step) of `rng` `[B, 2]` into a seed for torch's generator."""
    mixed = (key * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 1 for key, step in rng.tolist())
    return [seed & ((1 << 63) - 1) for seed in mixed]


def generators_of(rng: torch.Tensor, device: torch.device) -> list[torch.Generator]:
    """Make a torch generator for each (key, step) of `rng` `[B, 2]`."""
    return [torch.Generator(device).manual_seed(seed) for seed in seeds_of(rng)]


def streams(array: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield (qualified name, layer) of every layer of `array` with a random stream, in a fixed order."""
    for name, module in array.named_modules():
        if isinstance(module, ArrayModule) and "rng" in module._buffers:
            yield name, module


def stream_key(seed: int, place: int) -> int:
    """Mix a model's `seed` and a stream's `place` into an int64 key: SplitMix64 (Steele et al., OOPSLA 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + (place + 1) * 0xD1B54A32D192ED03) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


@torch.no_grad()
def seed(array: torch.nn.Module, seeds: Sequence[int]) -> None:
    """Restart every random stream of `array`: model i gets the streams of `seeds[i]`.

    Two models with the same seed get the same dropout masks, in any array of the same architecture and in any slot.

    >>> import torch
    >>> from dnnsuite import nn
    >>> first, second = nn.Dropout(0.5, B=2), nn.Dropout(0.5, B=2)
    >>> nn.seed(first, [1, 2])
    >>> nn.seed(second, [2, 3])
    >>> x = torch.ones(2, 100)
    >>> torch.equal(first(x)[1], second(x)[0])
    True
    """
    under_way.finish(array)
    for rng in _all_streams(array).values():
        if len(seeds) != len(rng):
            raise InvalidArgument(f"{len(seeds)} seeds for an array of {len(rng)} models: give one per model")
    seed_slots(array, dict(enumerate(seeds)))


@torch.no_grad()
def seed_slots(array: torch.nn.Module, seeds: Mapping[int, int]) -> None:
    """Restart the random streams of some models of `array` as :func:`seed` does; `seeds` has one by slot."""
    under_way.finish(array)
    by_name = {f"{name}.rng".lstrip(".") for name, layer in streams(array) if layer.seeded_by_name}
    places = itertools.count()
    for name, rng in _all_streams(array).items():
        place = (1 << 32) + zlib.crc32(name.encode()) if name in by_name else next(places)
        for slot, value in seeds.items():
            rng[slot, 0] = stream_key(int(value), place)
            rng[slot, 1] = 0


def streams_of(array: torch.nn.Module) -> list[tuple[dict[str, Any], str]]:
    """List every random stream of `array`, int64 `[B, 2]`, as the buffers that hold it and its name in them: those of
    layers, then those of functions."""
    return list(_places(array).values())


def _places(array: torch.nn.Module) -> dict[str, tuple[dict[str, Any], str]]:
    found = {f"{name}.rng".lstrip("."): (stream._buffers, "rng") for name, stream in streams(array)}
    for name, module in array.named_modules():
        if module._buffers.get(FUNCTION_STREAM) is not None:
            found[f"{name}.{FUNCTION_STREAM}".lstrip(".")] = module._buffers, FUNCTION_STREAM
    return found


def _all_streams(array: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Collect every random stream of `array` by name."""
    settle_draws()
    return {name: buffers[key] for name, (buffers, key) in _places(array).items()}


def get_rng_state(array: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copy the random streams of `array`, `[B, 2]` each, by name.

    A `state_dict` has torch's keys only and does not contain them. Save them with it, and a later run draws the masks
    and numbers that this one would have drawn.
    """
    under_way.finish(array)
    return {name: rng.clone() for name, rng in _all_streams(array).items()}


@torch.no_grad()
def set_rng_state(array: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Restore the random streams of `array` from a result of `get_rng_state`.

    Raises:
        InvalidArgument: the state belongs to another kind of array, or to another number of models.
    """
    under_way.finish(array)
    held = _all_streams(array)
    if held.keys() != state.keys() or any(held[name].shape != rng.shape for name, rng in state.items()):
        raise InvalidArgument(
            f"the state has streams {sorted(state)}, the array {sorted(held)}: it must be of as many "
            "models of the same kind"
        )
    for name, rng in state.items():
        held[name].copy_(rng)


_AT_ONCE = 16  # draws of each stream


class DrawnTogether:
    """Streams of an array, for steps in which they are drawn from together.

    Args:
        array: the streams of its layers and functions, in the buffers that it has now.
        home: device of the draws; other streams are drawn from as ever.
    """

    def __init__(self, array: torch.nn.Module, home: torch.device) -> None:
        self._buffers, self._home = streams_of(array), home
        self._ramp = torch.tensor([[0, step] for step in range(_AT_ONCE + 1)], device=home).view(-1, 1, 1, 2)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Draw together in this block, on this thread."""
        here = [one for one in (buffers[name] for buffers, name in self._buffers) if one.device == self._home]
        self._streams = [one for one in here if one.shape == here[0].shape]
        self._places = {id(stream): place for place, stream in enumerate(self._streams)}
        self._drawn, self._states, self._settled = [0] * len(self._streams), list[torch.Tensor](), False
        with draw_by(self):
            try:
                yield
            except BaseException:
                with contextlib.suppress(RuntimeError):  # of a device that has refused before
                    self.settle()
                raise
            self.settle()

    def draw(self, stream: torch.Tensor) -> torch.Tensor | None:
        """Return (key, step) `[B, 2]` of the next draw; None if the stream itself has to be advanced."""
        return self._state(self._places[id(stream)], -1) if self.pass_over(stream) else None

    def pass_over(self, stream: torch.Tensor) -> bool:
        """Count a draw; False if the stream itself has to be advanced."""
        place = self._places.get(id(stream))
        if place is None:  # perhaps a part of a stream
            self.settle()
        elif not self._settled:
            self._drawn[place] += 1
        return not self._settled

    def settle(self) -> None:
        """Move the streams on to where the draws have come, for code that looks at them."""
        moved = [] if self._settled else [place for place, count in enumerate(self._drawn) if count]
        self._settled = True
        if moved:
            foreach_copy_([self._streams[place] for place in moved], [self._state(place) for place in moved])

    def _state(self, place: int, last: int = 0) -> torch.Tensor:
        """Return (key, step) `[B, 2]` of a stream's next draw, or of its last by -1."""
        draw = self._drawn[place] + last
        while len(self._states) * _AT_ONCE <= draw:
            begin = self._states[-1][_AT_ONCE] if self._states else torch.stack(self._streams)
            self._states.append(begin + self._ramp)
        return self._states[draw // _AT_ONCE][draw % _AT_ONCE][place]


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function(*args, **kwargs)` without storing its activations; the backward pass computes them again.

    It calls `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`, and makes sure that dropout and other draws
    from an array's random streams are the same the second time. As in torch, buffers are updated both times. Use it
    around an array or around layers of this package. In the `forward` of a fused model, torch's own checkpoint,
    reentrant or not, does the same.
    """
    tape: list[torch.Tensor] = []
    B, random = state.B, state.random

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        with state.having(B=B, random=random, may_stop=True), repeated(tape):
            yield

    return torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=False, context_fn=lambda: (noted(tape), again()), **kwargs
    )
