# SPDX-License-Identifier: MIT
"""Other methods of the models than `forward`: they run at once, or one by one, as a forward does."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite._fuse.code.call_user_code import MethodName, call_model, method_named
from helpers import assert_near, make_models

B, N = 3, 6


class Critic(torch.nn.Module):
    """A discriminator whose methods need all that a forward may need."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 5), torch.nn.Linear(5, 1)
        self.register_buffer("seen", torch.zeros(3))
        self.calls = 0

    def judge(self, x):
        return self.head(torch.tanh(self.body(x)))

    def penalised(self, x, kinds):
        self.calls += 1
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.judge(x).sum(), x, create_graph=True)
        return self.judge(x).mean() + (slope.norm(dim=1) - 1).square().mean()

    def counted(self, x, kinds):
        counts = torch.zeros(3, dtype=x.dtype).scatter_add_(0, kinds, torch.ones_like(kinds, dtype=x.dtype))
        self.seen += counts
        return (self.judge(x).squeeze(1) * (counts / self.seen.clamp(min=1))[kinds]).square().mean()

    def chosen(self, x, kinds):
        return self.judge(x[kinds > 0]).square().sum() / len(x)

    def named(self, x, kinds):
        raise KeyError("no such kind")

    def noisy(self, x, kinds):
        return self.judge(x + torch.randn_like(x)).mean((0, 1))


METHODS = ["penalised", "counted", "chosen"]


def batches(steps):
    torch.manual_seed(7)
    return [(torch.randn(B, N, 4, dtype=torch.float64), torch.randint(3, (B, N))) for _ in range(steps)]


def alone(method, steps):
    models = make_models(Critic, B, torch.float64)
    losses = []
    for index, model in enumerate(models):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x, kinds in batches(steps):
            optimizer.zero_grad()
            loss = getattr(model, method)(x[index], kinds[index])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return models, torch.stack(losses).view(B, steps)


def check_same(array, models):
    for index, model in enumerate(models):
        own = array.model_state_dict(index)
        for name, tensor in model.state_dict().items():
            assert_near(own[name], tensor, name)
        assert array[index].calls == model.calls


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_trained_by_hand(method):
    models, expected = alone(method, 4)
    array = dnnsuite.fuse(make_models(Critic, B, torch.float64))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    for step, batch in enumerate(batches(4)):
        optimizer.zero_grad()
        losses = getattr(array, method)(*batch)
        losses.sum().backward()
        optimizer.step()
        assert_near(losses.detach(), expected[:, step])
    check_same(array, models)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("threads", "width"), [(1, 3), (1, 1), (2, 2)])
def test_a_method_is_trained_by_a_runner(method, threads, width):
    models, expected = alone(method, 8)
    array = dnnsuite.fuse(make_models(Critic, B, torch.float64))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with dnnsuite.StepRunner(
        array, optimizer, lambda a, *batch: getattr(a, method)(*batch), threads=threads, width=width
    ) as runner:
        for step, batch in enumerate(batches(8)):
            assert_near(runner.step(*batch).losses(), expected[:, step])
    check_same(array, models)


def test_the_reason_is_told():
    array = dnnsuite.fuse(make_models(Critic, B, torch.float64))
    array.chosen(*batches(1)[0])
    (cover,) = array.coverage()
    assert cover.how == "per model"
    assert cover.reason


def test_an_error_of_the_models_own_is_raised_as_it_is():
    array = dnnsuite.fuse(make_models(Critic, B))
    with pytest.raises(KeyError, match="no such kind"):
        array.named(*batches(1)[0])
    assert [cover.how for cover in array.coverage()] == ["fused", "fused"]


def test_a_method_that_draws_after_one_that_does_not():
    array = dnnsuite.fuse(make_models(Critic, B, torch.float64))
    x = torch.randn(1, N, 4, dtype=torch.float64).expand(B, N, 4)
    array.judge(x)
    with torch.no_grad():
        for parameter in array.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter))
    drawn = array.noisy(x, torch.zeros(B, N, dtype=torch.long))
    assert len(set(drawn.tolist())) == B  # equal models, noise of their own


def test_what_is_called():
    model = Critic()
    x, kinds = torch.randn(N, 4), torch.ones(N, dtype=torch.long)
    args = (MethodName("chosen"), x, kinds)
    assert method_named(args) == "chosen"
    assert method_named(("chosen", x)) == method_named(()) == ""
    assert torch.equal(call_model(model, args, {}), model.chosen(x, kinds))
    assert torch.equal(call_model(model.body, (x,), {}), model.body(x))
