# SPDX-License-Identifier: MIT
"""Whole models, unmodified, through `dnnsuite.fuse`: their training steps equal those of separate models."""

import contextlib
import copy

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map

import dnnsuite
from dnnsuite import data, models
from fuse_zoo import Row, features, rows
from helpers import make_models

STEPS = 4
CHAOTIC_STEPS = 2  # each begins where the array is: what is wrong shows at once, or in the optimizer's next steps


@pytest.fixture(autouse=True, scope="module")
def _torchvision_before_transformers():
    """transformers imports torchvision where it is, and must find it importable."""
    with contextlib.suppress(dnnsuite.errors.Unavailable):
        data.import_torchvision()


def at(tree, index):
    return tree_map(lambda x: x[index] if isinstance(x, torch.Tensor) else x, tree)


def cast(tree, dtype):
    return tree_map(lambda x: x.to(dtype) if x.is_floating_point() else x, tree)


def batches(row, B, dtype, steps):
    """Every step's (inputs, target) of each model."""
    torch.manual_seed(7)
    return [[cast(row.batch(), dtype) for _ in range(B)] for _ in range(steps)]


def step_alone(row, model, batch, optimizer):
    inputs, target = batch
    optimizer.zero_grad()
    loss = row.loss(row.call(model, inputs), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


def step_array(row, array, batch, optimizer):
    """One step on a batch for each model; their losses `[B]`."""
    inputs, target = tree_map(lambda *parts: torch.stack(parts), *batch)
    optimizer.zero_grad()
    output = row.call(array, inputs)
    loss = torch.stack([row.loss(at(output, index), target[index]) for index in range(len(batch))])
    loss.sum().backward()
    optimizer.step()
    return loss.detach()


def assert_same_state(state, expected, index, tolerance):
    """Each tensor as a whole, by norms: quick, and what cancels within a tensor has its own scale."""
    assert state.keys() == expected.keys()
    mine = [state[name][index].double() for name in expected]
    theirs = [value.double() for value in expected.values()]
    errors = torch.stack(torch._foreach_norm(torch._foreach_sub(mine, theirs))).tolist()
    sizes = torch.stack(torch._foreach_norm(theirs)).tolist()
    for name, error, size in zip(expected, errors, sizes, strict=True):
        allowed = tolerance["rtol"] * size + tolerance["atol"] * expected[name].numel() ** 0.5
        assert error <= allowed, f"{name}, model {index}: error {error:.3g}, allowed {allowed:.3g}"


def assert_same_training(row, made, steps, rates, tolerance, momentum):
    """Trains `made` as an array and one by one. A chaotic model begins every step where the array does."""
    array = dnnsuite.fuse(made)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=rates, momentum=momentum)
    own = [torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum) for model, lr in zip(made, rates, strict=True)]
    for number, batch in enumerate(steps):
        expected = []
        for index, model in enumerate(made):
            if row.chaotic:
                model.load_state_dict({name: value[index] for name, value in array.state_dict().items()})
            expected.append(step_alone(row, model, batch[index], own[index]))
        losses = step_array(row, array, batch, optimizer)
        torch.testing.assert_close(
            losses, torch.stack(expected), **tolerance, msg=lambda text, step=number: f"losses of step {step}: {text}"
        )
        if row.chaotic or number == len(steps) - 1:
            for index, model in enumerate(made):
                assert_same_state(array.state_dict(), model.state_dict(), index, tolerance)
    return array


@pytest.mark.parametrize("row", rows())
def test_training_steps(row: Row):
    """In float64, where some steps leave no room for a mistake to hide behind rounding."""
    B = 2 if row.package == "torchvision" else 3
    rates = [row.lr * (1 + index) for index in range(B)]
    steps = batches(row, B, torch.float64, CHAOTIC_STEPS if row.chaotic else STEPS)
    made = row.models(B, torch.float64)
    assert_same_training(row, made, steps, rates, {"rtol": 1e-6, "atol": 1e-8}, momentum=0.9)


@pytest.mark.parametrize(
    "row", rows("mlp", "functional", "pointnet features", "lstm lm", "resnet18", "mobilenet_v2", "bert")
)
def test_float32_and_evaluation(row: Row):
    """One step in float32, then a forward pass in eval mode of what came out of it.

    Ours convolves channels last, which rounds otherwise; a chaotic model makes percents of that in one step.
    """
    tolerance = {"rtol": 1e-2, "atol": 1e-3} if row.chaotic else {"rtol": 2e-3, "atol": 2e-4}
    made = row.models(2)
    steps = batches(row, 2, torch.float32, 1)
    rates = [1e-5, 2e-5] if row.chaotic else [1e-3, 2e-3]
    array = assert_same_training(row, made, steps, rates, tolerance, momentum=0.0).eval()
    inputs, target = tree_map(lambda *parts: torch.stack(parts), *steps[0])
    with torch.no_grad():
        output = row.call(array, inputs)
        for index, model in enumerate(made):
            truth = row.loss(row.call(model.eval(), at(inputs, index)), target[index])
            torch.testing.assert_close(row.loss(at(output, index), target[index]), truth, **tolerance)


