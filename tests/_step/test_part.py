# SPDX-License-Identifier: MIT
"""Steps of several parts, as of a GAN: each with a loss function and an optimizer of its own."""

import functools

import pytest
import torch
from torch.nn.functional import softplus

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models

B, N = 3, 8
RATES = {"discriminator": [0.01, 0.03, 0.002], "generator": [0.02, 0.001, 0.005]}


class GAN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.nn.Sequential(
            torch.nn.Linear(3, 6, bias=False), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 4)
        )
        self.discriminator = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LeakyReLU(0.2), torch.nn.Linear(6, 1))

    def judged(self, real, noise):
        made = self.generator(noise).detach()
        return softplus(-self.discriminator(real)).mean() + softplus(self.discriminator(made)).mean()

    def passed(self, real, noise):
        return softplus(-self.discriminator(self.generator(noise))).mean()


def judged(array, real, noise):
    return array.judged(real, noise)


def passed(array, real, noise):
    return array.passed(real, noise)


def made(models=None, kind="Adam", **options):
    array = dnnsuite.fuse(models or [model.double() for model in make_models(GAN, B)])
    return array, [
        getattr(optim, kind)(getattr(array, part).parameters(), lr=RATES[part][: array.B], **options)
        for part in ("discriminator", "generator")
    ]


def batches(steps, models=B):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(models, N, 4, generator=generator, dtype=torch.float64),
            torch.randn(models, N, 3, generator=generator, dtype=torch.float64),
        )
        for _ in range(steps)
    ]


@functools.cache
def alone(index, steps):
    """Model `index` trained as everybody trains a GAN in torch; the losses of each step too."""
    model = make_models(GAN, B)[index].double()
    judge, create = (
        torch.optim.Adam(getattr(model, part).parameters(), lr=RATES[part][index])
        for part in ("discriminator", "generator")
    )
    losses = []
    for real, noise in batches(steps):
        first = model.judged(real[index], noise[index])
        model.zero_grad()
        first.backward()
        judge.step()
        second = model.passed(real[index], noise[index])
        model.zero_grad()
        second.backward()
        create.step()
        losses.append([first.item(), second.item()])
    return model, torch.tensor(losses, dtype=torch.float64)


def same(array, index, model):
    own, other = array.model_state_dict(index), model.state_dict()
    assert own.keys() == other.keys()
    for name, tensor in other.items():
        torch.testing.assert_close(own[name], tensor, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("threads", "width", "capture"), [(1, 3, True), (1, 1, False), (2, 1, True), (2, 2, False), (2, None, True)]
)
def test_trains_each_model_as_torch_trains_it_alone(threads, width, capture):
    array, optimizers = made()
    with StepRunner(array, optimizers, [judged, passed], threads=threads, width=width, capture=capture) as runner:
        steps = [runner.step(*batch) for batch in batches(9)]
        runner.synchronize()
        assert runner.mode == ("captured" if capture else "eager: capture=False")
        assert "Adam + Adam" in repr(runner)
    losses = torch.stack([step.losses() for step in steps])  # [steps, B, parts]
    for index in range(B):
        model, expected = alone(index, 9)
        same(array, index, model)
        torch.testing.assert_close(losses[:, index], expected, rtol=1e-10, atol=1e-12)
    assert all(p.requires_grad for p in array.parameters())


def test_a_replay_leaves_the_bits_of_the_step_as_written():
    found = []
    for capture in (True, False):
        array, optimizers = made()
        with StepRunner(array, optimizers, [judged, passed], threads=1, width=3, capture=capture) as runner:
            found.append([runner.step(*batch).losses() for batch in batches(6)])
        found[-1] += [x.clone() for x in array.state_dict().values()]
    assert all(map(torch.equal, *found))


def test_a_model_that_is_not_finite_leaves_the_others_alone():
    ends = []
    for spoilt in (False, True):
        array, optimizers = made(on_nan="freeze")
        with StepRunner(array, optimizers, [judged, passed], threads=2, width=1) as runner:
            for number, (real, noise) in enumerate(batches(6)):
                if spoilt and number == 3:
                    real[1] = torch.nan
                last = runner.step(real, noise).losses()
        ends.append([array.model_state_dict(i)[name].clone() for i in (0, 2) for name in array.state_dict()])
        assert optimizers[0].frozen == [1] * spoilt
        assert optimizers[1].frozen == []
        assert last.isfinite().all()
    assert all(map(torch.equal, *ends))


def test_models_are_dropped_and_added_between_two_steps():
    array, optimizers = made()
    data = batches(9)
    with StepRunner(array, optimizers, [judged, passed], threads=2) as runner:
        for batch in data[:4]:
            runner.step(*batch)
        array.drop(1, *optimizers)
        for batch in data[4:]:
            losses = runner.step(*(x[[0, 2]] for x in batch)).losses()
        assert losses.shape == (2, 2)
        for slot, index in enumerate((0, 2)):
            same(array, slot, alone(index, 9)[0])
        array.append(make_models(GAN, 1)[0].double(), *optimizers, lr=0.01)
        assert runner.step(*data[0]).losses().shape == (3, 2)


