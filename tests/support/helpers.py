# SPDX-License-Identifier: MIT
"""The contract of an array, written once: B models in one must compute what B separate torch modules do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dnnsuite import fuse, unfuse

TOLERANCE = {torch.float32: {"rtol": 2e-4, "atol": 2e-5}, torch.float64: {"rtol": 1e-9, "atol": 1e-10}}


def assert_near(actual: torch.Tensor, expected: torch.Tensor, what: str = "") -> None:
    """Equal within the stated tolerance of the dtype."""
    torch.testing.assert_close(actual, expected, **TOLERANCE[expected.dtype], msg=lambda text: f"{what}: {text}")


def make_models(
    make: Callable[[], torch.nn.Module], B: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> list[torch.nn.Module]:
    """B models with different parameters, those that torch starts at one or zero included."""
    built = []
    for index in range(B):
        torch.manual_seed(100 + index)
        model = make().to(device, dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        built.append(model)
    return built


def first_tensor(output: Any) -> torch.Tensor:
    """What a module computes, without the attention weights and the like beside it."""
    return output[0] if isinstance(output, tuple) else output


def check_matches_models(models: Sequence[torch.nn.Module], *inputs: torch.Tensor, **kwargs: Any) -> torch.nn.Module:
    """Fuses `models` and checks output, gradients, state and way back against the models; `inputs` are `[B, ...]`.

    The models must not draw random numbers: give them no dropout, or put them in eval mode.
    """
    array = fuse(models)
    mine = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    output = first_tensor(array(*mine, **kwargs))
    weights = torch.randn_like(output)
    (output * weights).sum().backward()
    for index, model in enumerate(models):
        alone = copy.deepcopy(model)
        own = [x[index].clone().requires_grad_(x.is_floating_point()) for x in inputs]
        expected = first_tensor(alone(*own, **kwargs))
        (expected * weights[index]).sum().backward()
        assert_near(output[index], expected, f"output of model {index}")
        for place, (a, b) in enumerate(zip(mine, own, strict=True)):
            if a.grad is not None:
                assert b.grad is not None
                assert_near(a.grad[index], b.grad, f"gradient of input {place}, model {index}")
        parameters = dict(array.named_parameters())
        for name, parameter in alone.named_parameters():
            gradient = parameters[name].grad
            if parameter.grad is None:
                assert gradient is None or not gradient[index].any(), name
            else:
                assert gradient is not None, name
                assert_near(gradient[index], parameter.grad, f"gradient of {name}, model {index}")
    check_state(array, models)
    return array


def check_state(array: torch.nn.Module, models: Sequence[torch.nn.Module]) -> None:
    """The array's state has torch's keys stacked on dimension 0, loads back, and comes apart into the models."""
    stacked, _ = torch.func.stack_module_state(list(models))
    state = array.state_dict()
    assert set(state) == set(models[0].state_dict())
    for name, value in stacked.items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=0)
    array.load_state_dict(state)
    for model, back in zip(models, unfuse(array), strict=True):
        assert type(back) is type(model)
        assert back.training == model.training
        for name, value in model.state_dict().items():
            torch.testing.assert_close(back.state_dict()[name], value, rtol=0, atol=0)


class Negated(torch.autograd.Function):
    """An operator of a user's, with a gradient that torch would not find."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad
