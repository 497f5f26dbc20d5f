# SPDX-License-Identifier: MIT
"""Numbers and tensors that a model's code makes in its forward are its own, whatever the array around it."""

import copy
import sys

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import optim
from dnnsuite._fuse.code.draws import PerModelMode
from dnnsuite._step.capture.record import StepRecorder
from helpers import assert_near, check_matches_models, make_models

SEEDS = [11, 12, 13]


class Drawing(torch.nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.inner = torch.nn.Linear(4, 6)
        self.drop = torch.nn.Dropout(0.5)
        self.__dict__["draw"] = draw

    def forward(self, x):
        return self.draw(self, self.inner(x))


class Copied(torch.autograd.Function):
    """Sends its module to plain torch, one model at a time."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad


DRAWS = {
    "randn": lambda self, y: y + torch.randn(y.shape[0], 6),
    "rand": lambda self, y: y * (torch.rand(6, device=y.device) > 0.5),
    "normal": lambda self, y: y + torch.normal(0.0, 1.0, (5, 6)),
    "normal of tensors": lambda self, y: y + torch.normal(torch.zeros(6), torch.ones(6)),
    "randn_like": lambda self, y: y + torch.randn_like(torch.zeros(5, 6)) + torch.randn_like(y),
    "bernoulli": lambda self, y: y * torch.bernoulli(torch.full((5, 1), 0.5)),
    "into memory": lambda self, y: y * torch.empty(5, 6).uniform_() + torch.zeros(6).normal_(),
    "new": lambda self, y: y * y.new(5, 6).exponential_() + y.new_empty(6).normal_(),
    "randperm": lambda self, y: y[torch.randperm(5)],
    "randint": lambda self, y: y * torch.randint(0, 100, (5, 1)),
    "multinomial": lambda self, y: y * torch.multinomial(torch.ones(60), 6),
    "gumbel": lambda self, y: F.gumbel_softmax(y, hard=True) * y + F.gumbel_softmax(y),
    "methods": lambda self, y: y * torch.full((5, 1), 0.5).bernoulli() + torch.ones(60).multinomial(6),
    "beta": lambda self, y: y * torch.distributions.Beta(0.4, 0.4).sample(),
    "dirichlet": lambda self, y: y * torch.distributions.Dirichlet(torch.ones(6)).rsample(),
    "gamma": lambda self, y: y * torch.distributions.Gamma(2.0, 1.0).rsample((5, 1)),
    "reparametrised": lambda self, y: torch.distributions.Normal(y, 1.0).rsample(),
    "one by one": lambda self, y: (y + torch.randn(5, 6)) if float(y.detach().sum()) > -1e9 else y,
    "plain torch": lambda self, y: Copied.apply(self.drop(y) + torch.randn(5, 6)),
    "attention of constants": lambda self, y: (
        y + F.scaled_dot_product_attention(*[torch.ones(1, 5, 6).cumsum(1)] * 3, dropout_p=0.5)[0]
    ),
    "without a rule": lambda self, y: F.rrelu(y, -3.0, 3.0, training=True),
}


def losses_of_steps(array, x, width):
    optimizer = optim.SGD(array.parameters(), lr=0.01)
    if width is None:
        made = []
        for _ in range(5):
            optimizer.zero_grad()
            losses = array(x).square().mean((1, 2))
            losses.sum().backward()
            optimizer.step()
            made.append(losses.detach())
        return torch.stack(made)
    loss = lambda part, x: part(x).square().mean((1, 2))  # noqa: E731
    with dnnsuite.StepRunner(array, optimizer, loss, threads=1, width=width) as runner:
        return torch.stack([runner.step(x).losses().clone() for _ in range(5)])


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_depend_on_neither_width_nor_neighbours(name):
    models = make_models(lambda: Drawing(DRAWS[name]), 3)
    x = torch.randn(3, 5, 4)
    array = dnnsuite.fuse(models, seeds=SEEDS)
    torch.manual_seed(1)
    first, second = array(x), array(x)
    assert not torch.equal(first, second)
    for index, model in enumerate(models):
        torch.manual_seed(50 + index)  # of no importance
        alone = dnnsuite.fuse([model], seeds=SEEDS[index : index + 1])
        for output in (first, second):
            assert_near(output[index], alone(x[index : index + 1])[0])
    twins = dnnsuite.fuse([copy.deepcopy(models[0]) for _ in range(3)], seeds=SEEDS)
    same = twins(dnnsuite.stack(x[0], B=3))
    assert not torch.equal(same[0], same[1])
    expected = losses_of_steps(dnnsuite.fuse(models, seeds=SEEDS), x, None)
    for width in (1, 3):
        losses = losses_of_steps(dnnsuite.fuse(models, seeds=SEEDS), x, width)
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)


def test_torchs_generator_is_left_alone_by_what_is_drawn_for_each():
    array = dnnsuite.fuse(make_models(lambda: Drawing(DRAWS["plain torch"]), 2))
    array(torch.randn(2, 5, 4))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    array(torch.zeros(2, 5, 4))
    assert torch.equal(torch.rand(2), expected)


def test_code_that_begins_to_draw_later():
    class Late(Drawing):
        calls = 0

        def forward(self, x):
            self.calls += 1
            y = self.inner(x)
            return y + torch.randn(5, 6) if self.calls > 2 else y

    model = make_models(lambda: Late(None), 1)[0]
    array = dnnsuite.fuse([model, copy.deepcopy(model)])
    x = dnnsuite.stack(torch.randn(5, 4), B=2)
    outputs = [array(x) for _ in range(5)]
    assert torch.equal(outputs[1][0], outputs[1][1])
    assert not torch.equal(outputs[3][0], outputs[3][1])
    assert not torch.equal(outputs[4][0], outputs[4][1])


class Scatters(torch.nn.Module):
    """Fills a tensor that it makes, as sequence models and graph networks do."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRUCell(4, 4)
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x, edges):
        state = x.new_zeros(x.size(0), 4)
        outputs = torch.zeros(3, x.size(0), 4)
        for step in range(3):
            state = self.cell(self.inner(x), state)
            outputs[step] = state
        total = torch.zeros(x.size(0), 4)
        total.index_add_(0, edges[1], x[edges[0]])
        counts = torch.zeros(x.size(0)).scatter_add_(0, edges[1], torch.ones(edges.size(1)))
        return outputs.sum(0) + total / counts.clamp(min=1).unsqueeze(1)


