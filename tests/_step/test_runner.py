# SPDX-License-Identifier: MIT
"""A StepRunner trains as the loop by hand, whatever its threads, width and way to run."""

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models
from small_steps import batches, by_hand, classifier, loss, make, squares


@pytest.mark.parametrize("width", [1, 2, 5, None])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_trains_as_the_loop_by_hand(threads, width):
    expected, losses = by_hand(5, 9)
    array, optimizer = make(5)
    with StepRunner(array, optimizer, loss, threads=threads, width=width) as runner:
        steps = [runner.step(*batch) for batch in batches(5, 9)]
        for step, values in zip(steps, losses, strict=True):
            torch.testing.assert_close(step.losses(), values, rtol=1e-4, atol=1e-6)
    for mine, other in zip(array.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)


def test_a_model_trains_the_same_in_any_company():
    """Alone, or third of four: the same losses to the bit when the shards are of one model."""
    array, optimizer = make(4)
    alone = dnnsuite.fuse(make_models(classifier, 3)[2:], seeds=[2])
    own = optim.Adam(alone.parameters(), lr=0.1 / 3)
    with StepRunner(array, optimizer, loss, threads=2, width=1) as many, StepRunner(alone, own, loss, threads=1) as one:
        for x, y in batches(4, 5):
            assert torch.equal(many.step(x, y).losses()[2], one.step(x[2:3], y[2:3]).losses()[0])


def test_state_is_the_arrays_own():
    array, optimizer = make(3)
    before = [p.detach().clone() for p in array.parameters()]
    with StepRunner(array, optimizer, loss, threads=2, width=1) as runner:
        runner.step(*batches(3, 1)[0])
    assert all(not torch.equal(old, new) for old, new in zip(before, array.parameters(), strict=True))
    assert all(optimizer.state[p]["step"].tolist() == [1.0, 1.0, 1.0] for p in array.parameters())
    assert all(state["exp_avg"].any() for state in optimizer.state.values())
    assert array.get_submodule("2").rng[:, 1].tolist() == [1, 1, 1]


def test_a_schedule_between_steps_under_way_changes_later_steps_only():
    array, optimizer = make(3)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.0)
    with StepRunner(array, optimizer, loss, threads=2, width=1, queue_depth=4) as runner:
        first, second = batches(3, 2)
        runner.step(*first)
        schedule.step()  # the learning rate is zero from here on
        runner.synchronize()
        after_one = [p.detach().clone() for p in array.parameters()]
        runner.step(*second)
    expected, _ = by_hand(3, 1)
    for mine, then, other in zip(array.parameters(), after_one, expected.parameters(), strict=True):
        assert torch.equal(mine, then)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def equal_state(array, other):
    return all(torch.equal(a, b) for a, b in zip(array.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("refreshed", [False, True])
def test_after_a_bad_batch_training_goes_on_as_if_it_had_not_been(threads, capture, refreshed):
    """Bad by its number of features, which fails in the first layer, and by its number of labels, which fails last."""
    with (
        StepRunner(*make(3), loss, threads=threads, width=1, capture=capture) as runner,
        StepRunner(*make(3), loss, threads=1, width=1, capture=False) as other,
    ):
        for number, (x, y) in enumerate(batches(3, 12)):
            if number in (0, 3, 8):
                for bad in ((x[..., :5], y), (x, y[:, :5])):
                    with pytest.raises((RuntimeError, ValueError)):
                        runner.step(*bad).losses()
                if refreshed:
                    runner.refresh()
                nn.seed(runner._array, range(3)), nn.seed(other._array, range(3))  # a failing step has drawn
            assert torch.equal(runner.step(x, y).losses(), other.step(x, y).losses())
        runner.synchronize()
        assert equal_state(runner._array, other._array)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_backward_pass_that_fails_leaves_no_gradient_for_the_next(threads):
    class Breaking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ArithmeticError("in the backward pass")

    def sometimes(array, x, y, bad):
        x = Breaking.apply(x.requires_grad_(True)) if bad else x
        return nn.functional.cross_entropy(array(x), y)

    x, y = batches(3, 1)[0]
    with (
        StepRunner(*make(3), sometimes, threads=threads, width=1, capture=False) as runner,
        StepRunner(*make(3), sometimes, threads=1, width=1, capture=False) as other,
    ):
        with pytest.raises(ArithmeticError):
            runner.step(x.clone(), y, True).losses()
        for array in (runner._array, other._array):
            nn.seed(array, range(3))
        assert torch.equal(runner.step(x, y, False).losses(), other.step(x, y, False).losses())
        runner.synchronize()
        assert equal_state(runner._array, other._array)


def test_leaves_torchs_threads_as_they_are():
    before = torch.get_num_threads()
    array, optimizer = make(3)
    with StepRunner(array, optimizer, loss, threads=2) as runner:
        runner.step(*batches(3, 1)[0])
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("flush", [True, False])
def test_denormal_numbers_are_zero_in_a_step_unless_asked_for(threads, flush):
    models = make_models(lambda: torch.nn.Linear(1, 1, bias=False), 2)
    for model in models:
        torch.nn.init.constant_(model.weight, 1e-10)
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.0)
    x = torch.full((2, 1, 1), 1e-30)
    with StepRunner(  # a width of its own: one that is tried out may begin to be captured anew in any step
        array, optimizer, lambda a, x: a(x).sum((1, 2)), width=1, threads=threads, flush_denormals=flush
    ) as runner:
        values = [runner.step(x).losses().tolist() for _ in range(6)]
    assert runner.mode == "captured"
    expected = [0.0, 0.0] if flush else pytest.approx([1e-40] * 2, rel=1e-3)
    assert all(value == expected for value in values)
    assert (x * 1e-10).count_nonzero() == 2  # the caller's own arithmetic


@pytest.mark.parametrize("capture", [True, False])
def test_a_runner_settles_and_stays_settled(capture, tmp_path, monkeypatch):
    """Once what its first steps try out is chosen, every further step runs in that way."""
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path))  # nothing is known yet
    (array, optimizer), (batch,) = make(3), batches(3, 1)
    with StepRunner(array, optimizer, loss, threads=1, capture=capture) as runner:
        assert not runner.settled
        while not runner.settled:
            runner.step(*batch)
        chosen = runner.mode, runner.width
        for _ in range(3):
            runner.step(*batch)
            assert runner.settled
            assert (runner.mode, runner.width) == chosen


