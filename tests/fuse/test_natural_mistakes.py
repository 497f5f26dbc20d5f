# SPDX-License-Identifier: MIT
"""What a newcomer writes by mistake is refused with the line to write instead, and leaves all as it was."""

import numpy
import pytest
import torch

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models

X, Y = torch.randn(6, 4), torch.arange(6) % 3
B = 2


def array():
    return dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(torch.nn.Linear(4, 3)), B))


def stacked(x=X, y=Y):
    return dnnsuite.stack(x, B=B), dnnsuite.stack(y, B=B)


def loss(models, x, y):
    return nn.functional.cross_entropy(models(x), y)


def step(loss_function, *batch, optimizer=optim.SGD):
    models = array()
    with dnnsuite.StepRunner(models, optimizer(models.parameters(), lr=0.1), loss_function, threads=1) as runner:
        runner.step(*batch).losses()


class Smoothed(torch.nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.body, self.smoothing = torch.nn.Linear(4, 3), smoothing

    def forward(self, x, y=None):
        out = self.body(x)
        return out if y is None else torch.nn.functional.cross_entropy(out, y, label_smoothing=self.smoothing)


@pytest.mark.parametrize(
    ("mistake", "way_out"),
    [
        (lambda: array()(numpy.zeros((B, 6, 4))), "torch.as_tensor"),
        (lambda: nn.functional.cross_entropy(array()(stacked()[0]), Y.numpy()), "torch.as_tensor"),
        (lambda: nn.functional.cross_entropy(array()(stacked()[0]), stacked(y=Y.int())[1]), r"target\.long\(\)"),
        (lambda: nn.functional.cross_entropy(array()(stacked()[0]), stacked(y=Y.float())[1]), r"target\.long\(\)"),
        (lambda: step(loss, X.numpy(), Y.numpy()), "torch.as_tensor"),
        (lambda: step(lambda x, y: x.sum(), *stacked()), r"loss_function\(array, x, y\)"),
        (lambda: step(lambda m, x, y: torch.nn.functional.cross_entropy(m(x), y), *stacked()), "nn.functional"),
        (lambda: step(optim.SGD, *stacked(), optimizer=lambda p, lr: loss), r"StepRunner\(array, .*, loss_function\)"),
        (lambda: dnnsuite.stack(X.numpy(), B=B), "torch.as_tensor"),
        (lambda: dnnsuite.stack(B, X), "a Tensor for B"),
        (lambda: dnnsuite.stack(X, B=2.0), "got 2.0 for B"),
        (lambda: dnnsuite.stack((X, X, Y), B=B), r"dnnsuite\.stack\(y, B=4\)"),
        (lambda: dnnsuite.fuse({"a": array()[0]}), "its values"),
        (lambda: array().load_state_dict(array()[0].state_dict()), r"array\.replace\(i, model\)"),
        (lambda: array().replace(0, array()[0].state_dict()), "give a torch module"),
        (
            lambda: step(torch.nn.functional.cross_entropy, *stacked()),
            r"lambda array, x, y: .*cross_entropy\(array\(x\)",
        ),
        (lambda: dnnsuite.unfuse([array()[0]]), "array that dnnsuite.fuse returned"),
        (lambda: array().append(array()[0], lr=0.1), r"array\.append\(model, optimizer, lr=1e-3\)"),
    ],
)
def test_the_line_to_write_is_named(mistake, way_out):
    with pytest.raises(InvalidArgument, match=way_out):
        mistake()


@pytest.mark.parametrize(
    "schedule",
    [
        lambda opt: optim.lr_scheduler.CosineAnnealingLR(opt, T_max=9),
        lambda opt: optim.lr_scheduler.OneCycleLR(opt, max_lr=1.0, total_steps=9),
        lambda opt: optim.lr_scheduler.ReduceLROnPlateau(opt),
    ],
)
def test_a_schedule_that_did_not_follow_an_edit_says_so(schedule):
    models = array()
    opt = optim.SGD(models.parameters(), lr=[0.1, 0.2])
    scheduler = schedule(opt)
    models.drop(0, opt)
    before = opt.param_groups[0]["lr"].tolist()
    with pytest.raises(
        InvalidArgument, match=r"2 models and its optimizer 1: pass both .*array\.drop\(1, optimizer, sch"
    ):
        scheduler.step(torch.zeros(1)) if hasattr(scheduler, "patience") else scheduler.step()
    assert opt.param_groups[0]["lr"].tolist() == before


def test_a_number_of_each_model_belongs_in_its_forward():
    models = [Smoothed(0.0), Smoothed(0.3)]
    fused = dnnsuite.fuse(models)
    with pytest.raises(
        AttributeError, match=r"smoothing of Smoothed differs .*loss function of a StepRunner then returns"
    ):
        fused.smoothing  # noqa: B018
    opt = optim.SGD(fused.parameters(), lr=[0.0, 0.0])
    with dnnsuite.StepRunner(fused, opt, lambda m, x, y: m(x, y), threads=1) as runner:
        losses = [runner.step(*stacked()).losses() for _ in range(4)]
        assert runner.mode == "captured"
    wanted = torch.stack([model(X, Y).detach() for model in models])
    assert all(torch.allclose(one, wanted, atol=1e-6) for one in losses)


def test_models_that_are_not_in_a_list_are_refused_with_the_line_to_write():
    one, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    with pytest.raises(InvalidArgument, match=r"fuse\(\[a, b\]\)"):
        dnnsuite.fuse(one, other)


def test_a_model_is_named_by_a_number_of_torch_or_numpy():
    array = dnnsuite.fuse([torch.nn.Linear(2, 2) for _ in range(5)])
    losses = torch.tensor([3.0, 2.0, 0.0, 1.0, 4.0])
    assert torch.equal(array[losses.argmin()].weight, array[numpy.int64(2)].weight)
    array.drop(losses.argmin())
    array.drop(torch.tensor([0, 3]))
    assert array.B == 2
    for wrong in (torch.tensor(0.5), torch.tensor([0, 1]), numpy.float64(1)):
        with pytest.raises(InvalidArgument, match="there is no model"):
            array[wrong]
    with pytest.raises(InvalidArgument, match=r"write \[array\[i\] for i in"):
        array[:1]


def test_a_runner_whose_arguments_are_in_another_order_says_the_order():
    models = array()
    with pytest.raises(InvalidArgument, match=r"\(array, optimizer, loss_function\).*got a SGD first"):
        dnnsuite.StepRunner(optim.SGD(models.parameters(), lr=0.1), models, loss)


def test_a_batch_of_as_many_samples_as_models_that_was_not_stacked_is_told():
    models = array()
    with pytest.warns(UserWarning, match=r"dnnsuite\.stack\(x, B=2\)"):
        nn.functional.cross_entropy(models(X[:B]), Y[:B])


def test_a_wrong_name_of_the_package_has_a_near_one():
    with pytest.raises(AttributeError, match="did you mean 'fuse'"):
        dnnsuite.fues  # noqa: B018