def test_a_tensor_that_is_filled_is_each_models_own():
    edges = torch.randint(0, 5, (3, 2, 9))
    array = check_matches_models(make_models(Scatters, 3), torch.randn(3, 5, 4), edges)
    assert not [cover for cover in array.coverage() if cover.how == "per model"]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.arange(4.0),
        lambda x: torch.linspace(0, 1, 4),
        lambda x: torch.eye(4)[0],
        lambda x: torch.tensor([1.0, 2.0, 3.0, 4.0]),
        lambda x: GIVEN.clone(),
        lambda x: GIVEN.new_ones(4),
    ],
)
def test_whatever_makes_it(make):
    class Adds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return make(x).add_(self.inner(x).sum(0))

    array = check_matches_models(make_models(Adds, 3), torch.randn(3, 5, 4))
    assert not [cover for cover in array.coverage() if cover.how == "per model"]
    assert GIVEN.tolist() == [3.0, 1.0, 2.0, 0.0]


GIVEN = torch.tensor([3.0, 1.0, 2.0, 0.0])


class Fills(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x, out):
        out[1:] = Copied.apply(self.inner(x))[1:]


class HandsOut(torch.nn.Module):
    """Makes the tensor that a part fills, which runs in plain torch."""

    def __init__(self):
        super().__init__()
        self.part = Fills()

    def forward(self, x):
        out = torch.zeros(5, 4)
        self.part(x, out)
        return out * 2


def test_a_part_that_fills_what_it_is_given():
    check_matches_models(make_models(HandsOut, 3), torch.randn(3, 5, 4))


def test_looking_for_draws_is_no_part_of_a_recorded_step():
    array = dnnsuite.fuse(make_models(lambda: Drawing(lambda self, y: y), 2))
    x = torch.randn(2, 3, 4)
    array(x)
    with StepRecorder([]) as recorder:
        array(x)
    assert not [t for t in recorder.recording.external.values() if t.dtype == torch.uint8]


def test_draws_that_no_rule_knows_run_model_by_model():
    model = Drawing(lambda self, y: y + torch.native_dropout(torch.ones(5, 6), 0.5, True)[0])
    array = dnnsuite.fuse([model, copy.deepcopy(model), copy.deepcopy(model)])
    x = torch.randn(1, 5, 4).expand(3, 5, 4)
    first = array(x).detach() - model.inner(x[0]).detach()
    for index in range(3):
        assert not torch.equal(first[index], first[(index + 1) % 3])
    torch.manual_seed(1)
    later = array(x).detach()
    torch.manual_seed(1)
    for mine in later:  # in the models' order
        assert_near(mine, model(x[0]).detach())
    assert any("one generator" in cover.reason for cover in array.coverage())
    array(x).sum().backward()


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.BatchNorm2d(3))

    def forward(self, x):
        return self.body(x + torch.rand_like(x)).relu()


class HoldsNoisy(torch.nn.Module):
    """Has a forward for all models, inside which code of one model draws."""

    array_forward = True

    def __init__(self):
        super().__init__()
        self.inner = Noisy()

    def forward(self, x):
        return self.inner(x)


class DrawsAround(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = HoldsNoisy()

    def forward(self, x):
        return self.part(x + 0 * torch.rand_like(x))


def calls_of_mode(call):
    """Count the functions of torch that `PerModelMode` sees."""
    looked = []

    def note(frame, event, argument):
        if event == "call" and frame.f_code is PerModelMode.__torch_function__.__code__:
            looked.append(frame.f_locals["func"])

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(looked)


def test_the_mode_sees_the_models_code_and_not_that_of_layers():
    array, x = dnnsuite.fuse(make_models(Noisy, 3)), torch.randn(3, 5, 2, 8, 8)
    for _ in range(3):
        array(x)
    assert calls_of_mode(lambda: array(x)) == 3  # rand_like, +, relu


def test_code_of_models_in_a_forward_for_all_draws_for_each():
    model = DrawsAround()
    array, x = dnnsuite.fuse([copy.deepcopy(model) for _ in range(3)]), torch.zeros(3, 5, 2, 8, 8)
    for _ in range(3):
        first, second, third = array(x)
        assert not first.equal(second)
        assert not second.equal(third)