def test_a_shared_batch():
    array, optimizer = make(3)
    x, y = batches(1, 1)[0]
    with StepRunner(array, optimizer, loss, threads=2) as runner:
        assert runner.step(dnnsuite.stack(x[0], B=3), dnnsuite.stack(y[0], B=3)).losses().shape == (3,)


def test_one_overflow_skips_the_step_of_all_with_one_scaler(device):
    if device == "cpu":
        with pytest.raises(InvalidArgument, match=r"optim\.GradScaler"):
            StepRunner(*make(2), loss, scaler=torch.amp.GradScaler("cpu"))
        return
    array, _ = make(2)
    array.to(device)
    optimizer = optim.Adam(array.parameters(), lr=0.1)
    runner = StepRunner(array, optimizer, lambda a, x, y: loss(a, x, y) * 1e38, scaler=torch.amp.GradScaler(device))
    before = array.get_submodule("0").weight.detach().clone()
    runner.step(*(t.to(device) for t in batches(2, 1)[0]))
    assert torch.equal(array.get_submodule("0").weight, before)


@pytest.mark.parametrize("threads", [1, 2])
def test_hooks_after_the_optimizers_step_are_called(threads):
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 2), 2))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    seen = []

    def clamp(optimizer, args, kwargs):
        seen.append(array.weight.abs().max().item())
        with torch.no_grad():
            array.weight.clamp_(-0.2, 0.2)

    with StepRunner(array, optimizer, squares, threads=threads, width=1) as runner:
        handle = optimizer.register_step_post_hook(clamp)
        everywhere = register_optimizer_step_post_hook(lambda *args: seen.append(-1))
        for _ in range(6):
            runner.step(torch.randn(2, 4, 3))
            runner.synchronize()
            assert array.weight.abs().max() <= 0.2
        everywhere.remove()
        handle.remove()
        runner.step(torch.randn(2, 4, 3)).losses()
        assert runner.mode == "captured"
    assert len(seen) == 12
    assert seen[1::2] == [-1] * 6


