# SPDX-License-Identifier: MIT
"""The benchmark of fine-tunings on one base: its ways train the same, and its tables have a row for each batch."""

import adapter_ways
import pytest

import adapters

TINY = adapter_ways.Size(1, 4)
pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


@pytest.mark.parametrize("way", ["loop", "peft, mixed batch", "dnnsuite"])
def test_each_way_trains(monkeypatch, way):
    monkeypatch.setattr(adapter_ways, "LAYERS", 1)
    workload = adapter_ways.Lora(adapter_ways.gpt2, 64, ["c_attn"])
    assert workload.ways(2, TINY, 1)[way]()(2) is None


@pytest.mark.parametrize(("name", "way"), [("lengths", "loop"), ("lengths", "dnnsuite")])
def test_batches_of_their_own_sizes_train(monkeypatch, name, way):
    monkeypatch.setattr(adapter_ways, "LAYERS", 1)
    workload = adapter_ways.WORKLOADS[f"llama-gqa-256, {name}"].small()
    assert workload.ways(2, adapter_ways.Size(2, 4), 1)[way]()(2) is None


def test_quick_has_few_rows_and_all_has_every_batch():
    quick = adapters.cases(adapters.parsed(["--quick"]))
    assert {name for name, _ in quick} < set(adapter_ways.WORKLOADS)
    everything = adapters.cases(adapters.parsed([]))
    assert len(everything) == 2 * 2 + 8 * 6 + 2 * 2
    assert adapters.cases(adapters.parsed(["--models", "vit", "--quick"])) == [("vit", adapter_ways.Size(8, 32))]


def test_a_row_has_a_cell_for_each_way():
    seconds = {"loop": [2.0, 2.0, 2.0], "dnnsuite": [1.0, 1.0, 1.0]}
    row = adapters.row("vit", TINY, seconds)
    assert row.startswith("| vit | 1 x 4 | 2000.00 | - | - | - | 2.00 [")
