# SPDX-License-Identifier: MIT
"""A user's module in an array: its own code, run once for all models."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .._logical import ModelTensor, NotFusable, expanded, outside, state, wrap
from ..errors import InvalidArgument
from ._interpret import settle_since

Kept = list[tuple[torch.Tensor, torch.Tensor]]


class Report:
    """What `coverage` says of a module: functions without a rule, and why its models run one by one."""

    def __init__(self) -> None:
        self.reason = ""  # why the models run one by one; empty: they do not
        self.mapped: Counter[str] = Counter()
        self.seconds = 0.0  # spent in what was not fused
        self.calls = 0


class Shell:
    """Mixed into a copy of a user's module, before the user's class.

    Outside of a forward its parameters are `[B, ...]`; inside, its code sees those of one model.
    """

    B: int
    report: Report
    own_code: bool  # False: the class says `array_forward`, and its forward is for `[B, ...]`
    _original: type[torch.nn.Module]
    _parts: Any  # `Parts`, once the models run one by one

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inside = bool(state.B) or any(type(a) is ModelTensor for a in tree_leaves((args, kwargs)))
        if not self.own_code:
            return self._call_on_arrays(inside, args, kwargs)
        if not inside:
            return enter(self, self, self.B, args, kwargs)
        if self.report.reason:
            return self._one_by_one(args, kwargs)
        return self._all_at_once(args, kwargs)

    def _call_on_arrays(self, inside: bool, args: Any, kwargs: Any) -> Any:
        call = super().__call__  # type: ignore[misc]
        if not inside:
            return call(*args, **kwargs)
        args, kwargs = tree_map(lambda a: expanded(a, self.B), (args, kwargs))
        with outside():
            return tree_map(wrap, call(*args, **kwargs))

    def _all_at_once(self, args: Any, kwargs: Any) -> Any:
        before, report = state.B, state.report
        state.B, state.report = self.B, self.report
        mark = len(state.pending)
        kept = self._keep()
        wary, state.wary = state.wary, state.wary or (kept is not None and torch.is_grad_enabled())
        try:
            output = super().__call__(*args, **kwargs)  # type: ignore[misc]
            settle_since(mark)
        except NotFusable as error:
            state.pending = state.pending[:mark]
            self._turn_back(kept, str(error))
        except Exception as error:
            state.pending = state.pending[:mark]
            if kept is None or hasattr(error, "_of_a_model"):
                raise
            self._turn_back(
                kept, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
            return self._second_try(args, kwargs, error)
        else:
            self._known.add((self.training, torch.is_grad_enabled()))
            self.report.calls += bool(self.report.mapped)
            return output
        finally:
            state.B, state.report, state.wary = before, report, wary
        return self._one_by_one(args, kwargs)

    def _second_try(self, args: Any, kwargs: Any, error: Exception) -> Any:
        """Code that fails for all models at once may be right for one; if not, it is the user's error."""
        state.B, before = 0, state.B
        try:
            return self._one_by_one(args, kwargs)
        except InvalidArgument:
            raise error from None
        except Exception as own:
            self.report.reason, self._parts = "", None
            own.__dict__["_of_a_model"] = True
            raise own from None
        finally:
            state.B = before

    def _keep(self) -> Kept | None:
        """Copies of the buffers, before code that was not seen to run; None once it was."""
        if (self.training, torch.is_grad_enabled()) in self._known:
            return None
        return [(b, b.clone()) for b in self.buffers()]

    def _turn_back(self, kept: Kept | None, reason: str) -> None:
        if kept is None:
            if self.training and next(self.buffers(), None) is not None:
                raise InvalidArgument(
                    f"{self._original.__name__} went another way than before ({reason}), with buffers already "
                    "changed; call array.per_model() with its name before training"
                )
            kept = []
        with torch.no_grad():
            for buffer, value in kept:
                if not torch.equal(
                    buffer, value
                ):  # one that autograd may have kept is not touched for nothing
                    buffer.copy_(value)
        self.report.reason = reason

    def _one_by_one(self, args: Any, kwargs: Any) -> Any:
        from ._parts import Parts

        if self._parts is None:
            self._parts = Parts(self)
        begin = time.perf_counter()
        output = self._parts(args, kwargs)
        self.report.seconds += time.perf_counter() - begin
        self.report.calls += 1
        return output

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)  # type: ignore[misc]
        if state.B and isinstance(value, torch.Tensor) and type(value) is not ModelTensor:
            return ModelTensor(value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is ModelTensor and name in self.__dict__.get("_buffers", ()):
            held = self._buffers[name]
            if held is not None and held.shape == value.value.shape and held.dtype == value.dtype:
                with torch.no_grad():  # in place: the buffer may be a part of an array's
                    held.copy_(value.value.detach())
            else:
                self._buffers[name] = value.value.detach()
            return
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _bare, (self._original,), self.__dict__


def _bare(original: type[torch.nn.Module]) -> torch.nn.Module:
    kind = shell_class(original)
    return kind.__new__(kind)


_classes: dict[Any, Any] = {}


def shell_class(original: Any) -> Any:
    """The class of an array's copies of `original` modules."""
    if original not in _classes:
        body = {"_original": original, "__module__": original.__module__, "__doc__": original.__doc__}
        _classes[original] = type(original)(original.__name__, (Shell, original), body)
    return _classes[original]


def make_shell(module: torch.nn.Module, B: int) -> None:
    """Turns a copy of a user's module, whose state is stacked already, into a shell."""
    original = type(module)
    module.__class__ = shell_class(original)
    module.__dict__.update(
        B=B,
        report=Report(),
        own_code=not getattr(original, "array_forward", False),
        _parts=None,
        _known=set(),
    )


def bare_class(module: torch.nn.Module) -> type[torch.nn.Module]:
    """The user's class of a module of an array."""
    return getattr(type(module), "_original", type(module))


def enter(owner: Any, call: Callable[..., Any], B: int, args: Any, kwargs: Any) -> Any:
    """Calls code of one model with `[B, ...]` tensors; its results are `[B, ...]` again.

    torch.compile leaves it as it is, with a graph break: it cannot look through tensors that say they are others.
    """
    global _uncompiled
    if "torch._dynamo" not in sys.modules:
        return _enter(owner, call, B, args, kwargs)
    if _uncompiled is None:
        _uncompiled = torch._dynamo.disable(_enter)
    return _uncompiled(owner, call, B, args, kwargs)


enter._torchdynamo_disable = True  # type: ignore[attr-defined]
_uncompiled: Callable[..., Any] | None = None


def _enter(owner: Any, call: Callable[..., Any], B: int, args: Any, kwargs: Any) -> Any:

    def put_in(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        if value.size(0) != B:
            raise InvalidArgument(
                f"the array holds B={B} models and takes [B, ...] with the model in dimension 0; got "
                f"{list(value.shape)}. A batch that all models share is dnnsuite.stack(x, B={B}), which copies nothing"
            )
        return ModelTensor(value)

    args, kwargs = tree_map(put_in, (args, kwargs))
    before, random = state.B, state.random
    state.B, state.random = B, owner
    mark = len(state.pending)
    try:
        output = call(*args, **kwargs)
        settle_since(mark)
    except NotFusable as error:
        raise InvalidArgument(f"{type(owner).__name__}: {error}") from error
    finally:
        del state.pending[mark:]
        state.B, state.random = before, random
    return taken_out(output, B)


def taken_out(output: Any, B: int) -> Any:
    """Results with every ModelTensor as `[B, ...]`, every tensor that all models share expanded to it."""

    def take(value: Any) -> Any:
        if type(value) is ModelTensor:
            return value.value
        if isinstance(value, torch.Tensor):
            return value.unsqueeze(0).expand(B, *value.shape)
        if hasattr(value, "__dataclass_fields__"):
            for name in value.__dataclass_fields__:
                object.__setattr__(value, name, tree_map(take, getattr(value, name)))
        return value

    return tree_map(take, output)


__all__ = ["Report", "Shell", "bare_class", "enter", "make_shell", "shell_class"]
