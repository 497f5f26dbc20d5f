# SPDX-License-Identifier: MIT
"""The timeline of operators of steps whose work is known."""

import threading

import pytest
import torch
from torch.autograd import profiler as legacy

from dnnsuite import ops as _operators  # noqa: F401  (registers them)
from dnnsuite.errors import Unavailable
from dnnsuite.profiler import Instrument
from dnnsuite.profiler.cpu import OpsInstrument
from dnnsuite.profiler.cpu._ops import told_of_recorders
from dnnsuite.timing import now_ns


def recorded(function, steps=1):
    instrument = OpsInstrument()
    instrument.open()
    instrument.start()
    for i in range(steps):
        function()
        instrument.step(i)
    instrument.stop()
    instrument.close()
    return instrument.tables()["ops"], instrument


@pytest.fixture(scope="module")
def training():
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 64)

    def step():
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    step()
    begin = now_ns()
    table, instrument = recorded(step, steps=2)
    return table, instrument, begin, now_ns()


def test_flops_are_those_of_the_model(training):
    table = training[0]
    forward = 2 * 16 * (64 * 32 + 32 * 8)
    backward = forward + 2 * 16 * 32 * 8  # the first layer's input needs no gradient
    flops = table.groupby(["step", "phase"], observed=True)["flops"].sum()
    for step in (0, 1):
        assert flops[step, "forward"] == forward
        assert flops[step, "backward"] == backward
        assert flops[step, "optimizer"] == 0


def test_times_are_ours_and_self_times_add_up(training):
    table, _, begin, end = training
    assert (table["t0_ns"] >= begin - 1_000_000).all()
    assert (table["t1_ns"] <= end + 1_000_000).all()
    outermost = table[table["depth"] == 0]
    assert table["self_ns"].sum() == (outermost["t1_ns"] - outermost["t0_ns"]).sum()


def test_bytes_are_inputs_and_outputs(training):
    table = training[0]
    first = table[(table["name"] == "aten::addmm") & (table["shapes"].astype(str).str.contains("16x64"))].iloc[0]
    assert first["bytes"] == 4 * (32 + 16 * 64 + 64 * 32 + 16 * 32)
    assert first["class"] == "gemm"
    assert first["dtype"] == "float"


def test_columns_are_defined_and_notes_are_honest(training):
    table, instrument, *_ = training
    assert set(table.columns) == set(table.attrs["definitions"])
    assert any("analytic" in note for note in instrument.notes())
    assert isinstance(instrument, Instrument)


def test_nothing_that_is_counted_is_inside_of_what_is():
    layer = torch.nn.Conv2d(3, 8, 3)
    x = torch.randn(2, 3, 8, 8)
    table, _ = recorded(lambda: layer(x))
    assert table["flops"].sum() == 2 * 2 * 8 * 6 * 6 * 27
    counted = table[table["counted"]]
    assert counted["name"].tolist() == ["aten::convolution"]
    assert counted.iloc[0]["bytes"] == 4 * (x.numel() + layer.weight.numel() + 8 + 2 * 8 * 36)


def test_other_threads_are_seen_and_a_stride_of_zero_is_read_once():
    x, weight = torch.randn(1, 32, 16).expand(3, 32, 16), torch.randn(3, 8, 16)

    def work():
        thread = threading.Thread(target=lambda: torch.ops.dnnsuite.linear(x, weight, None, False))
        thread.start()
        thread.join()

    table, _ = recorded(work)
    row = table[table["name"] == "dnnsuite::linear"].iloc[0]
    assert row["flops"] == 2 * 3 * 32 * 16 * 8
    assert row["bytes"] == 4 * (32 * 16 + 3 * 8 * 16 + 3 * 32 * 8)


def test_a_second_profiler_gives_way_and_the_first_goes_on():
    instrument = OpsInstrument()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        with pytest.raises(Unavailable, match="already records"):
            instrument.open()
        instrument.start()
        assert instrument.gave_way
        instrument.stop()
    instrument.start()
    assert not instrument.gave_way
    instrument.close()
    instrument.close()
    assert not torch.autograd._profiler_enabled()


def test_an_empty_window_has_an_empty_table():
    table, instrument = recorded(lambda: None)
    assert table["flops"].sum() == 0
    assert OpsInstrument().tables()["ops"].empty
    assert OpsInstrument().notes() == []
    assert instrument.name == "ops"


@pytest.mark.parametrize("make", [torch.profiler.profile, legacy.profile], ids=["torch.profiler", "autograd"])
def test_the_start_of_another_recorder_is_told_and_torch_is_left_as_it_was(make):
    told, before = [], legacy.profile.__init__
    foreign = told_of_recorders(lambda: told.append(True))
    with make():
        torch.ones(2).sum()
    assert told
    foreign.close()
    foreign.close()
    assert legacy.profile.__init__ is before
    count = len(told)
    with make():
        pass
    assert len(told) == count