def adversarial_step(make_noise, real, nets, optimizers, call):
    """One step of DCGAN: the discriminator on real and generated images, then the generator; their losses."""
    generator, discriminator = nets
    first, second = optimizers
    fake = generator(make_noise)
    second.zero_grad()
    judged = call(F.softplus(-discriminator(real))) + call(F.softplus(discriminator(fake.detach())))
    judged.sum().backward()
    second.step()
    first.zero_grad()
    fooled = call(F.softplus(-discriminator(fake)))
    fooled.sum().backward()
    first.step()
    return torch.stack([judged.detach(), fooled.detach()])


def test_dcgan_trains_as_separate_pairs():
    B, N, steps = 2, 2, 4
    rates = [1e-3, 3e-3]
    generators = [m.double() for m in make_models(lambda: models.Generator(4, width=2), B)]
    judges = [m.double() for m in make_models(lambda: models.Discriminator(width=2), B)]
    nets = dnnsuite.fuse(generators), dnnsuite.fuse(judges)
    optimizers = [dnnsuite.optim.SGD(net.parameters(), lr=rates) for net in nets]
    noise = torch.randn(steps, B, N, 4, 1, 1, dtype=torch.float64)
    real = torch.rand(steps, B, N, 3, 64, 64, dtype=torch.float64)
    losses = [adversarial_step(z, x, nets, optimizers, lambda y: y.mean(1)) for z, x in zip(noise, real, strict=True)]
    for index in range(B):
        pair = generators[index], judges[index]
        own = [torch.optim.SGD(net.parameters(), lr=rates[index]) for net in pair]
        for step in range(steps):
            expected = adversarial_step(noise[step, index], real[step, index], pair, own, torch.mean)
            torch.testing.assert_close(losses[step][:, index], expected, rtol=1e-7, atol=1e-9)
        for net, model in zip(nets, pair, strict=True):
            assert_same_state(net.state_dict(), model.state_dict(), index, {"rtol": 1e-7, "atol": 1e-9})


def test_dropout_is_that_of_the_model_alone():
    """Training with dropout is the same in any array: masks belong to the model's seed."""
    row = Row("mlp with dropout", lambda: models.MLP((6, 8, 8, 3), dropout=0.4), features(6, 3))
    made = row.models(3)
    array = dnnsuite.fuse(made, seeds=[11, 12, 13])
    singles = [dnnsuite.fuse([model], seeds=[11 + index]) for index, model in enumerate(made)]
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=[0.1, 0.2, 0.3])
    own = [dnnsuite.optim.SGD(one.parameters(), lr=0.1 * (1 + i)) for i, one in enumerate(singles)]
    for batch in batches(row, 3, torch.float32, 5):
        losses = step_array(row, array, batch, optimizer)
        for index, single in enumerate(singles):
            alone = step_array(row, single, [batch[index]], own[index])
            torch.testing.assert_close(losses[index], alone[0], rtol=1e-5, atol=1e-6)
    x = torch.randn(3, 4, 6)
    assert not torch.equal(array(x), array(x))
    array.eval()
    assert torch.equal(array(x), array(x))


@pytest.mark.parametrize("row", rows("mlp", "pointnet", "transformer lm", "resnet18"))
def test_unfuse_gives_the_trained_models(row: Row):
    made = row.models(2)
    array = dnnsuite.fuse(made)
    (batch,) = batches(row, 2, torch.float32, 1)
    step_array(row, array, batch, dnnsuite.optim.SGD(array.parameters(), lr=1e-3))
    inputs, target = tree_map(lambda *parts: torch.stack(parts), *batch)
    array.eval()
    output = row.call(array, inputs)
    for index, (model, back) in enumerate(zip(made, dnnsuite.unfuse(array), strict=True)):
        assert type(back) is type(model)
        assert back.state_dict().keys() == model.state_dict().keys()
        expected = row.loss(row.call(copy.deepcopy(back).eval(), at(inputs, index)), target[index])
        torch.testing.assert_close(row.loss(at(output, index), target[index]), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("row", rows("mlp", "pointnet features", "mobilenet_v3_small", "transformer lm"))
def test_a_shared_batch(row: Row):
    """One batch for all models, handed over without a copy."""
    made = row.models(3)
    array = dnnsuite.fuse(made)
    torch.manual_seed(3)
    inputs, target = row.batch()
    output = row.call(array, tree_map(lambda x: dnnsuite.stack(x, B=3), inputs))
    for index, model in enumerate(made):
        torch.testing.assert_close(
            row.loss(at(output, index), target), row.loss(row.call(model, inputs), target), rtol=2e-4, atol=2e-5
        )
