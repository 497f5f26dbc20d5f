# SPDX-License-Identifier: MIT
"""Captured steps leave the same bits as steps run as written."""

import pytest
import torch

import dnnsuite
from captured_steps import STEPS, adadelta, adam, adamw, batches, check, cross_entropy, mlp, sgd, train
from dnnsuite import StepRunner, nn, optim
from helpers import make_models


def tied():
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6), torch.nn.GELU())
    model[2].weight = model[0].weight
    return model


def encoder():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), layer, torch.nn.Linear(8, 4))


class Branches(torch.nn.Module):
    """No rule: mapped over the models, with views, scalars and constants."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        y = self.inner(x.view(x.size(0), -1)) * 2.0 + torch.arange(4)
        a, b = y.chunk(2, dim=-1)
        return torch.cat([a.sigmoid(), b * torch.tensor(0.5)], dim=-1) * self.scale


def clipped(array, B):
    return optim.Adam(array.parameters(), lr=0.1, max_grad_norm=[0.1 * (i + 1) for i in range(B)], on_nan="freeze")


def frozen(array, B):
    optimizer = optim.RMSprop(array.parameters(), lr=0.01)
    optimizer.freeze(1)
    return optimizer


@pytest.mark.parametrize("make_optimizer", [adam, sgd, adadelta, adamw, clipped, frozen])
@pytest.mark.parametrize("make", [mlp, tied, Branches])
def test_same_bits(make, make_optimizer):
    check(make, make_optimizer)


def test_same_bits_for_attention():
    check(
        encoder,
        adam,
        data=batches(2, 6, (3, 4, 6)),
        B=2,
        loss=lambda array, x, y: nn.functional.cross_entropy(array(x).transpose(2, 3), y),
    )


@pytest.mark.parametrize(("width", "threads"), [(1, 1), (1, 2), (2, 2)])
def test_same_bits_in_shards_and_threads(width, threads):
    check(mlp, adam, width=width, threads=threads)


def test_the_trial_of_widths_leaves_room_for_the_capture():
    _, mode = train(mlp, adam, True, B=2, width=None, data=batches(2, 20))
    assert mode == "captured"


def test_a_flag_that_python_reads_is_looked_at_again():
    def run(capture):
        flag = torch.zeros(())

        def loss(array, x, y):
            return cross_entropy(array, x, y) * (3.0 if flag.item() else 1.0)

        def between(index, array, optimizer, runner):
            if index == 5:
                flag.fill_(1)

        return train(mlp, adam, capture, loss=loss, between=between, data=batches(3, 12))

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(map(torch.equal, eager, captured))


def test_a_schedule_between_the_steps():
    def run(capture):
        schedules = []

        def between(index, array, optimizer, runner):
            if not schedules:
                schedules.append(optim.lr_scheduler.StepLR(optimizer, 2, [0.5, 0.1, 0.9]))
            schedules[0].step()
            optimizer.param_groups[0]["weight_decay"] = torch.full((3,), 0.01 * index, dtype=torch.float64)

        return train(mlp, adam, capture, between=between)

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(map(torch.equal, eager, captured))


def test_frozen_layers():
    check(mlp, adam, prepare=lambda array: array.get_submodule("0").requires_grad_(False))


def test_freezing_and_eval_between_the_steps():
    def between(index, array, optimizer, runner):
        if index == 4:
            array.get_submodule("0").requires_grad_(False)
            array.get_submodule("2").eval()

    check(mlp, adam, between=between, expected="captured", data=batches(3, 12))


def test_accumulation():
    check(mlp, adam, accumulate=2, data=[(x[:, :4], y[:, :4]) for x, y in batches(3, STEPS)])


def test_accumulation_is_the_step_of_the_whole_batch():
    def without_dropout(array):
        array.get_submodule("2").eval()

    data = [(x[:, :4], y[:, :4]) for x, y in batches(3, 1)]
    whole, _ = train(mlp, sgd, True, prepare=without_dropout, data=data)
    parts, _ = train(mlp, sgd, True, prepare=without_dropout, data=data, accumulate=2)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


def test_two_layouts_of_batch_are_both_captured():
    data = [batch for pair in zip(batches(3, 6), batches(3, 6, (2, 6)), strict=True) for batch in pair]
    check(mlp, adam, data=data)


def test_a_shared_batch_and_other_values():
    def loss(array, x, y, factor, more):
        return cross_entropy(array, x, y) * factor + more["add"].sum((1, 2))

    x, y = batches(1, 1)[0]
    shared = dnnsuite.stack(x[0], B=3), dnnsuite.stack(y[0], B=3)
    data = [(*shared, 2.0, {"add": torch.full((3, 1, 1), float(i))}) for i in range(STEPS)]
    check(mlp, adam, data=data, loss=loss)


def test_a_value_that_the_loss_function_closes_over_may_change():
    def run(capture):
        factor = 1.0

        def loss(array, x, y):
            return cross_entropy(array, x, y) * factor

        def between(index, array, optimizer, runner):
            nonlocal factor
            factor = 1.0 if index < 5 else 3.0

        return train(mlp, adam, capture, loss=loss, between=between, data=batches(3, 12))

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(map(torch.equal, eager, captured))


def test_an_error_names_the_operator():
    array = dnnsuite.fuse(make_models(mlp, 2))
    runner = StepRunner(array, adam(array, 2), cross_entropy, threads=1, width=2)
    data = batches(2, 6)
    for batch in data[:5]:
        runner.step(*batch)
    assert runner.mode == "captured"
    with pytest.raises(RuntimeError, match=r"dnnsuite\.cross_entropy in a captured step: .*\b9\b"):
        runner.step(data[5][0], torch.full_like(data[5][1], 9))
    runner.close()


@pytest.mark.parametrize("width", [1, 3])
def test_a_scaler_skips_the_step_of_the_model_that_overflows(width):
    def run(capture):
        scaler = optim.GradScaler("cpu", init_scale=[4.0, 8.0, 16.0], growth_interval=3, B=3)
        data = batches(3, STEPS)
        data[5][0][1] = float("inf")
        values, mode = train(mlp, adam, capture, data=data, scaler=scaler, width=width)
        return [*values, scaler.get_scale()], mode

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(eager, captured, strict=True))
    assert captured[-1].tolist() == [16.0, 8.0, 64.0]
    assert all(values[[0, 2]].isfinite().all() for values in captured[:STEPS])


def test_an_optimizers_state_may_be_loaded_between_two_steps():
    def run(capture):
        def between(index, array, optimizer, runner):
            if index == 4:
                runner.synchronize()
                optimizer.load_state_dict(optimizer.state_dict())

        return train(mlp, adam, capture, between=between, data=batches(3, 10))

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(map(torch.equal, eager, captured))
