# SPDX-License-Identifier: MIT
"""Plain modules on an array's storage, against separate models over some steps."""

import copy
import math

import pytest
import torch

import dnnsuite
from dnnsuite._fuse.code.plain_models import PlainModels
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models

ODD = -1.0  # of sum() in some models only, for a branch


class Branch(torch.nn.Module):
    """Code that asks for a number, which differs from model to model, around `body`."""

    def __init__(self, body, forward=None):
        super().__init__()
        self.body, self.extra = body, forward
        self.gain = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        h = self.body(x)
        h = h * self.gain if self.extra is None else self.extra(self, h)
        return h if x.sum() > 0 else -h


class Listed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(4)) for _ in range(2)])
        self.named = {"first": self.weights[0], "more": [self.weights[1]]}

    def forward(self, x):
        return x * self.named["first"] + self.named["more"][0]


class InATuple(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.kept, self.alias = ((self.weight, 2), [3]), [{"w": (1, self.weight)}]

    def forward(self, x):
        return x * self.kept[0][0] + self.alias[0]["w"][1]


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


def normalized():
    return torch.nn.Sequential(
        torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4)), torch.nn.ReLU(), torch.nn.BatchNorm1d(4)
    )


def tied():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    net[2].weight = net[0].weight
    return net


def rescale(self, h):
    with torch.no_grad():
        self.gain.mul_(1.5)
    return h * self.gain


def count(self, h):
    self.calls = getattr(self, "calls", 0) + 1
    return h / self.calls


BODIES = {
    "list": (Listed, None),
    "tuple": (InATuple, None),
    "recurrent": (Recurrent, None),
    "norm": (normalized, None),
    "tied": (tied, None),
    "writes its parameter": (tied, rescale),
    "counts": (tied, count),
}


def signed(steps, B):
    x = torch.randn(steps, B, 5, 4, dtype=torch.float64).abs()
    x[:, 1::2] *= ODD
    return x


def trained_alone(models, data):
    for index, model in enumerate(models):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in data[:, index]:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("width", [0, 1, 3])
def test_trains_as_separate_models_do(name, width):
    """By hand (width 0) and in shards of a StepRunner."""
    body, extra = BODIES[name]
    models = [m.double() for m in make_models(lambda: Branch(body(), extra), 3)]
    array = dnnsuite.fuse(models)
    if extra is rescale:  # the attempt to run all at once has written already when it is given up
        array.per_model("")
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    data = signed(4, 3)
    losses = lambda part, x: part(x).square().flatten(1).mean(1)  # noqa: E731
    if width:
        with dnnsuite.StepRunner(array, optimizer, losses, width=width, threads=2) as runner:
            for x in data:
                runner.step(x)
    else:
        for x in data:
            optimizer.zero_grad()
            losses(array, x).sum().backward()
            optimizer.step()
    trained_alone(models, data)
    for index, model in enumerate(models):
        state = {key: value[index] for key, value in array.state_dict().items()}
        torch.testing.assert_close(state, dict(model.state_dict()))
    if not width:
        assert [getattr(m, "calls", 4) for m in dnnsuite.unfuse(array)] == [4] * 3


def test_a_hook_registered_later_sees_each_model():
    array = dnnsuite.fuse(make_models(lambda: Branch(tied()), 3))
    x = signed(1, 3)[0].float()
    array(x)
    seen = []
    array.body[0].register_forward_hook(lambda module, args, output: seen.append(output.shape))
    array(x)
    assert seen == [(5, 4)] * 3


def noisy(self, h):
    return torch.nn.functional.dropout(h, 0.5) + torch.randn_like(h)


def test_code_that_draws_has_the_streams_of_the_array():
    """Its numbers depend on neither width nor neighbours, and torch's generator is left alone."""
    models, x = make_models(lambda: Branch(tied(), noisy), 3), signed(1, 3)[0].float()
    array, alone = dnnsuite.fuse(models, seeds=[5, 6, 7]), dnnsuite.fuse(models[1:2], seeds=[6])
    before = torch.get_rng_state()
    for _ in range(3):
        torch.testing.assert_close(array(x)[1:2], alone(x[1:2]))
    assert torch.equal(before, torch.get_rng_state())


def refusal(make, *args):
    array = dnnsuite.fuse(make_models(make, 2))
    return PlainModels(array._root, 2).seen(args, {}).refusal


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (None, ""),
        (noisy, "its code draws random numbers"),
        (lambda self, h: self.given.mul_(2) + h, "its code writes into its arguments"),
    ],
)
def test_refuses_what_plain_models_would_do_otherwise(extra, message):
    class Keeping(Branch):
        def forward(self, x):
            self.__dict__["given"] = x
            return super().forward(x)

    assert refusal(lambda: Keeping(tied(), extra), torch.ones(5, 4)) == message


