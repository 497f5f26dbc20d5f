# SPDX-License-Identifier: MIT
"""What a script of plain torch does to an array's losses: the gradient of each model is its own, or it is refused."""

import sys

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import backward, grad

import dnnsuite
from dnnsuite import errors, nn
from dnnsuite.ops import torch_means

B, N, C = 4, 8, 3


def _parts():
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, C)) for _ in range(B)]
    x, y, classes = torch.randn(N, 5), torch.randn(N, C), torch.randint(C, (N,))
    return models, x, y, classes


def _own_gradients(models, x, loss):
    for model in models:
        loss(model(x)).backward()
    return torch.stack([model[2].weight.grad for model in models])


REFUSED = {
    "a loss of torch": lambda o, y, c: F.mse_loss(o, y),
    "its module": lambda o, y, c: torch.nn.SmoothL1Loss()(o, y),
    "one that torch composes": lambda o, y, c: F.l1_loss(o, y),
    "huber": lambda o, y, c: torch.nn.HuberLoss()(o, y),
    "logits": lambda o, y, c: F.binary_cross_entropy_with_logits(o, y.sigmoid()),
    "rows of all models": lambda o, y, c: F.cross_entropy(o.flatten(0, 1), c.flatten()),
    "a view of rows": lambda o, y, c: F.cross_entropy(o.reshape(-1, C), c.reshape(-1)),
    "batchmean": lambda o, y, c: F.kl_div(o.log_softmax(2), y.softmax(2), reduction="batchmean"),
    "batchmean of logarithms, distilled": lambda o, y, c: (
        F.kl_div((o / 2).log_softmax(2), y.log_softmax(2), reduction="batchmean", log_target=True) * 4
    ),
    "probabilities": lambda o, y, c: F.cross_entropy(o, y.softmax(2)),
    "a formula": lambda o, y, c: ((o - y) ** 2).mean(),
    "dimensions": lambda o, y, c: (o - y).abs().mean((0, 1, 2)),
    "a mean of losses": lambda o, y, c: nn.functional.cross_entropy(o, c).mean(),
    "of dimension 0": lambda o, y, c: nn.functional.mse_loss(o, y).mean(0),
    "with a penalty": lambda o, y, c: nn.functional.mse_loss(o, y).mean() + 1e-3 * o.pow(2).sum(),
    "in two steps": lambda o, y, c: F.mse_loss(o, y, reduction="none").flatten(1).mean(1).mean(),
    "divided for accumulation": lambda o, y, c: F.mse_loss(o, y) / 2,
    "stacked": lambda o, y, c: torch.stack([F.mse_loss(o[i], y[i]) for i in range(B)]).mean(),
    "its root": lambda o, y, c: F.mse_loss(o, y).sqrt(),
    "one column": lambda o, y, c: F.mse_loss(o[:, :, 0], y[:, :, 0]),
}
ALLOWED = {
    "the sum of losses": lambda o, y, c: nn.functional.mse_loss(o, y).sum(),
    "a sum of torch's": lambda o, y, c: F.mse_loss(o, y, reduction="sum") / (N * C),
    "the mean times B": lambda o, y, c: nn.functional.mse_loss(o, y).mean() * B,
    "a loop over models": lambda o, y, c: sum(F.mse_loss(o[i], y[i]) for i in range(B)),
    "unbound": lambda o, y, c: sum(F.mse_loss(one, t) for one, t in zip(o.unbind(), y, strict=True)),
    "pieces": lambda o, y, c: sum(F.mse_loss(o[i : i + 1], y[i : i + 1]) for i in range(B)),
    "formula of each": lambda o, y, c: ((o - y) ** 2).mean((1, 2)).sum(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mean_over_models_is_refused_with_the_line_to_write(name):
    models, x, y, classes = _parts()
    array = dnnsuite.fuse(models)
    loss = REFUSED[name](array(dnnsuite.stack(x, B=B)), dnnsuite.stack(y, B=B), dnnsuite.stack(classes, B=B))
    with pytest.raises(errors.InvalidArgument, match=r"1/4 of its own gradient: write .*\.sum\(\)\.backward\(\)"):
        loss.backward()
    assert all(p.grad is None for p in array.parameters())


NAMED = {
    "l1_loss(outputs, targets).": lambda o, y, c: F.l1_loss(o, y),
    "mse_loss(outputs, targets).": lambda o, y, c: torch.nn.MSELoss()(o, y),
    "kl_div(outputs, targets).": lambda o, y, c: F.kl_div(o.log_softmax(2), y.softmax(2)),
    "kl_div(outputs, targets, reduction='batchmean').": REFUSED["batchmean"],
    "cross_entropy(outputs, targets).": REFUSED["rows of all models"],
    "nll_loss(outputs, targets).": lambda o, y, c: F.nll_loss(o.log_softmax(2).flatten(0, 1), c.flatten()),
    "hinge_embedding_loss(outputs, targets).": lambda o, y, c: F.hinge_embedding_loss(o, y.sign()),
    "multilabel_soft_margin_loss(outputs, targets).": lambda o, y, c: F.multilabel_soft_margin_loss(o, y.sigmoid()),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("call", NAMED)
def test_the_line_names_the_function_that_was_called(call):
    models, x, y, classes = _parts()
    array = dnnsuite.fuse(models)
    loss = NAMED[call](array(dnnsuite.stack(x, B=B)), dnnsuite.stack(y, B=B), dnnsuite.stack(classes, B=B))
    with pytest.raises(errors.InvalidArgument) as refused:
        loss.backward()
    assert f"write dnnsuite.nn.functional.{call}sum().backward(), which returns one loss per model" in str(
        refused.value
    )


@pytest.mark.parametrize("name", ALLOWED)
def test_other_ways_to_write_it_give_each_model_its_own_gradient(name):
    models, x, y, classes = _parts()
    array = dnnsuite.fuse(models)
    loss = ALLOWED[name](array(dnnsuite.stack(x, B=B)), dnnsuite.stack(y, B=B), dnnsuite.stack(classes, B=B))
    loss.backward()
    own = _own_gradients(models, x, lambda o: F.mse_loss(o, y))
    torch.testing.assert_close(array.state_dict(keep_vars=True)["2.weight"].grad, own)


@pytest.mark.parametrize("log_target", [False, True])
def test_a_divergence_of_each_model_is_no_mean_over_models(log_target):
    models, x, y, _ = _parts()
    targets = y.log_softmax(1) if log_target else y.softmax(1)

    def loss(outputs, targets, **how):
        return F.kl_div(outputs.log_softmax(-1), targets, log_target=log_target, **how)

    own = _own_gradients(models, x, lambda outputs: loss(outputs, targets, reduction="batchmean"))
    array = dnnsuite.fuse(models)
    (loss(array(dnnsuite.stack(x, B=B)), dnnsuite.stack(targets, B=B), reduction="sum") / N).backward()
    torch.testing.assert_close(array.state_dict(keep_vars=True)["2.weight"].grad, own)


def test_means_of_no_array_and_of_an_ensemble_are_nobodys_mistake():
    models, x, y, _ = _parts()
    array = dnnsuite.fuse(models)
    F.mse_loss(models[0](x), y).backward()
    head = torch.nn.Linear(C, 1)
    head(array(dnnsuite.stack(x, B=B)).mean(0)).mean().backward()
    F.mse_loss(array(dnnsuite.stack(x, B=B)).mean(0), y).backward()
    F.mse_loss(dnnsuite.fuse(models[:1])(dnnsuite.stack(x, B=1)), dnnsuite.stack(y, B=1)).backward()
    assert all(p.grad is not None for p in array.parameters())


def test_a_gradient_by_torch_autograd_grad_is_looked_at_too():
    models, x, y, _ = _parts()
    array = dnnsuite.fuse(models)
    with pytest.raises(errors.InvalidArgument, match="mse_loss"):
        torch.autograd.grad(F.mse_loss(array(dnnsuite.stack(x, B=B)), dnnsuite.stack(y, B=B)), [*array.parameters()])
    layer = nn.Linear(5, C, B=B)
    with pytest.raises(errors.InvalidArgument, match=r"losses\.sum"):
        nn.functional.mse_loss(layer(dnnsuite.stack(x, B=B)), dnnsuite.stack(y, B=B)).mean().backward()


def test_functions_imported_before_the_first_array_and_arguments_by_name_are_looked_at():
    models, x, y, _ = _parts()
    array = dnnsuite.fuse(models)
    weights = [*array.parameters()]

    def loss():
        return F.mse_loss(array(dnnsuite.stack(x, B=B)), dnnsuite.stack(y, B=B))

    torch_means.take_over()  # once more than the array did
    for asked in (
        lambda: grad(loss(), weights),
        lambda: backward(loss()),
        lambda: torch.autograd.grad(inputs=weights, outputs=loss()),
        lambda: torch.autograd.backward(grad_tensors=None, tensors=[loss()]),
        lambda: loss().reshape(1).backward(),
    ):
        with pytest.raises(errors.InvalidArgument, match="mse_loss"):
            asked()
    assert all(p.grad is None for p in weights)


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, classes: F.cross_entropy(outputs, dnnsuite.stack(classes, B=4)),
        lambda outputs, classes: torch.nn.CrossEntropyLoss()(outputs, classes),
        lambda outputs, classes: F.nll_loss(outputs.log_softmax(-1), dnnsuite.stack(classes, B=4)),
        lambda outputs, classes: F.binary_cross_entropy_with_logits(outputs, F.one_hot(classes, 3).float()),
        lambda outputs, classes: F.multilabel_margin_loss(outputs, F.one_hot(classes, 3)),
        lambda outputs, classes: F.cosine_embedding_loss(torch.randn(8, 3), outputs, torch.ones(8)),
        lambda outputs, classes: torch.nn.TripletMarginLoss()(torch.randn(8, 3), torch.randn(8, 3), outputs),
    ],
)
def test_an_error_about_an_arrays_outputs_is_followed_by_the_line_to_write(loss, capsys):
    array = dnnsuite.fuse([torch.nn.Linear(5, 3) for _ in range(4)])
    outputs = array(dnnsuite.stack(torch.randn(8, 5), B=4))
    with pytest.raises((RuntimeError, ValueError)) as caught:
        loss(outputs, torch.randint(3, (8,)))
    sys.excepthook(caught.type, caught.value, caught.tb)
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("dnnsuite: these are the outputs of 4 models, [4, 8, 3]: write dnnsuite.nn.functional.")


@pytest.mark.parametrize("wrong", [lambda losses: losses.backward(), lambda losses: losses.item(), float])
def test_one_number_asked_of_losses_is_followed_by_the_line_to_write(wrong, capsys):
    array = dnnsuite.fuse([torch.nn.Linear(5, 3) for _ in range(4)])
    plain = torch.nn.Linear(5, 3)
    losses = nn.functional.mse_loss(array(torch.randn(4, 8, 5)), torch.zeros(4, 8, 3))
    for given, said in ((losses, True), (plain(torch.randn(4, 5)).mean(1), False)):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            _asked(wrong, given)
        sys.excepthook(caught.type, caught.value, caught.tb.tb_next)
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith("dnnsuite: these are the losses of 4 models, one each: write losses.sum().bac") == said
    losses.sum().backward()
    assert array.weight.grad is not None


def _asked(wrong, losses):
    return wrong(losses)


def test_errors_of_plain_models_and_others_are_left_alone():
    dnnsuite.fuse([torch.nn.Linear(5, 3) for _ in range(4)])
    outputs = torch.nn.Linear(5, 3)(torch.randn(8, 5))
    for wrong in (lambda: F.cross_entropy(outputs, torch.zeros(7, dtype=torch.long)), lambda: outputs.view(7)):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            wrong()
        assert torch_means.line_to_write(caught.tb) is None
