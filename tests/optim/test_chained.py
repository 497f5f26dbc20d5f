# SPDX-License-Identifier: MIT
"""Two optimizers in one: Muon for matrices and AdamW for the rest, against both of each model."""

import copy
import io

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models

B, LR = 3, [0.1, 0.02, 0.01]


def net():
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Tanh(), torch.nn.Linear(6, 2))


def losses(array, x):
    return array(x).square().flatten(1).mean(1)


def chained(array, **options):
    matrices = [p for p in array.parameters() if p.dim() == 3]
    others = [p for p in array.parameters() if p.dim() < 3]
    first = optim.SGD(matrices, lr=LR, momentum=[0.9, 0.5, 0.0])
    return optim.ChainedOptimizer([first, optim.AdamW(others, lr=LR, betas=(0.8, [0.9, 0.99, 0.999]))], **options)


def own(model, i):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    first = torch.optim.SGD(matrices, lr=LR[i], momentum=[0.9, 0.5, 0.0][i])
    return [first, torch.optim.AdamW(others, lr=LR[i], betas=(0.8, [0.9, 0.99, 0.999][i]))]


@pytest.fixture
def array():
    return dnnsuite.fuse(make_models(net, B, torch.float64))


def step(array, optimizer, x):
    optimizer.zero_grad()
    losses(array, x).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_each_models_parameters_are_stepped_by_their_own_optimizer(array, threads):
    """By hand and in a runner, with a schedule of each optimizer, a rate that is set and a model that is dropped."""
    models = dnnsuite.unfuse(array)
    theirs, ours = [own(model, i) for i, model in enumerate(models)], chained(array)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in (ours.optimizers[0], theirs[1][0])]
    runner = dnnsuite.StepRunner(array, ours, losses, threads=threads) if threads else None
    kept = [0, 1, 2]
    for number, x in enumerate(torch.randn(12, B, 5, 4, dtype=torch.float64)):
        if number == 6:
            array.drop(0, ours)
            kept = [1, 2]
            ours.param_groups[1]["lr"] = [0.3, 0.2]
            for i, lr in ((1, 0.3), (2, 0.2)):
                theirs[i][1].param_groups[0]["lr"] = lr
        runner.step(x[kept]).losses() if runner else step(array, ours, x[kept])
        for i in kept:
            for one in theirs[i]:
                one.zero_grad()
            models[i](x[i]).square().mean().backward()
            for one in theirs[i]:
                one.step()
        schedules[1].step()
        theirs[2][0].param_groups[0]["lr"] *= 0.9
        if number < 6:
            theirs[0][0].param_groups[0]["lr"] *= 0.9
        schedules[0].step()
    if runner:
        runner.synchronize()
        assert runner.mode == "captured"
        runner.close()
    for model, i in zip(dnnsuite.unfuse(array), kept, strict=True):
        for mine, expected in zip(model.parameters(), models[i].parameters(), strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-14)


def test_clipping_and_freezing_are_of_all_parameters(array):
    ours = chained(array, max_grad_norm=1e-3)
    ours.freeze(1)
    before = copy.deepcopy(array.state_dict())
    models = dnnsuite.unfuse(array)
    theirs = [own(model, i) for i, model in enumerate(models)]
    x = torch.randn(B, 5, 4, dtype=torch.float64)
    step(array, ours, x)
    for i, model in enumerate(models):
        model(x[i]).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        for one in theirs[i]:
            one.step()
    for name, value in array.state_dict().items():
        assert torch.equal(value[1], before[name][1])
        torch.testing.assert_close(value[2], models[2].state_dict()[name], rtol=1e-6, atol=1e-9)


def test_a_copy_a_file_and_a_loaded_state_continue_alike(array):
    batches = torch.randn(6, B, 5, 4, dtype=torch.float64)
    ours = chained(array)
    for x in batches[:3]:
        step(array, ours, x)
    both = copy.deepcopy((array, ours))
    file = io.BytesIO()
    torch.save((array.state_dict(), ours.state_dict()), file)
    file.seek(0)
    weights, state = torch.load(file)
    third = dnnsuite.fuse(make_models(net, B, torch.float64))
    third.load_state_dict(weights)
    loaded = chained(third)
    loaded.load_state_dict(state)
    for x in batches[3:]:
        for each in ((array, ours), both, (third, loaded)):
            step(*each, x)
    for other in (both[0], third):
        assert all(map(torch.equal, array.parameters(), other.parameters()))


def test_what_cannot_be_chained_is_refused(array):
    matrices, *others = array.parameters()
    for wrong, words in [
        ([torch.optim.SGD([matrices], lr=1.0)], "of dnnsuite.optim"),
        ([optim.Prodigy([matrices])], "looks at all of its parameters"),
        ([optim.SGD([matrices], lr=1.0, max_grad_norm=1.0)], "arguments of ChainedOptimizer"),
    ]:
        with pytest.raises(InvalidArgument, match=words):
            optim.ChainedOptimizer([*wrong, optim.AdamW(others)])
    with pytest.raises(ValueError, match="more than one"):
        optim.ChainedOptimizer([optim.SGD([matrices], lr=1.0), optim.AdamW([matrices])])
    with pytest.raises(InvalidArgument, match="no further group"):
        chained(array).add_param_group({"params": []})
