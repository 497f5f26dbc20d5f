# SPDX-License-Identifier: MIT
"""Arguments, batches, losses, hooks and optimizers that a StepRunner refuses: each leaves all as it was."""

import copy
import pickle

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models
from small_steps import batches, classifier, loss, make, squares


@pytest.mark.parametrize("argument", [{"threads": 0}, {"width": -1}, {"queue_depth": 1.5}])
def test_refuses_bad_arguments(argument):
    with pytest.raises(InvalidArgument, match=next(iter(argument))):
        StepRunner(*make(2), loss, **argument)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_refresh_that_is_refused_changes_nothing(threads):
    array, optimizer = make(3)
    with StepRunner(array, optimizer, loss, threads=threads, width=1) as runner:
        for wrong in ({"optimizer": make(2)[1]}, {"array": make(2)[0]}, {"optimizer": make(3)[1]}):
            with pytest.raises(InvalidArgument):
                runner.refresh(**wrong)
            assert runner.step(*batches(3, 1)[0]).losses().shape == (3,)


def test_refuses_hooks_that_would_see_nothing():
    array = dnnsuite.fuse(make_models(classifier, 2))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with StepRunner(array, optimizer, squares, threads=1) as runner:
        handle = optimizer.register_step_pre_hook(lambda *args: None)
        with pytest.raises(InvalidArgument, match="before each step of the optimizer"):
            runner.step(torch.randn(2, 4, 6))
        handle.remove()
        runner.step(torch.randn(2, 4, 6))
        handle = next(array.children()).register_full_backward_pre_hook(lambda *args: None)
        with pytest.raises(InvalidArgument, match=r"^0 has a backward hook"):
            runner.step(torch.randn(2, 4, 6))
        handle.remove()
        runner.step(torch.randn(2, 4, 6))


def test_refuses_gradient_hooks_that_it_would_not_call():
    array, optimizer = make(2)
    with StepRunner(array, optimizer, loss) as runner:
        runner.step(*batches(2, 1)[0]).losses()
        handle = next(array.parameters()).register_hook(lambda grad: grad * 0)
        with pytest.raises(InvalidArgument, match="gradient hook"):
            runner.step(*batches(2, 1)[0])
        handle.remove()
        runner.step(*batches(2, 1)[0]).losses()
    next(array.parameters()).register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(InvalidArgument, match="gradient hook"):
        StepRunner(array, optimizer, loss)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda array, x: array(x),
        lambda array, x: array.get_submodule("4")(array.get_submodule("0")(x)),
        lambda array, x: x.sum() * sum(p.sum() for p in array.parameters()),
    ],
)
def test_refuses_a_loss_of_the_whole_array(wrong, width):
    array, optimizer = make(2)
    with (
        StepRunner(array, optimizer, lambda part, x: wrong(array, x), threads=1, width=width) as runner,
        pytest.raises(InvalidArgument, match="computes with the whole array"),
    ):
        runner.step(torch.randn(2, 8, 6))


def test_refuses_a_layer_of_the_whole_array_that_was_taken_out_before():
    array, optimizer = make(2)
    head = array.get_submodule("4")

    def wrong(part, x):
        return head(part.get_submodule("0")(x)).square().mean((1, 2))

    for width, message in ((2, "or a layer of it"), (1, "layers of its first argument")):
        with (
            StepRunner(array, optimizer, wrong, threads=1, width=width) as runner,
            pytest.raises(InvalidArgument, match=message),
        ):
            runner.step(torch.randn(2, 8, 6))


