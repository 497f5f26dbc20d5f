# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import ops


def test_a_model_with_nothing_to_learn_is_nan_alone(device):
    logits = torch.randn(2, 3, 5, device=device, requires_grad=True)
    target = torch.tensor([[-100, -100, -100], [0, 1, -100]], device=device)
    loss = ops.cross_entropy(logits, target)
    assert torch.isnan(loss[0])
    torch.testing.assert_close(loss[1], torch.nn.functional.cross_entropy(logits[1], target[1]))
    loss[1].backward()
    assert torch.equal(logits.grad[0], torch.zeros(3, 5, device=device))
    assert torch.isfinite(logits.grad).all()


def test_large_logits(device):
    logits = torch.tensor([[[1e4, 0.0, -1e4], [-3e38, 3e38, 0.0]]], device=device, requires_grad=True)
    loss = ops.cross_entropy(logits, torch.tensor([[0, 1]], device=device))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_gradients_sum_to_zero_over_the_classes(device):
    logits = torch.randn(1, 4, 1000, device=device, requires_grad=True)
    ops.cross_entropy(logits, torch.zeros(1, 4, dtype=torch.int64, device=device), label_smoothing=0.2).backward()
    torch.testing.assert_close(logits.grad.sum(-1), torch.zeros(1, 4, device=device), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": torch.tensor([[0, 5]])}, r"target must be within \[0, 5\) or ignore_index -100, not 5"),
        ({"target": torch.tensor([[0, -1]])}, r"not -1 \(model 0, row 1\)"),
        ({"target": torch.tensor([[0.0, 1.0]])}, "target must be Long, not Float"),
        ({"target": torch.tensor([[0]])}, r"target must have shape \[1, 2\], not \[1, 1\]"),
        ({"logits": torch.ones(2, 5)}, r"logits must be \[B, R, C\], not \[2, 5\]"),
        ({"reduction": "average"}, "reduction must be 'none', 'mean' or 'sum', not 'average'"),
        ({"label_smoothing": 1.5}, r"label_smoothing must be within \[0, 1\], not 1.5"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"logits": torch.ones(1, 2, 5), "target": torch.tensor([[0, 1]])} | change
    with pytest.raises(RuntimeError, match=message):
        ops.cross_entropy(**arguments)