def test_a_refusal_is_known_from_the_first_call_of_its_kind_on():
    array = dnnsuite.fuse(make_models(lambda: Branch(tied(), noisy), 2))
    plain, x = PlainModels(array._root, 2), torch.ones(5, 4)
    assert plain.known((x,)) is None
    found = plain.seen((x,), {})
    assert plain.known((x,)) is found
    assert found.refusal == "its code draws random numbers"
    array._root.eval()  # another kind
    assert plain.known((x,)) is None


class Teacher(torch.nn.Module):
    """Follow a layer by `.data = ...`."""

    def __init__(self):
        super().__init__()
        self.layer, self.slow = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3).requires_grad_(False)

    def forward(self, x):
        for mine, other in zip(self.layer.parameters(), self.slow.parameters(), strict=True):
            other.data = other.data * 0.9 + mine.data * 0.1
        return self.layer(x) - self.slow(x)


def test_memory_put_in_the_place_of_a_parameters_is_taken():
    models, x = make_models(Teacher, 4), torch.randn(4, 5, 3)
    array = dnnsuite.fuse(models)
    array.per_model("")
    for _ in range(3):
        output = array(x)
        for index, model in enumerate(models):
            assert_near(output[index], model(x[index]))
    for index, model in enumerate(models):
        assert_near(array.slow.weight[index], model.slow.weight)


class Making(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.made = None

    def forward(self, x):
        if self.made is None:
            self.made = torch.nn.Linear(3, 2)
        return self.made(x)


def test_a_layer_that_a_forward_makes_is_refused():
    with pytest.raises(InvalidArgument, match="the forward of Making makes the Linear made: make it in the con"):
        dnnsuite.fuse([Making() for _ in range(2)])(torch.randn(2, 5, 3))


class Flattened(torch.nn.Module):
    """The first network of tutorials: grey images, and a `view` that needs torch's order of dimensions."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 6, 5, padding=2), torch.nn.Conv2d(6, 16, 5)
        self.last = torch.nn.Linear(64, 3)

    def forward(self, x):
        h = torch.nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        h = torch.nn.functional.max_pool2d(self.conv2(h).relu(), 2)
        return self.last(h.view(-1, 64))


@pytest.mark.parametrize("batch", [1, 2, 16])
def test_images_of_one_channel_that_are_viewed_as_rows(batch):
    models = make_models(Flattened, 3, torch.float32)
    x = torch.randn(batch, 1, 16, 16)
    array = dnnsuite.fuse(models)
    outputs = torch.stack(PlainModels(array._root, 3).run([((x,), {})] * 3))
    assert_near(outputs, torch.stack([model(x) for model in models]))


class Judged(torch.nn.Module):
    """Each model has a list and a best of its own, inside of a whole that runs model by model, too."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.layer, self.seen, self.best, self.factor = torch.nn.Linear(3, 3), [], math.inf, factor

    def forward(self, x):
        y = self.layer(x) * self.factor
        self.best = min(self.best, y.sum().item())
        self.seen.append(round(y.mean().item(), 9))
        return y * len(self.seen) + self.best


class Whole(torch.nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.judged, self.log = Judged(factor), {}

    def forward(self, x):
        y = self.judged(x)
        self.log[len(self.log)] = y.mean().item()
        return y * (1 + self.log[0])


def note_on_a_layer(model):
    model.judged.layer.note = "seen"


def reference(model):
    model.judged.again = model.judged.layer


def begun_anew(model):
    model.judged.seen = []
    model.judged.again = model.judged.layer


@pytest.mark.parametrize("change", [note_on_a_layer, reference, begun_anew])
@pytest.mark.parametrize("factors", [[1.0, 1.0], [1.0, 2.0]])
def test_models_that_are_made_anew_go_on_with_what_each_has_left(factors, change):
    models = [model.double() for model in make_models(Whole, 2)]
    for model, factor in zip(models, factors, strict=True):
        model.judged.factor = factor
    array, separate = dnnsuite.fuse(models), copy.deepcopy(models)
    for step, x in enumerate(torch.randn(6, 2, 4, 3, dtype=torch.float64)):
        expected = torch.stack([model(one) for model, one in zip(separate, x, strict=True)])
        torch.testing.assert_close(array(x), expected)
        if step in (1, 3):
            change(array)
            list(map(change, separate))
    for index, model in enumerate(separate):
        one = array[index]
        assert one.judged.seen == model.judged.seen
        assert one.judged.best == pytest.approx(model.judged.best)
        assert list(one.log) == list(model.log)
