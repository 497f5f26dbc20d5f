# SPDX-License-Identifier: MIT
"""`torch.autograd.Variable` in the code of one model."""

import pytest
import torch
from torch.autograd import Variable

import dnnsuite
from dnnsuite import optim
from dnnsuite.nn.model_tensor import ModelTensor, NotFusable
from helpers import assert_near, make_models

B = 3


class Code(torch.nn.Module):
    def __init__(self, code):
        super().__init__()
        self.layer, self.code = torch.nn.Linear(4, 4), code

    def forward(self, x):
        return self.code(self, x)


def detached(self, x):
    h = self.layer(x)
    return h + Variable(h)


def of_a_waiting_result(self, x):
    return torch.relu(Variable(self.layer(x))) * self.layer(x)


def in_the_memory_of_its_source(self, x):
    h = self.layer(x).detach()
    v = Variable(h)
    h.mul_(2)
    return v + self.layer(x)


def written(self, x):
    h = self.layer(x).detach()
    v = Variable(h)
    v.add_(1)
    return h * self.layer(x)


def told_of_gradients(self, x):
    asked, plain = Variable(x, requires_grad=True), Variable(x, requires_grad=False)
    h = self.layer(asked)
    assert not plain.requires_grad
    (slope,) = torch.autograd.grad(h.square().sum(), asked, create_graph=True)
    return slope + h.mean() if asked.requires_grad and asked.is_leaf else h


def of_what_all_share(self, x):
    mask = torch.ones(4)
    return self.layer(x) * Variable(mask) + Variable(x * 2).clone()


CODES = [detached, of_a_waiting_result, in_the_memory_of_its_source, written, told_of_gradients, of_what_all_share]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("code", CODES)
def test_values_and_gradients_are_those_of_separate_models(code, shared):
    models = make_models(lambda: Code(code), B, torch.float64)
    array = dnnsuite.fuse(models)
    x = torch.randn(1 if shared else B, 5, 4, dtype=torch.float64).expand(B, 5, 4)
    before = x.clone()
    outputs = array(x)
    outputs.square().sum().backward()
    for index, model in enumerate(models):
        expected = model(before[index].clone())
        expected.square().sum().backward()
        assert_near(outputs[index].detach(), expected.detach())
        assert_near(array.layer.weight.grad[index], model.layer.weight.grad)
    assert not [cover.reason for cover in array.coverage() if cover.reason]
    assert torch.equal(x, before)


def test_a_step_with_a_variable_of_noise_is_captured():
    def noisy(self, x):
        return self.layer(Variable(torch.randn(x.shape[0], 4)) * Variable(x.data)).square().mean()

    array = dnnsuite.fuse(make_models(lambda: Code(noisy), B))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with dnnsuite.StepRunner(array, optimizer, lambda array, x: array(x), threads=1) as runner:
        losses = [runner.step(torch.randn(B, 5, 4)).losses() for _ in range(4)]
        assert runner.mode == "captured"
    assert all(torch.isfinite(own).all() and own.unique().numel() == B for own in losses)


def test_outside_of_an_array_it_is_refused():
    with pytest.raises(NotFusable, match="detach"):
        Variable(ModelTensor(torch.randn(B, 2)))
