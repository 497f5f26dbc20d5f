# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import ops


def test_padding_row_gets_no_gradient(device):
    weight = torch.randn(2, 6, 3, device=device, requires_grad=True)
    indices = torch.tensor([[0, 2, 2], [2, 5, 2]], device=device)
    y = ops.embedding(weight, indices, 2)
    assert torch.equal(y[0, 1], weight[0, 2])  # read as any other
    y.sum().backward()
    assert torch.equal(weight.grad[:, 2], torch.zeros(2, 3, device=device))
    assert torch.equal(weight.grad[0, 0], torch.ones(3, device=device))
    assert torch.equal(weight.grad[1, 0], torch.zeros(3, device=device))


def test_repeated_indices_add_up_in_order(device):
    """Many equal indices: the sum's order is that of the indices, so it is the same every time."""
    weight = torch.randn(1, 3, 5, device=device, requires_grad=True)
    indices = torch.randint(3, (1, 5000), device=device)
    grad = torch.randn(1, 5000, 5, device=device)
    first, second = (torch.autograd.grad(ops.embedding(weight, indices), weight, grad)[0] for _ in range(2))
    assert torch.equal(first, second)
    expected = torch.zeros(3, 5, dtype=torch.float64, device=device).index_add_(0, indices[0], grad[0].double())
    torch.testing.assert_close(first[0].double(), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (torch.tensor([[0, 1], [1, 6]]), r"indices must be within \[0, 6\), not 6 \(model 1, position 1\)"),
        (torch.tensor([[0, -1], [1, 2]]), r"not -1 \(model 0, position 1\)"),
        (torch.tensor([[7, 1]]).expand(2, 2), r"not 7 \(model 0, position 0\)"),
        (torch.tensor([[0, 1]]), r"indices \[1, 2\] are of another number of models"),
        (torch.tensor([[0, 1], [1, 2]]).int(), "indices must be Long, not Int"),
    ],
)
def test_bad_indices(indices, message):
    with pytest.raises(RuntimeError, match=message):
        ops.embedding(torch.randn(2, 6, 3), indices)


@pytest.mark.gpu
def test_wrong_index_on_a_gpu_is_nan():
    y = ops.embedding(torch.randn(1, 6, 3, device="cuda"), torch.tensor([[0, 6]], device="cuda"))
    assert torch.isfinite(y[0, 0]).all()
    assert torch.isnan(y[0, 1]).all()


def test_larger_than_the_caches_is_the_same():
    """Written past them."""
    weight, indices = torch.randn(2, 10, 256), torch.randint(10, (2, 9000))
    found = ops.embedding(weight, indices)
    assert torch.equal(found[1], weight[1][indices[1]])


@pytest.mark.parametrize("words", [1, 7, 700, 9000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_a_vocabulary_in_parts(words, dtype):
    """As many parts as the gradient needs to stay in the caches; each row is of one of them."""
    weight = torch.randn(2, words, 160, dtype=dtype, requires_grad=True)
    indices = torch.randint(words, (2, 500))
    grad = torch.randn(2, 500, 160, dtype=dtype)
    found, other = (_gradient(threads, weight, indices, words // 2, grad) for threads in (1, 2))
    assert torch.equal(found, other)
    for model in range(2):
        wanted = torch.zeros(words, 160, dtype=torch.float64)
        wanted.index_add_(0, indices[model], grad[model].double())[words // 2] = 0
        torch.testing.assert_close(found[model].double(), wanted, rtol=1e-5, atol=1e-4)


def _gradient(threads, weight, indices, padding_idx, grad):
    torch.set_num_threads(threads)
    return torch.autograd.grad(ops.embedding(weight, indices, padding_idx), weight, grad)[0]


def test_a_gradient_larger_than_the_caches_of_few_rows():
    """Its zeros are written past them."""
    weight, indices = torch.zeros(2, 30_000, 160, requires_grad=True), torch.randint(30_000, (2, 50))
    indices[:, 7] = indices[:, 3]
    grad = torch.randn(2, 50, 160)
    torch.full((2, 30_000, 160), 5.0)  # memory that the gradient may get
    ops.embedding(weight, indices).backward(grad)
    for own, rows, g in zip(weight.grad, indices, grad, strict=True):
        torch.testing.assert_close(own, torch.zeros_like(own).index_add(0, rows, g))
