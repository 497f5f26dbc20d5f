# SPDX-License-Identifier: MIT
"""Where torch's losses take one number, an array's take one for each model."""

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import errors, nn

B, N, C = 3, 6, 4
ours = nn.functional


def _tensors():
    torch.manual_seed(0)
    return torch.randn(B, N, C, requires_grad=True), torch.randn(B, N, C), torch.randint(C, (B, N))


CASES = {
    "cross_entropy": ("label_smoothing", [0.0, 0.1, 0.3], lambda f, x, y, c, **o: f(x, c, **o)),
    "cross_entropy of weights": ("label_smoothing", [0.0, 0.1, 0.3], lambda f, x, y, c, **o: f(x, c, weight=W, **o)),
    "smooth_l1_loss": ("beta", [0.1, 1.0, 2.0], lambda f, x, y, c, **o: f(x, y, **o)),
    "huber_loss": ("delta", [0.1, 1.0, 2.0], lambda f, x, y, c, **o: f(x, y, **o)),
    "poisson_nll_loss": ("eps", [1e-8, 0.1, 1.0], lambda f, x, y, c, **o: f(x.abs(), y.abs(), log_input=False, **o)),
    "gaussian_nll_loss": ("eps", [1e-6, 0.5, 1.0], lambda f, x, y, c, **o: f(x, y, y.abs() * 0.1, **o)),
    "hinge_embedding_loss": ("margin", [0.5, 1.0, 2.0], lambda f, x, y, c, **o: f(x, y.sign(), **o)),
    "margin_ranking_loss": ("margin", [0.0, 1, 2.0], lambda f, x, y, c, **o: f(x, x * 2, y.sign(), **o)),
    "cosine_embedding_loss": ("margin", [0.0, 0.1, 0.4], lambda f, x, y, c, **o: f(x, y, (c * 2 - 3).sign(), **o)),
    "triplet_margin_loss": ("margin", [0.5, 1.0, 2.0], lambda f, x, y, c, **o: f(x, y, y * 2, **o)),
    "multi_margin_loss": ("margin", [0.5, 1.0, 2.0], lambda f, x, y, c, **o: f(x, c, **o)),
}
W = torch.tensor([1.0, 2.0, 0.5, 1.0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("as_given", [list, tuple, torch.tensor])
def test_each_model_has_its_own_number(name, as_given):
    option, numbers, call = CASES[name]
    x, y, classes = _tensors()
    function = name.split()[0]
    losses = call(getattr(ours, function), x, y, classes, **{option: as_given(numbers)})
    (gradient,) = torch.autograd.grad(losses.sum(), x)
    for index, number in enumerate(numbers):
        own = x[index].detach().requires_grad_()
        alone = call(getattr(F, function), own, y[index], classes[index], **{option: number})
        torch.testing.assert_close(losses[index], alone)
        torch.testing.assert_close(gradient[index], torch.autograd.grad(alone, own)[0])


def test_weights_may_be_lists_with_one_for_each_model():
    x, y, classes = _tensors()
    weights = [W, W * 2, torch.ones(C)]
    losses = ours.cross_entropy(x, classes, weight=weights)
    each = [F.cross_entropy(x[i], classes[i], weight=w) for i, w in enumerate(weights)]
    torch.testing.assert_close(losses, torch.stack(each))
    losses = ours.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=[1.0, 2.0, 3.0])
    each = [
        F.binary_cross_entropy_with_logits(x[i], y[i].sigmoid(), pos_weight=torch.tensor(i + 1.0)) for i in range(B)
    ]
    torch.testing.assert_close(losses, torch.stack(each))


@pytest.mark.parametrize("numbers", [[0.1, 0.2], [0.1] * 4, "abc", [1, 2, None]])
def test_another_number_of_numbers_is_refused(numbers):
    x, y, _ = _tensors()
    with pytest.raises(errors.InvalidArgument, match="delta"):
        ours.huber_loss(x, y, delta=numbers)


class Smoothed(torch.nn.Module):
    """A script's way to search for a smoothing: the loss reads it from the model."""

    def __init__(self, smoothing, delta):
        super().__init__()
        self.body, self.smoothing, self.delta = torch.nn.Linear(C, C), smoothing, delta

    def forward(self, x, classes):
        out = self.body(x)
        loss = F.cross_entropy(out, classes, label_smoothing=self.smoothing)
        return loss + F.huber_loss(out, torch.zeros_like(out), delta=self.delta)


def test_code_that_reads_such_a_number_from_its_model_stays_fused():
    x, _, classes = _tensors()
    models = [Smoothed(s, d) for s, d in ((0.0, 0.1), (0.1, 0.5), (0.2, 2.0))]
    array = dnnsuite.fuse(models)
    losses = array(x, classes)
    torch.testing.assert_close(losses, torch.stack([m(x[i], classes[i]) for i, m in enumerate(models)]))
    assert {cover.how for cover in array.coverage()} == {"fused"}


def test_a_forgotten_stack_names_the_line_to_write():
    x, y, classes = _tensors()
    for loss, target in ((ours.cross_entropy, classes[0]), (ours.mse_loss, y[0]), (ours.huber_loss, y[0])):
        with pytest.raises(errors.InvalidArgument, match=r"dnnsuite\.stack\(.*B=3\)"):
            loss(x, target)
    for loss in (ours.binary_cross_entropy, ours.binary_cross_entropy_with_logits):
        with pytest.raises(errors.InvalidArgument, match=r"dnnsuite\.stack\(target, B=3\)"):
            loss(x.sigmoid(), y[0].sigmoid())
