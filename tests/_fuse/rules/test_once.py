# SPDX-License-Identifier: MIT
"""Functions in a user's code, of what all models share: once, and each model's own from where they part."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import dnnsuite
from dnnsuite._fuse.rules.once import shared_result
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.model_tensor import ModelTensor
from helpers import assert_near

B = 3


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest result of a function has."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() and result.storage_offset() == 0:
            self.numbers = max(self.numbers, result.untyped_storage().nbytes() // result.element_size())
        return result


def functions(self, x):
    h = F.linear(x, self.weight, self.bias) @ self.weight
    h = torch.cat([h, h.flip(0)], 1).view(h.size(0), 2, -1).transpose(1, 2)
    h = torch.einsum("nij,nkj->nik", h, h).softmax(-1).float()
    return F.layer_norm(h, h.shape[-1:]).flatten(1)[:, : x.size(1)]


def in_place(self, x):
    h = F.linear(x, self.weight)
    h += self.bias
    h.relu_().clamp_(max=1)
    h[:, 0] = 2.0
    other = torch.zeros(x.size(0), self.bias.size(0))
    other[:, 1:] = h[:, 1:]
    return F.silu(other, inplace=True)


def dropped(self, x):
    return F.dropout(F.linear(x, self.weight), 0.5, self.training)


def attended(self, x):
    h = F.linear(x, self.weight).view(1, 2, -1, x.size(1))
    return F.scaled_dot_product_attention(h, h, h).flatten(0, -2)


def numbered(self, x):
    return F.linear(x, self.weight) * float(self.bias.sum())


def parting(self, x):
    h = F.linear(x, self.weight)
    h += self.own  # each model's, into what was computed once
    return h


def seen_twice(self, x):
    h = F.linear(x, self.weight)
    view = h.view(-1)
    h += self.own
    return view.view(h.shape)


class Code(torch.nn.Module):
    def __init__(self, code, weight, bias):
        super().__init__()
        self.code = code
        self.weight, self.bias = weight, bias
        self.own = torch.nn.Parameter(torch.randn(8))

    def forward(self, x):
        return self.code(self, x).sum(0) * self.own


def make(code):
    torch.manual_seed(0)
    held = [torch.nn.Parameter(torch.randn(shape), requires_grad=False) for shape in ((8, 8), (8,))]
    return [Code(code, *held).eval() for _ in range(B)]


@pytest.mark.parametrize("code", [functions, in_place, dropped, attended, numbered, parting, seen_twice])
@pytest.mark.parametrize("shared", [True, False], ids=["shared batch", "a batch for each"])
def test_same_as_separate_models(code, shared):
    models = make(code)
    array = dnnsuite.fuse(models)
    one = torch.randn(B, 50, 8)
    x = dnnsuite.stack(one[0].clone(), B) if shared else one
    kept = x.clone()
    with Largest() as largest:
        array(x)
    for _ in range(2):
        output = array(x)
        for index, model in enumerate(models):
            assert_near(output[index], model(x[index]))
    assert torch.equal(x, kept)
    if shared and code not in (parting, seen_twice, functions):
        assert largest.numbers <= 2 * 50 * 8  # and not B times as many


def test_draws_are_each_models_own():
    array = dnnsuite.fuse(make(dropped)).train()
    output = array(dnnsuite.stack(torch.randn(50, 8), B)) / array.own
    assert not torch.allclose(output[0], output[1])


class Counting(torch.nn.Module):
    def __init__(self, seen, head):
        super().__init__()
        self.register_buffer("seen", seen)
        self.head = head

    def forward(self, x):
        self.update(x)
        return self.head(x + self.seen)

    def update(self, x):
        self.seen.lerp_(x.mean(0), 0.1)


@pytest.mark.parametrize("shared", [True, False], ids=["shared batch", "a batch for each"])
def test_a_buffer_that_code_writes_is_each_models_own(shared):
    torch.manual_seed(0)
    seen = torch.zeros(8)
    models = [Counting(seen, torch.nn.Linear(8, 2)) for _ in range(B)]
    alone = [copy.deepcopy(model) for model in models]
    array = dnnsuite.fuse(models)
    one = torch.randn(B, 5, 8)
    x = dnnsuite.stack(one[0], B) if shared else one
    for _ in range(2):
        output = array(x)
        for index, model in enumerate(alone):
            assert_near(output[index], model(x[index]))
    assert not seen.any()


class Hidden(torch.nn.Module):
    def __init__(self, seen, head):
        super().__init__()
        self.register_buffer("seen", seen)
        self.head = head

    def forward(self, x):
        write(self.seen, x)
        return self.head(x + self.seen)


def write(seen, x):
    seen.lerp_(x.mean(0), 0.1)


def test_a_hidden_write_is_refused_by_name():
    seen = torch.zeros(8)
    array = dnnsuite.fuse([Hidden(seen, torch.nn.Linear(8, 2)) for _ in range(B)])
    with pytest.raises(InvalidArgument, match=r"writes each model's values into seen.*copy\.deepcopy"):
        array(torch.randn(B, 5, 8))


def test_not_all_is_shared():
    own, shared = ModelTensor(torch.randn(B, 4)), ModelTensor(torch.randn(1, 4).expand(B, 4))
    assert shared_result(torch.add, (own, shared), {}) is NotImplemented
    assert shared_result(torch.rand_like, (shared,), {}) is NotImplemented
