# SPDX-License-Identifier: MIT
"""The memory profiler with TBD's interface and columns."""

import csv

import pytest
import torch
from torch import nn

from dnnsuite._files import OutputError
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler import memory


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))


def train(model, optimizer):
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()  # gradients are known all the same


def test_each_iteration_is_a_line_in_tbds_columns(model, tmp_path, capsys):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    path = tmp_path / "new" / "memory.csv"
    with memory.Profiler(model, optimizer, print_period=2, csv=path) as profiler:
        for _ in range(2):
            for _ in range(2):
                train(model, optimizer)
                profiler.record_stats()
            profiler.epoch_end()
    rows = list(csv.DictReader(path.read_text().splitlines()))
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert list(rows[0]) == [
        "epoch", "iteration", "peak_cached", "current_cached", "total_feature_map_usage", "total_weight_usage", *names,
        "total_layer_weight_gradient_usage", *(f"{name}_grad" for name in names), "intermediate_gradients",
        "optimizer_state", "workspace_and_other",
    ]  # fmt: skip
    assert [(row["epoch"], row["iteration"]) for row in rows] == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    parameters = 4 * (200 + 20 + 100 + 5)
    for row in rows:
        values = {key: round(float(value) * 1e6) for key, value in row.items()}
        assert values["total_feature_map_usage"] == 4 * (4 * 10 + 4 * 20)
        assert values["total_weight_usage"] == values["total_layer_weight_gradient_usage"] == parameters
        assert [values[name] for name in names] == [800, 80, 400, 20]
        assert [values[f"{name}_grad"] for name in names] == [800, 80, 400, 20]
        assert values["optimizer_state"] == parameters
        # of the outputs of both linear layers and of ReLU; that of a sum is one number, expanded
        assert values["intermediate_gradients"] == 4 * (4 * 20 + 4 * 20 + 1)
        assert values["peak_cached"] >= values["current_cached"] > 0
    assert capsys.readouterr().out.count("memory of iteration 2 of epoch") == 2


def test_hooks_are_taken_out(model):
    profiler = memory.Profiler(model, print_period=0)
    profiler.close()
    profiler.close()
    model(torch.randn(4, 10)).sum().backward()
    assert profiler.record_stats()["feature_maps"] == 0
    assert profiler.last["gradients"] == 0


def test_per_model(model):
    with memory.Profiler(model, print_period=0, models=4) as profiler:
        last = profiler.record_stats()
    assert last["per_model"]["weights"] == last["weights"] / 4


def test_what_cannot_be(model, tmp_path):
    with pytest.raises(InvalidArgument, match=r"print_period.*-1"):
        memory.Profiler(model, print_period=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file/x\.csv"):
        memory.Profiler(model, csv=tmp_path / "file" / "x.csv")
