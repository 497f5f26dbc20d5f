# SPDX-License-Identifier: MIT
"""Lets HFTA's own unit tests run against dnnsuite: stands for its package, in its layouts.

HFTA has the model in dimension 1 for images and in dimension 0 for the rest, weights of linear layers transposed, and
reads parameters through `snatch_parameters`. None of its code is here: `run` executes a test file of a checkout with
`hfta` replaced by what this module makes, collects the rows that it asks for, and makes every mismatch an error
(the originals print it).
"""

from __future__ import annotations

import contextlib
import functools
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils._pytree import tree_map

import dnnsuite

MODEL_SECOND = ("Conv", "MaxPool", "AvgPool", "AdaptiveAvgPool", "Dropout2d", "BatchNorm2d")
compare = np.testing.assert_allclose
# The tests compare by relative error alone, and with HFTA the kernels are torch's own, so rounding is too. 0 is that.
ROUNDING_ULPS = float(os.environ.get("DNNSUITE_HFTA_ULPS", "8"))


class Mismatch(Exception):
    """Two results differ. No AssertionError, because the tests catch those."""


class TransposedParameter:
    """A linear layer's parameter as HFTA stores it; reading and writing go through to ours."""

    def __init__(self, parameter: torch.nn.Parameter, turn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._parameter, self._turn = parameter, turn

    @property
    def data(self) -> torch.Tensor:
        return self._turn(self._parameter.data)

    @property
    def grad(self) -> torch.Tensor:
        return self._turn(self._parameter.grad)


class Layer(torch.nn.Module):
    """An array layer of dnnsuite behind HFTA's interface."""

    def __init__(self, torch_class: type, *args: Any, B: int, **kwargs: Any) -> None:
        super().__init__()
        kwargs = {name: value for name, value in kwargs.items() if name != "_weight" or value is not None}
        self.name = torch_class.__name__
        self.array = getattr(dnnsuite.nn, self.name)(*args, B=B, **kwargs)

    def snatch_parameters(self, module: torch.nn.Module, b: int) -> None:
        own = self.array.state_dict()
        for name, value in module.state_dict().items():
            own[name][b].copy_(value)

    def forward(self, x: torch.Tensor, **options: Any) -> Any:
        second = self.name.startswith(MODEL_SECOND) or (self.name == "BatchNorm1d" and x.dim() == 4)
        if self.name == "BatchNorm1d" and x.dim() == 3:  # the test puts the model first there
            second = False
        size = options.get("output_size")
        if size and len(size) > 2:  # ours is one model's
            options["output_size"] = size[:1] + size[2:]
        if not second:
            return self.array(x, **options)
        return tree_map(lambda y: y.transpose(0, 1), self.array(x.transpose(0, 1), **options))

    @property
    def weight(self) -> Any:
        weight = self.array.weight
        return TransposedParameter(weight, lambda w: w.transpose(1, 2)) if self.name == "Linear" else weight

    @property
    def bias(self) -> Any:
        bias = self.array.bias
        if bias is None or self.name != "Linear":
            return bias
        return TransposedParameter(bias, lambda b: b.unsqueeze(1))


class MultiheadAttention(torch.nn.Module):
    """Batch first, and models counted from 1, as its test does."""

    def __init__(self, *args: Any, B: int = 0, **kwargs: Any) -> None:
        super().__init__()
        self.B = B
        self.array = dnnsuite.nn.MultiheadAttention(*args, batch_first=True, B=B, **kwargs)

    def snatch_parameters(self, module: torch.nn.Module, b: int) -> None:
        for name, value in self.array.state_dict().items():
            (value if self.B == 0 else value[b - 1]).copy_(module.state_dict()[name])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.array(*args, **kwargs)


def index_array_or_return_scalar(value: Any, b: int) -> Any:
    """As HFTA's, but a plain number also of a tensor: torch's Adam refuses betas that are a tensor and a number."""
    if isinstance(value, (int, float)) or value is None:
        return value
    return value[b].item() if hasattr(value[b], "item") else value[b]


def _of_model(value: Any, b: int) -> Any:
    """Hyper-parameter of model b as torch wants it; `betas` are a pair of values per model."""
    if isinstance(value, tuple) and len(value) == 2:
        return tuple(_of_model(item, b) for item in value)
    return value if isinstance(value, (int, float, bool)) else float(value[b])


def optimizer_for(torch_class: type, B: int = 1, partially_fused: bool = False) -> Callable[..., Any]:
    fused_class = getattr(dnnsuite.optim, torch_class.__name__)
    if B == 0:
        return torch_class
    if not partially_fused:
        return fused_class

    def make(fused: Any, unfused: Any, B: int = B, **hyper: Any) -> Any:
        plain = [
            torch_class(params, **{name: _of_model(value, b) for name, value in hyper.items()})
            for b, params in enumerate(unfused)
        ]
        return dnnsuite.optim.PartiallyFused(fused_class(fused, **hyper), plain)

    return make


def schedule_for(torch_class: type, B: int = 1, partially_fused: bool = False) -> Callable[..., Any]:
    return getattr(dnnsuite.optim.lr_scheduler, torch_class.__name__) if B else torch_class


def layer_for(torch_class: type, B: int = 1) -> Callable[..., Any]:
    return functools.partial(Layer, torch_class, B=B) if B else torch_class


def _rounding(desired: np.ndarray) -> float:
    """What float32 arithmetic in another order may change of an element that cancels to nearly zero."""
    return ROUNDING_ULPS * 2.0**-23 * float(np.abs(desired[np.isfinite(desired)]).max(initial=0.0))


def assert_allclose(actual: Any, desired: Any, population_threshold: float = 0.0, **options: Any) -> None:
    """numpy's, with a share of the elements that may differ. Raises AssertionError, which a test may expect."""
    actual, desired = (np.asarray(x, dtype=np.float64) for x in (actual, desired))
    options["atol"] = max(options.get("atol", 0.0), _rounding(desired))
    wrong = ~np.isclose(actual, desired, rtol=options.get("rtol", 1e-7), atol=options["atol"], equal_nan=True)
    if wrong.any() and wrong.mean() >= population_threshold:
        compare(actual, desired, **options)


def _raise_mismatch(error: Exception) -> None:
    raise Mismatch(str(error)) from error


def _numpy_compare(actual: Any, desired: Any, **options: Any) -> None:
    try:
        assert_allclose(actual, desired, **options)
    except AssertionError as error:
        _raise_mismatch(error)


def _modules(rows: list[tuple[str, Callable[[], None]]]) -> dict[str, types.ModuleType]:
    def collect(testcase: Callable[..., None], configs: dict[str, Any]) -> None:
        for name, values in configs.items():
            for value in values:
                if isinstance(value, torch.device) and not torch.cuda.is_available():
                    value = torch.device("cpu")
                rows.append((f"{testcase.__name__}({name}={value})", functools.partial(testcase, **{name: value})))

    package, ops, optim, partial = (
        types.ModuleType(name) for name in ("hfta", "hfta.ops", "hfta.optim", "hfta.optim.partial")
    )
    vars(ops).update(
        get_hfta_op_for=layer_for,
        testcase_automator=collect,
        assert_allclose=assert_allclose,
        dump_error_msg=_raise_mismatch,
        MultiheadAttention=MultiheadAttention,
    )
    vars(optim).update(
        get_hfta_optim_for=optimizer_for,
        get_hfta_lr_scheduler_for=schedule_for,
        index_array_or_return_scalar=index_array_or_return_scalar,
    )
    vars(partial).update(PartiallyFusedOptimizer=getattr(dnnsuite.optim, "PartiallyFused", ()))
    vars(package).update(ops=ops, optim=optim)
    return {module.__name__: module for module in (package, ops, optim, partial)}


@contextlib.contextmanager
def _imported(modules: dict[str, types.ModuleType]) -> Iterator[None]:
    """Puts `modules` in the place of those of their names; what else is imported meanwhile stays imported."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def run(test_file: Path) -> Iterator[tuple[str, Exception | None]]:
    """Runs every row of a test file of HFTA; yields its name and what went wrong with it."""
    rows: list[tuple[str, Callable[[], None]]] = []
    with (
        _imported(_modules(rows)),
        mock.patch.object(sys, "path", [str(test_file.parent), *sys.path]),
        mock.patch.object(np.testing, "assert_allclose", _numpy_compare),
    ):
        sys.modules.pop("utils", None)
        runpy.run_path(str(test_file), run_name="__main__")
        for name, call in rows:
            try:
                call()
            except Exception as error:
                yield name, error
            else:
                yield name, None
        sys.modules.pop("utils", None)
