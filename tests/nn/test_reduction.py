# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn._reduction import LONG, legacy, model_sum, reduce


@pytest.mark.parametrize("elements", [1, 7, 1000, LONG, LONG + 4096, 100_003])
def test_a_sum_is_of_one_model_alone(elements):
    """To the bit, with one thread or two."""
    x = torch.randn(3, elements)
    together = model_sum(x)
    torch.testing.assert_close(together, x.double().sum(1).float(), rtol=1e-4, atol=1e-3)
    torch.set_num_threads(2)
    for model in range(3):
        assert torch.equal(model_sum(x[model : model + 1])[0], together[model])
    torch.set_num_threads(1)


def test_no_models_and_no_elements():
    assert model_sum(torch.zeros(0, 3, 4)).shape == (0,)
    assert torch.equal(model_sum(torch.zeros(2, 0, 4)), torch.zeros(2))
    assert reduce(torch.zeros(2, 0), "mean").isnan().all()
    assert torch.equal(model_sum(torch.arange(3.0)), torch.arange(3.0))


def test_old_words():
    with pytest.warns(UserWarning, match="deprecated"):
        assert legacy(None, False, "mean") == "none"


def test_a_long_sum_has_its_gradients():
    x = torch.randn(2, 40000, dtype=torch.float64, requires_grad=True)
    factor = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad((model_sum(x.square()) * factor).sum(), x, create_graph=True)
    torch.testing.assert_close(grad, 2 * x * factor[:, None])
    torch.testing.assert_close(torch.autograd.grad(grad.sum(), factor)[0], 2 * x.sum(1))