@pytest.mark.parametrize("threads", [1, 2])
def test_models_may_leave_and_join_between_two_steps(threads):
    """What is left trains as it would have without the others."""
    array, optimizer = make(4)
    rest = dnnsuite.fuse([array[1], array[3]], seeds=[1, 3])
    own = optim.Adam(rest.parameters(), lr=[0.1 / 2, 0.1 / 4])
    with (
        StepRunner(array, optimizer, loss, threads=threads, width=1) as runner,
        StepRunner(rest, own, loss, threads=1, width=1) as other,
    ):
        for step, (x, y) in enumerate(batches(4, 8)):
            if step == 4:
                runner.synchronize()
                array.drop([0, 2])
                with pytest.raises(InvalidArgument, match=r"2 models and its optimizer 4"):
                    runner.step(x[1::2], y[1::2])
                optimizer = optim.Adam(array.parameters(), lr=[0.1 / 2, 0.1 / 4])
                other.refresh(optimizer=optim.Adam(rest.parameters(), lr=[0.1 / 2, 0.1 / 4]))
                runner.refresh(optimizer=optimizer)
            left = (x, y) if step < 4 else (x[1::2], y[1::2])
            mine, its = runner.step(*left).losses(), other.step(x[1::2], y[1::2]).losses()
            assert torch.equal(mine[1::2] if step < 4 else mine, its)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_of_its_own_size_for_each_model(threads):
    sizes = [5, 2, 7]
    array, optimizer = make(3)
    alone = [dnnsuite.fuse([model], seeds=[index]) for index, model in enumerate(dnnsuite.unfuse(array))]
    runners = [
        StepRunner(model, optim.Adam(model.parameters(), lr=0.1 / (i + 1)), loss, threads=1)
        for i, model in enumerate(alone)
    ]
    with StepRunner(array, optimizer, loss, threads=threads, width=3) as runner:
        for x, y in batches(3, 6):
            ragged = [x[i, :n] for i, n in enumerate(sizes)], [y[i, :n] for i, n in enumerate(sizes)]
            losses = runner.step(*ragged).losses()
            own = [
                r.step(x[i : i + 1, :n], y[i : i + 1, :n]).losses()
                for i, (r, n) in enumerate(zip(runners, sizes, strict=True))
            ]
            assert torch.equal(losses, torch.cat(own))
        assert runner.mode == "captured"
        assert runner.step(*batches(3, 1)[0]).losses().shape == (3,)  # and one size for all again
    for r in runners:
        r.close()


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_autocast_around_a_step_is_that_in_it(threads, capture):
    """Whichever thread takes the step; and a step outside of it is in 32 bits again."""
    seen = []

    def watched(array, x, y):
        seen.append(array(x).dtype)
        return loss(array, x, y)

    array, optimizer = make(2)
    x, y = next(iter(batches(2, 1)))
    with StepRunner(array, optimizer, watched, threads=threads, width=1, capture=capture) as runner:
        for dtype in (torch.bfloat16, torch.float32):
            with torch.autocast("cpu", torch.bfloat16, dtype == torch.bfloat16):
                for _ in range(5):
                    runner.step(x, y).losses()
            assert set(seen) == {dtype}
            seen.clear()


def loss_and_figures(array, x, y):
    scores = array(x)
    losses = nn.functional.cross_entropy(scores, y)
    return losses, torch.stack([(scores.argmax(-1) == y).sum(1), losses.detach()], 1)


@pytest.mark.parametrize(("threads", "width", "accumulate"), [(1, 3, 1), (2, 1, 1), (2, 2, 2)])
def test_figures_beside_the_losses_change_no_step(threads, width, accumulate):
    (plain, opt), (other, opt2) = make(3), make(3)
    made = {"threads": threads, "width": width, "accumulate": accumulate}
    with StepRunner(plain, opt, loss, **made) as runner, StepRunner(other, opt2, loss_and_figures, **made) as both:
        for batch in batches(3, 6):
            one, two = runner.step(*batch), both.step(*batch)
            assert torch.equal(one.losses(), two.losses())
            right, again = two.figures().unbind(1)
            assert torch.equal(right, right.round())
            torch.testing.assert_close(again, accumulate * two.losses())
        assert both.mode == "captured"
        with pytest.raises(InvalidArgument, match="gives no figures"):
            one.figures()
    for ours, theirs in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_settings_of_layers_that_change_between_steps_are_followed():
    """A captured step would go on with the old ones."""

    def normed():
        return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4))

    batch = batches(2, 1)[0]
    states = []
    for capture in (False, True):
        array = dnnsuite.fuse(make_models(normed, 2))
        optimizer = optim.SGD(array.parameters(), lr=0.1)
        norm = array.get_submodule("1")
        with StepRunner(array, optimizer, loss, threads=1, width=1, capture=capture) as runner:
            for step in range(10):
                if step == 4:
                    assert not capture or runner.mode == "captured"
                    norm.momentum, norm.eps = [0.9, None], 0.5
                runner.step(*batch).losses()
        states.append(array.state_dict())
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_sees_its_batch_as_it_was_when_it_was_asked_for(threads, capture):
    """Buffers are filled anew while steps are under way: tensors, memory of NumPy's, shared ones, hyper-parameters."""

    def run(threads, capture, wait):
        array, optimizer = make(3)
        x, labels = torch.zeros(3, 8, 6), np.zeros(8, np.int64)
        y = dnnsuite.stack(torch.from_numpy(labels), 3)
        generator, found = torch.Generator().manual_seed(0), []
        with StepRunner(array, optimizer, loss, threads=threads, width=1, capture=capture) as runner:
            for k in range(12):
                x.normal_(generator=generator)
                labels[:] = k % 4
                found.append(runner.step(x, y))
                if wait:
                    runner.synchronize()
                optimizer.param_groups[0]["lr"].mul_(0.9)
                x.fill_(float("nan"))
            return torch.stack([step.losses() for step in found])

    assert torch.equal(run(threads, capture, False), run(1, False, True))


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_forward_writes_into_its_input_is_seen_in_the_callers_batch(threads, capture):
    class Clamped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(6, 4)

        def forward(self, x):
            return self.inner(x.clamp_(-0.5, 0.5))

    array = dnnsuite.fuse(make_models(Clamped, 3))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with StepRunner(array, optimizer, loss, threads=threads, width=2, capture=capture) as runner:
        for x, y in batches(3, 6):
            expected = x.clamp(-0.5, 0.5)
            runner.step(x, y)
            assert torch.equal(x, expected)
