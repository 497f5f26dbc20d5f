# SPDX-License-Identifier: MIT
"""Sparse tensors in models: buffers and attributes, which train as apart, and those that are refused."""

import copy
import io

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._fuse.state import sparse_once
from dnnsuite.errors import InvalidArgument
from helpers import make_models
from trained_models import check_trained

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
LAYOUTS = {"coo": torch.Tensor.to_sparse_coo, "csr": torch.Tensor.to_sparse_csr, "csc": torch.Tensor.to_sparse_csc}
PRODUCTS = {
    "mm": lambda a, h: torch.sparse.mm(a, h),
    "matmul": lambda a, h: a @ h,
    "addmm": lambda a, h: torch.sparse.addmm(h, a, h),
    "dense": lambda a, h: a.to_dense() @ h,
}


def adjacency(layout, scale=1.0):
    dense = torch.eye(6, dtype=torch.float64).roll(1, 0) + 0.5 * scale * torch.eye(6, dtype=torch.float64)
    return LAYOUTS[layout](dense)


class Graph(torch.nn.Module):
    def __init__(self, layout, product="mm", persistent=True):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
        self.register_buffer("adjacency", adjacency(layout), persistent=persistent)
        self.product = PRODUCTS[product]

    def forward(self, x):
        h = self.product(self.adjacency, self.first(x)).relu()
        return self.product(self.adjacency, self.second(h))


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_buffer_trains_as_apart(layout, product):
    check_trained(lambda: Graph(layout, product), (6, 4))


def test_a_sparse_buffer_that_is_not_saved():
    array = check_trained(lambda: Graph("csr", persistent=False), (6, 4), runner=False)
    assert "adjacency" not in array.state_dict()
    assert not array[1].state_dict().keys() - array.state_dict().keys()
    assert dict(array[1].named_buffers())["adjacency"].layout == torch.sparse_csr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_state_edits_and_copies_keep_a_sparse_buffer(layout):
    models = make_models(lambda: Graph(layout), 3, torch.float64)
    array, x = dnnsuite.fuse(models), torch.randn(3, 6, 4, dtype=torch.float64)
    expected, state = array(x), models[1].state_dict()
    assert array.state_dict().keys() == state.keys()
    assert array.model_state_dict(1)["adjacency"].to_dense().equal(state["adjacency"].to_dense())
    array[1].load_state_dict(array.model_state_dict(1))
    other = dnnsuite.fuse(make_models(lambda: Graph(layout), 3, torch.float64))
    other.load_state_dict(array.state_dict())
    assert torch.equal(other(x), expected)
    assert torch.equal(copy.deepcopy(array)(x), expected)
    array.append(models[0])
    array.drop([0, 1])
    torch.testing.assert_close(array(torch.stack([x[2], x[0]])), torch.stack([expected[2], expected[0]]))
    file = io.BytesIO()
    torch.save(array.float().state_dict(), file)
    file.seek(0)
    assert torch.load(file)["adjacency"].dtype == torch.float32


def test_a_state_without_the_sparse_buffer_or_with_another_one_is_refused():
    array = dnnsuite.fuse(make_models(lambda: Graph("coo"), 2, torch.float64))
    state = array.state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*adjacency"):
        array.load_state_dict({name: value for name, value in state.items() if name != "adjacency"})
    with pytest.raises(RuntimeError, match=r"adjacency is .* of layout torch\.sparse_csr"):
        array.load_state_dict(state | {"adjacency": adjacency("csr")})
    state["adjacency"] = adjacency("coo", 3.0)
    array.load_state_dict(state)
    assert array[1].adjacency.to_dense().equal(adjacency("coo", 3.0).to_dense())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_attribute_may_be_each_models_own(layout):
    scales = iter(range(100))

    class Own(Graph):
        def __init__(self):
            super().__init__(layout)
            del self.adjacency
            self.adjacency = adjacency(layout, next(scales) % 2 + 1)

    check_trained(Own, (6, 4))


def test_what_an_array_cannot_hold_is_refused():
    def model(scale, parameter=False):
        net = Graph("csr")
        value = adjacency("csr", scale)
        if parameter:
            del net.adjacency
            value = torch.nn.Parameter(value, requires_grad=False)
        net.adjacency = value
        return net

    with pytest.raises(
        InvalidArgument, match=r"adjacency is a buffer of layout torch\.sparse_csr, .*: hold each model"
    ):
        dnnsuite.fuse([model(1), model(2)])
    with pytest.raises(InvalidArgument, match=r"adjacency is a parameter of layout torch\.sparse_csr.*: make it a buf"):
        dnnsuite.fuse([model(1, parameter=True), model(1, parameter=True)])


class Given(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 3)

    def forward(self, x, a):
        return torch.sparse.mm(a, self.inner(x))


def test_one_that_all_models_have_is_copied_once():
    given = [adjacency("coo") for _ in range(2)]
    kept = sparse_once("adjacency", given)
    assert kept is not given[0]
    assert kept.to_dense().equal(given[1].to_dense())


def test_sparse_batches():
    models = make_models(Given, 2, torch.float64)
    array, x = dnnsuite.fuse(models), torch.randn(2, 6, 4, dtype=torch.float64)
    matrix = adjacency("coo")
    batch = dnnsuite.stack(matrix, B=2)
    expected = torch.stack([model(one, matrix) for model, one in zip(models, x, strict=True)])
    torch.testing.assert_close(array(x, batch), expected)
    with pytest.raises(InvalidArgument, match=r"tensor 0 has layout torch.sparse_csr.*: give x.to_sparse_coo\(\)"):
        dnnsuite.stack(adjacency("csr"), B=2)
    loss = lambda array, x, a: array(x, a).square().mean((1, 2))  # noqa: E731
    with (
        StepRunner(array, optim.SGD(array.parameters(), lr=0.1), loss, threads=1) as runner,
        pytest.raises(InvalidArgument, match=r"in a batch has layout torch\.sparse_coo.*: give its indices"),
    ):
        runner.step(x, batch)