def test_a_run_goes_on_from_a_checkpoint_with_the_same_bits(tmp_path):
    array, optimizers = made()
    data = batches(8)
    with StepRunner(array, optimizers, [judged, passed], threads=2, width=1) as runner:
        for batch in data[:5]:
            runner.step(*batch)
        held = [array.state_dict(), *(one.state_dict() for one in optimizers)]
        torch.save(held, tmp_path / "checkpoint.pt")
        for batch in data[5:]:
            expected = runner.step(*batch).losses()
    other, others = made()
    for one, state in zip((other, *others), torch.load(tmp_path / "checkpoint.pt"), strict=True):
        one.load_state_dict(state)
    with StepRunner(other, others, [judged, passed], threads=1, width=1) as runner:
        for batch in data[5:]:
            found = runner.step(*batch).losses()
    assert torch.equal(found, expected)
    assert all(map(torch.equal, array.state_dict().values(), other.state_dict().values()))


def test_only_the_optimizers_own_parameters_get_gradients():
    array, optimizers = made()
    seen = []

    def looked(part, array, real, noise):
        seen.append({name.split(".")[0] for name, p in array.named_parameters() if p.requires_grad})
        return getattr(array, part)(real, noise)

    losses = [functools.partial(looked, "judged"), functools.partial(looked, "passed")]
    with StepRunner(array, optimizers, losses, threads=1, width=3, capture=False) as runner:
        runner.step(*batches(1)[0])
    assert seen == [{"discriminator"}, {"generator"}]


def test_an_error_in_the_second_part_is_raised_and_the_next_step_trains_both():
    array, optimizers = made()
    broken = []

    def second(array, real, noise):
        if broken:
            raise ValueError("broken")
        return array.passed(real, noise)

    data = batches(4)
    with StepRunner(array, optimizers, [judged, second], threads=1, width=3, capture=False) as runner:
        runner.step(*data[0])
        broken.append(True)
        with pytest.raises(ValueError, match="broken"):
            runner.step(*data[1])
        broken.clear()
        before = [p.detach().clone() for p in array.parameters()]
        runner.step(*data[2])
    assert not any(map(torch.equal, before, array.parameters()))


def test_figures_stand_behind_the_losses_of_all_parts():
    array, optimizers = made()

    def counted(array, real, noise):
        return array.judged(real, noise), torch.stack([real.mean((1, 2)), noise.mean((1, 2))], 1)

    with StepRunner(array, optimizers, [counted, passed], threads=2, width=1, accumulate=2) as runner:
        real, noise = batches(1)[0]
        step = runner.step(real, noise)
        assert step.losses().shape == (B, 2)
        torch.testing.assert_close(step.figures()[:, 0], 2 * real.mean((1, 2)))  # of both halves
    runner = StepRunner(array, optimizers, [judged, passed], threads=1)
    with runner, pytest.raises(InvalidArgument, match="no figures"):
        runner.step(real, noise).figures()


def test_each_optimizer_has_schedules_hooks_and_a_scaler_of_its_own():
    array, optimizers = made(kind="SGD")
    called = []
    for number, one in enumerate(optimizers):
        one.register_step_post_hook(lambda optimizer, args, kwargs, number=number: called.append(number))
    scalers = [optim.GradScaler("cpu", init_scale=4.0, B=B), None]
    with StepRunner(array, optimizers, [judged, passed], threads=1, scaler=scalers) as runner:
        runner.step(*batches(1)[0])
        optimizers[0].param_groups[0]["lr"] = 0.0
        before = [getattr(array, part)[0].weight.clone() for part in RATES]
        runner.step(*batches(1)[0])
        after = [getattr(array, part)[0].weight for part in RATES]
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [True, False]
    assert called == [0, 1, 0, 1]


def test_refuses_lists_that_do_not_match():
    array, optimizers = made()
    with pytest.raises(InvalidArgument, match="2 optimizers and 1 loss functions"):
        StepRunner(array, optimizers, judged)
    with pytest.raises(InvalidArgument, match="0 optimizers and 0 loss functions"):
        StepRunner(array, [], [])
    with pytest.raises(InvalidArgument, match="its own scaler, got 1"):
        StepRunner(array, optimizers, [judged, passed], scaler=optim.GradScaler("cpu", B=B))
    with pytest.raises(InvalidArgument, match="got torch's Adam"):
        StepRunner(array, [optimizers[0], torch.optim.Adam(array.parameters())], [judged, passed])
    with StepRunner(array, optimizers, [judged, passed], threads=1) as runner:
        with pytest.raises(InvalidArgument, match="1 optimizers and 2 loss functions"):
            runner.refresh(optimizer=optimizers[0])
        runner.step(*batches(1)[0])
        runner.refresh(optimizer=optimizers)
        runner.step(*batches(1)[0])


def test_a_list_of_one_is_one():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(4, 1), 2))
    x, y = torch.randn(2, 8, 4), torch.randn(2, 8, 1)
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with StepRunner(array, [optimizer], [lambda array, x, y: nn.functional.mse_loss(array(x), y)], threads=1) as run:
        assert run.step(x, y).losses().shape == (2,)


def test_values_that_each_of_two_closures_of_one_code_sees_are_looked_at():
    array, optimizers = made(kind="SGD")
    weights = [[1.0], [1.0]]

    def weighted(method, weight):
        def loss(array, real, noise):
            return weight[0] * getattr(array, method)(real, noise)

        return loss

    losses = [weighted("judged", weights[0]), weighted("passed", weights[1])]
    with StepRunner(array, optimizers, losses, threads=1, width=3) as runner:
        for _ in range(4):
            runner.step(*batches(1)[0])
        before = [getattr(array, part)[0].weight.clone() for part in RATES]
        weights[1][0] = 0.0
        runner.step(*batches(1)[0])
        after = [getattr(array, part)[0].weight for part in RATES]
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [False, True]
