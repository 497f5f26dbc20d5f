# SPDX-License-Identifier: MIT
"""`torch.utils.checkpoint` in a model's forward: what the backward pass runs again finds the state of the first run.

torch runs such a part again outside of the forward, where B, the models' random streams and their draws are no longer
known; this module notes them in the first run. Both variants of torch's checkpoint are supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..._torch import Checkpoints
from ...errors import InvalidArgument
from ...nn.model_tensor import ModelTensor, NotFusable, RunsAnew, state, wrap
from ...nn.random_streams import noted, repeated
from ..rules.table import UNDERSTOOD_FUNCTIONS, settle, settle_since
from .draws import StreamDraws, making

_KEPT = ("B", "random", "report", "wary")


class _Part:
    """Checkpointed part of a forward: `first` is around its first run, `again` runs it once more."""

    def __init__(self, may_stop: bool) -> None:
        settle()  # what was begun before belongs to no checkpoint
        self._tape: list[Any] = []
        self._held = {name: getattr(state, name) for name in _KEPT} | {"may_stop": may_stop}
        self._making, self._mode = state.making, state.mode

    @contextmanager
    def first(self) -> Iterator[None]:
        mark = len(state.pending)
        state.checkpoints += 1
        try:
            with noted(self._tape):
                yield
                settle_since(mark)
        finally:
            state.checkpoints -= 1

    @contextmanager
    def again(self) -> Iterator[None]:
        mark = len(state.pending)
        try:
            with state.having(**self._held), torchs_checkpoints, repeated(self._tape), self._mode_again():
                yield
                settle_since(mark)
        except NotFusable as error:
            raise InvalidArgument(
                f"a checkpointed part cannot run for all models a second time ({error}): call array.per_model(name) "
                "with the name of the module that calls the checkpoint"
            ) from error
        finally:
            del state.pending[mark:]
            if isinstance(self._mode, StreamDraws):
                self._mode.taken()

    def _mode_again(self) -> AbstractContextManager[Any]:
        if isinstance(self._mode, StreamDraws):
            return self._mode.on()
        return making(self._making == 2) if self._making else nullcontext()


def _without_reentrant(torchs: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    state.checkpointed = True
    if state.random is None:  # not in a forward of an array on this thread
        return torchs(function, *args, **kwargs)
    return _noting(torchs, function, *args, **kwargs)


def _noting(torchs: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[None]:
    """Wrap torch's generator around the first run of `function`, and note the state for the second."""
    part = _Part(may_stop=True)

    def again(*inner: Any, **named: Any) -> Any:
        with part.again():
            return function(*inner, **named)

    theirs = torchs(again, *args, **kwargs)
    next(theirs)
    try:
        with part.first():
            yield
    except BaseException as error:
        theirs.throw(error)
        raise
    yield from theirs


def _reentrant(torchs: Callable[..., Any], function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    """Run torch's autograd.Function on the `[B, ...]` tensors, whose gradients it can track."""
    state.checkpointed = True
    if state.random is None:
        return torchs(function, preserve, *args)
    part = _Part(may_stop=False)
    own = [type(a) is ModelTensor for a in args]
    made: list[bool] = []

    def run(*inner: Any) -> Any:
        with part.again() if made else part.first():
            output = function(*(wrap(a) if mine else a for a, mine in zip(inner, own, strict=True)))
        outputs = output if isinstance(output, tuple) else (output,)
        made[:] = [type(o) is ModelTensor for o in outputs]
        values = tuple(o.value if mine else o for o, mine in zip(outputs, made, strict=True))
        return values if isinstance(output, tuple) else values[0]

    UNDERSTOOD_FUNCTIONS.add(run.__code__)
    output = torchs(run, preserve, *(a.value if mine else a for a, mine in zip(args, own, strict=True)))
    if not isinstance(output, tuple):
        return wrap(output) if made[0] else output
    return tuple(wrap(o) if mine else o for o, mine in zip(output, made, strict=True))


#: Context manager: checkpoints in a forward that runs inside are understood.
torchs_checkpoints = Checkpoints(_without_reentrant, _reentrant)


def start_anew(why: str) -> None:
    """Raise RunsAnew inside a checkpointed part: its notes belong to a run that is discarded."""
    if state.checkpoints:
        raise RunsAnew(why)
