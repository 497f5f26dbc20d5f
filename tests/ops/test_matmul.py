# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops import _matmul

SHAPES = [
    ((3, 4), (4, 5)),
    ((2, 7, 3, 4), (2, 7, 4, 5)),
    ((7, 3, 4), (2, 7, 4, 5)),
    ((1, 3, 4), (6, 4, 5)),
    ((4,), (4, 5)),
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
]


@pytest.mark.parametrize("large", [0, _matmul.LARGE])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_is_torchs_for_each_model(shapes, large, monkeypatch):
    monkeypatch.setattr(_matmul, "LARGE", large)
    a, b = (torch.randn(3, *shape) for shape in shapes)
    got = ops.matmul(a, b)
    for model in range(3):
        torch.testing.assert_close(got[model], torch.matmul(a[model], b[model]))
        assert torch.equal(ops.matmul(a[model : model + 1], b[model : model + 1])[0], got[model])


def test_views_are_taken_as_they_are():
    """Transposed, with gaps, and shared by all models."""
    a, b = torch.randn(2, 9, 40).transpose(1, 2)[:, ::2], torch.randn(9, 33).expand(2, 9, 33)
    torch.testing.assert_close(ops.matmul(a, b), torch.matmul(a, b))
    torch.testing.assert_close(ops.matmul(b.mT, a.mT[:, :, ::3]), torch.matmul(b.mT, a.mT[:, :, ::3]))


def test_other_dtypes():
    a, b = torch.randn(2, 3, 4).bfloat16(), torch.randn(2, 4, 5).bfloat16()
    assert ops.matmul(a, b).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("a", "b", "message"), [((2, 3, 4), (3, 4, 5), "same B"), ((2, 3, 4), (2, 5, 6), "have no product: 4 and 5")]
)
def test_bad_arguments(a, b, message):
    with pytest.raises(InvalidArgument, match=message):
        ops.matmul(torch.ones(a), torch.ones(b))


@pytest.mark.parametrize("large", [0, _matmul.LARGE])
@pytest.mark.parametrize("shared", [False, True])
def test_a_bias_and_gradients_of_gradients(large, shared, monkeypatch):
    monkeypatch.setattr(_matmul, "LARGE", large)
    a, b, bias = torch.randn(3, 6, 4), torch.randn(3, 4, 5), torch.randn(3, 5)
    b = b[:1].expand(3, 4, 5) if shared else b
    a, b, bias = (x.double().requires_grad_(not (shared and x is b)) for x in (a, b, bias))
    torch.testing.assert_close(ops.matmul(a, b, bias), torch.baddbmm(bias.unsqueeze(1), a, b))
    assert torch.autograd.gradcheck(ops.matmul, (a, b, bias))
    assert torch.autograd.gradgradcheck(ops.matmul, (a, b, bias))