class Clamping(optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        self.param_groups[0]["params"][0].data.clamp_(-0.1, 0.1)


def test_refuses_a_step_that_it_would_not_call():
    array, optimizer = make(2)
    with pytest.raises(InvalidArgument, match="Clamping has its own step"):
        StepRunner(array, Clamping(array.parameters(), lr=0.1), loss)
    optim.lr_scheduler.StepLR(optimizer, 3)  # torch's schedulers wrap the step, too
    with StepRunner(array, optimizer, loss, threads=1) as runner:
        runner.step(*batches(2, 1)[0])
        optimizer.step = lambda closure=None: None
        with pytest.raises(InvalidArgument, match="step was replaced"):
            runner.step(*batches(2, 1)[0])
        del optimizer.step
        runner.step(*batches(2, 1)[0])


def test_refuses_a_batch_of_another_width():
    with StepRunner(*make(2), loss) as runner, pytest.raises(InvalidArgument, match=r"\[2, \.\.\.\].*\[3, 8, 6\]"):
        runner.step(*batches(3, 1)[0])
    with pytest.raises(InvalidArgument, match="closed"):
        runner.step(*batches(2, 1)[0])


def test_refuses_a_list_that_is_not_one_tensor_per_model():
    with StepRunner(*make(2), loss) as runner:
        with pytest.raises(InvalidArgument, match=r"one tensor per model, 2, .* got 3 values"):
            runner.step([torch.zeros(2, 6)] * 3, [torch.zeros(2)] * 3)
        with pytest.raises(InvalidArgument, match=r"A DataLoader yields lists: pass `runner.step\(\*batch\)"):
            runner.step([torch.zeros(8, 6), torch.zeros(8, dtype=torch.long)])


def test_refuses_a_batch_that_does_not_come_apart_in_equal_parts():
    runner = StepRunner(*make(2), loss, accumulate=3, width=2)
    with pytest.raises(InvalidArgument, match=r"accumulate=3 .* \[2, 8, 6\]"):
        runner.step(*batches(2, 1)[0]).losses()
    runner.close()


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (lambda losses: losses.sum(), r"returned \[\] for 2 models.*one loss per model, \[2\]"),
        (lambda losses: losses.unsqueeze(1).expand(2, 8), r"returned \[2, 8\].*flatten\(1\)\.mean\(1\)"),
        (lambda losses: (losses, None), "returned a tuple"),
        (lambda losses: (losses, losses), r"figures \[2\] beside the losses of 2 models: they must be \[2, n\]"),
    ],
)
def test_a_loss_that_is_not_one_per_model(bad, told):
    array, optimizer = make(2)
    before = [p.detach().clone() for p in array.parameters()]
    runner = StepRunner(array, optimizer, lambda *given: bad(loss(*given)), threads=1, width=2)
    with runner, pytest.raises(InvalidArgument, match=told):
        runner.step(*batches(2, 1)[0])
    assert all(map(torch.equal, array.parameters(), before))


class ChangesDtype(torch.nn.Module):
    """As routers of mixtures of experts do: `self.classifier.to(...)` in the forward."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)

    def forward(self, x):
        return self.inner.to(torch.float32)(x.float())


def test_a_parameter_that_the_forward_puts_elsewhere():
    array = dnnsuite.fuse([ChangesDtype().double() for _ in range(2)])
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with StepRunner(array, optimizer, loss, threads=1, width=1) as runner:
        for _ in range(2):
            with pytest.raises(InvalidArgument, match=r"inner\.weight \(float64, now float32\)"):
                runner.step(*batches(2, 1)[0]).losses()


@pytest.mark.parametrize(
    ("other", "told_of"),
    [
        (torch.optim.SGD, "dnnsuite.optim.SGD(array"),
        (torch.optim.LBFGS, "dnnsuite.optim.LBFGS(array.parameters(), ...)"),
        (torch.optim.SparseAdam, "got a SparseAdam: write StepRunner(array"),
        (None, "got a NoneType"),
    ],
)
def test_another_optimizer_is_refused_with_the_way_out(other, told_of):
    array, _ = make(2)
    optimizer = other and other(array.parameters(), lr=0.1)
    with pytest.raises(InvalidArgument, match=r"StepRunner trains with optimizers of dnnsuite\.optim") as told:
        StepRunner(array, optimizer, loss)
    assert told_of in str(told.value)
    assert other is not torch.optim.LBFGS or "by hand" not in str(told.value)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_runner_is_not_copied(copied):
    array, optimizer = make(2)
    with StepRunner(array, optimizer, loss, threads=2) as runner:
        first = runner.step(*batches(2, 1)[0]).losses().clone()
        with pytest.raises(InvalidArgument, match=r"StepRunner cannot be copied or saved: .* make a new one"):
            copied(runner)
        other, steps = copy.deepcopy((array, optimizer))
        assert runner.step(*batches(2, 1)[0]).losses().shape == first.shape
    with StepRunner(other, steps, loss, threads=1) as again:
        assert again.step(*batches(2, 1)[0]).losses().shape == first.shape
