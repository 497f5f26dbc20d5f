# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument


def test_takes_its_width_from_the_input():
    logits, target = torch.randn(4, 6, 5), torch.randint(5, (4, 6))
    whole = nn.functional.cross_entropy(logits, target)
    assert torch.equal(nn.functional.cross_entropy(logits[1:3], target[1:3]), whole[1:3])


@pytest.mark.parametrize(
    ("logits", "target", "message"), [((6,), (6,), "of B models"), ((4, 6, 5), (4, 5), r"\[4, 6\]")]
)
def test_refuses_shapes(logits, target, message):
    with pytest.raises(InvalidArgument, match=message):
        nn.functional.cross_entropy(torch.randn(logits), torch.zeros(target, dtype=torch.long))


X, CLASSES = torch.randn(2, 5, 4), torch.randint(4, (2, 5))
LOSSES = {
    "cross_entropy": (X, CLASSES),
    "nll_loss": (X.log_softmax(-1), CLASSES),
    "binary_cross_entropy": (X.sigmoid(), X.sin().abs()),
    "binary_cross_entropy_with_logits": (X, X.sin().abs()),
    "multi_margin_loss": (X, CLASSES),
    "multilabel_soft_margin_loss": (X, (X > 0).float()),
    "l1_loss": (X, X.sin()),
    "mse_loss": (X, X.sin()),
    "huber_loss": (X, X.sin()),
    "kl_div": (X.log_softmax(-1), X.softmax(-1)),
    "gaussian_nll_loss": (X, X.sin(), X.exp()),
    "soft_margin_loss": (X, X.sign()),
    "cosine_embedding_loss": (X, X.flip(0), X[..., 0].sign()),
    "triplet_margin_loss": (X, X.flip(0), X.sin()),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_smaller_batch_is_a_weight_of_zero(name, reduction, kind):
    """Models with 3 and 5 samples: what each computes alone, whatever fills up the first."""
    if reduction == "batchmean" and name != "kl_div":
        return
    inputs = [x.clone() for x in LOSSES[name]]
    for x in inputs:
        x[0, 3:] = float("nan") if x.is_floating_point() and name != "binary_cross_entropy" else 0
    inputs[0].requires_grad_()
    present = torch.tensor([[1, 1, 1, 0, 0], [1] * 5]).to(kind)
    got = getattr(nn.functional, name)(*inputs, reduction=reduction, sample_weight=present)
    for model, samples in enumerate((3, 5)):
        alone = getattr(torch.nn.functional, name)(*(x[model, :samples] for x in inputs), reduction=reduction)
        torch.testing.assert_close(got[model], alone)


@pytest.mark.parametrize("name", ["cross_entropy", "mse_loss", "multi_margin_loss"])
def test_samples_that_count_differently(name):
    weight = torch.rand(2, 5)
    rows = getattr(nn.functional, name)(*LOSSES[name], reduction="none")
    expected = (rows.flatten(2).mean(2) if rows.dim() > 2 else rows) * weight
    got = getattr(nn.functional, name)(*LOSSES[name], sample_weight=weight)
    torch.testing.assert_close(got, expected.sum(1) / weight.sum(1))
    none = getattr(nn.functional, name)(*LOSSES[name], sample_weight=weight, reduction="none")
    assert none.shape == rows.shape


def test_weights_of_elements_and_samples():
    a, b, weight = torch.rand(2, 5, 4), torch.rand(2, 5, 4), torch.rand(2, 5, 4)
    keep = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    got = nn.functional.mse_loss(a, b, weight=weight, sample_weight=keep)
    expected = ((a - b)[0, :3] ** 2 * weight[0, :3]).sum() / weight[0, :3].sum()
    torch.testing.assert_close(got[0], expected)


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_binary_weights_of_each_model(shape):
    x, y, weight, pos = torch.randn(2, 4, 3), torch.rand(2, 4, 3), torch.rand(2, *shape[1:]), torch.rand(2, 3)
    weight = weight if weight.dim() > 1 else torch.rand(2, 4, 3)
    got = nn.functional.binary_cross_entropy_with_logits(x, y, weight, pos_weight=pos)
    other = nn.functional.binary_cross_entropy(x.sigmoid(), y, weight)
    for i in range(2):
        f = torch.nn.functional
        torch.testing.assert_close(got[i], f.binary_cross_entropy_with_logits(x[i], y[i], weight[i], pos_weight=pos[i]))
        torch.testing.assert_close(other[i], f.binary_cross_entropy(x[i].sigmoid(), y[i], weight[i]))


def test_one_sample_without_a_dimension():
    x, y = torch.randn(3, 5), torch.randint(5, (3,))
    for reduction in ("mean", "none"):
        got = nn.functional.cross_entropy(x, y, reduction=reduction)
        torch.testing.assert_close(got, torch.nn.functional.cross_entropy(x, y, reduction="none"))


def test_refuses_a_weight_of_another_shape():
    with pytest.raises(InvalidArgument, match=r"sample_weight \[2, 4\]"):
        nn.functional.mse_loss(X, X, sample_weight=torch.ones(2, 4))
    with pytest.raises(InvalidArgument, match=r"weight must be \[2, 4\] or \[4\], not \[3\]"):
        nn.functional.cross_entropy(X, CLASSES, torch.ones(3))
