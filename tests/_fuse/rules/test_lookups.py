# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite.nn.sharing import spread
from function_cases import check, run

ROWS, COLUMNS = torch.tensor([[0, 4, -1], [3, 3, 2]]), torch.tensor([[1, 0, 2], [2, 2, -3]])
PICKED = {
    "rows": lambda x, i, j: x[i] * 2,
    "rows, cut": lambda x, i, j: x[i, 1:] + x[i, ..., 1:],
    "numbers": lambda x, i, j: x[i, j],
    "rows in pairs": lambda x, i, j: x[i.view(-1, 1), j[:2]] + x[i[:, None], :2],
    "a number in each row": lambda x, i, j: x[torch.arange(3), j] + x[torch.arange(3), j, None],
    "one row": lambda x, i, j: x[i[0]] + x[i[0], j[1]],
}


@pytest.mark.parametrize("name", PICKED)
def test_each_model_looks_up_its_own_places(name):
    check(PICKED[name], torch.randn(2, 5, 3), ROWS, COLUMNS)


@pytest.mark.parametrize("name", [*PICKED, "columns", "columns and rows"])
def test_places_that_all_models_share(name):
    """They are one index: a batch's rows are looked up once, whatever their place in the index."""
    more = {
        "columns": lambda x, i, j: x[:, j] * x[..., j],
        "columns and rows": lambda x, i, j: x.view(5, 3, 1).expand(5, 3, 5)[:, j, i],
    }
    function = {**PICKED, **more}[name]
    x, i, j = torch.randn(2, 5, 3), spread(ROWS[:1], 2), spread(COLUMNS[:1], 2)
    output, report = run(function, x, i, j)
    assert not report.mapped
    for model in range(2):
        torch.testing.assert_close(output[model], function(x[model], ROWS[0], COLUMNS[0]))


def test_a_table_that_is_no_models_own():
    table = torch.randn(7, 3)
    check(lambda i: table[i], ROWS)


def test_each_model_writes_to_its_own_places():
    def written(x, i, j):
        y, z = torch.zeros_like(x), x.clone()
        y[torch.arange(3), j] = 1.0
        y[i[:1]] = x[0]
        z[i[:2], 1:] += torch.ones(2)
        z[i[2]] = 5.0
        return y + z

    check(written, torch.randn(2, 5, 3), ROWS, COLUMNS)
    x, i, j = torch.randn(2, 5, 3), spread(ROWS[:1], 2), spread(COLUMNS[:1], 2)
    output, report = run(written, x, i, j)
    assert not report.mapped
    for model in range(2):
        torch.testing.assert_close(output[model], written(x[model], ROWS[0], COLUMNS[0]))


def test_columns_of_each_model_are_mapped():
    check(lambda x, j: x[:, j], torch.randn(2, 5, 3), COLUMNS, mapped=True)


def test_sums_into_shared_places():
    """As a graph's edges have them: messages are added to nodes."""
    i = torch.tensor([0, 4, 4, 1])
    for function in (
        lambda x, y, i: x.index_add(0, i, y) + x.index_add(dim=0, index=i, source=y, alpha=2),
        lambda x, y, i: torch.zeros_like(x).index_add(0, i, y),
        lambda x, y, i: x.index_copy(0, i[1:3], y[:1].expand(2, 3)) + x.index_fill(1, i[:1], 7.0),
        lambda x, y, i: x.index_select(0, i) * y + x.clone().index_add_(0, i, y)[i],
    ):
        x, y = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
        output, report = run(function, x, y, spread(i[None], 2))
        assert not report.mapped
        for model in range(2):
            torch.testing.assert_close(output[model], function(x[model], y[model], i))


def test_sums_of_what_all_models_share():
    y, i = torch.randn(4, 3), torch.tensor([0, 4, 4, 1])
    check(lambda x: x.index_add(0, i, y), torch.randn(2, 5, 3))


def test_places_of_each_model_for_sums_are_mapped():
    check(lambda x, y, i: x.index_add(0, i, y), torch.randn(2, 5, 3), torch.randn(2, 3, 3), ROWS.abs(), mapped=True)


def test_a_place_out_of_range_is_an_error():
    with pytest.raises(IndexError, match="out of bounds"):
        run(lambda x, i: x[i], torch.randn(2, 5, 3), torch.tensor([[0], [5]]))


class _Graph(torch.nn.Module):
    """Sums messages over edges, and picks the logit of an action in each row."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 4)

    def forward(self, x, edges, action):
        h = self.inner(x)
        h = h + torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])
        return h[torch.arange(5), action]


def test_a_graph_without_a_map():
    torch.manual_seed(0)
    models = [_Graph() for _ in range(3)]
    x, edges, action = torch.randn(5, 3), torch.randint(5, (2, 9)), torch.randint(4, (5,))
    array = dnnsuite.fuse(models)
    output = array(*(dnnsuite.stack(part, B=3) for part in (x, edges, action)))
    assert "mapped" not in str(array.coverage())
    output.square().sum().backward()
    for place, model in enumerate(models):
        expected = model(x, edges, action)
        torch.testing.assert_close(output[place], expected)
        expected.square().sum().backward()
        torch.testing.assert_close(array.inner.weight.grad[place], model.inner.weight.grad)
