# SPDX-License-Identifier: MIT
import numpy as np
import pytest

from counters_double import BackendDouble
from cupti_plans import needs_cupti
from dnnsuite import timing
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.profiler import Instrument, definitions
from dnnsuite.profiler.counters import PmSamplingInstrument, select
from dnnsuite.profiler.counters.sampling import anchor

pytestmark = needs_cupti
START = {"realtime_ns": 1_700_000_000_000_000_000, "monotonic_ns": 5_000_000_000}


def window(first_ns, samples, overflows=0, metrics=None):
    width = metrics or len(select("timeline", "GH100").metrics)
    t0 = [first_ns + 1000 * i for i in range(samples)]
    return {
        **START,
        "overflows": overflows,
        "t0_ns": t0,
        "t1_ns": [t + 1000 for t in t0],
        "values": [[float(i)] * width for i in range(samples)],
    }


def run(windows, **arguments):
    backend = BackendDouble(arguments.pop("chip", "GH100"), windows=windows)
    instrument = PmSamplingInstrument(backend=backend, **arguments)
    instrument.open()
    instrument.start()
    instrument.step(0)
    instrument.stop()
    return instrument, backend


def test_a_long_table_of_samples_in_the_order_of_time():
    instrument, backend = run([window(START["realtime_ns"] + 7, 3)])
    assert isinstance(instrument, Instrument)
    table = instrument.tables()["samples"]
    assert set(definitions(table)) == set(table.columns)
    assert len(table) == 3 * len(backend.options["metrics"])
    assert table["t_ns"].is_monotonic_increasing
    assert table["t_ns"].dtype == np.int64
    fma = table[table["name"] == "fma"]
    assert fma["value"].tolist() == [0, 1, 2]
    assert fma["t0_ns"].tolist() == [5_000_000_007, 5_000_001_007, 5_000_002_007]  # CLOCK_REALTIME's shift, exactly
    assert (fma["t_ns"] == fma["t0_ns"] + 500).all()
    assert set(table["source"]) == {"pm"}
    assert not any("aligned" in note for note in instrument.notes())


def test_another_clock_is_aligned_by_the_start_and_that_is_said():
    instrument, _ = run([window(10**15, 2)])
    assert instrument.tables()["samples"]["t0_ns"].min() == START["monotonic_ns"]
    assert any("aligned by the window's start" in note for note in instrument.notes())


def test_anchor():
    wall, ours = 1_700_000_000 * 10**9, 5000 * 10**9
    assert anchor(ours + 100, wall, ours) == (0, True)  # the clock that we registered
    assert anchor(wall + 100, wall, ours) == (ours - wall, True)  # CUPTI's default
    assert anchor(10**15, wall, ours) == (ours - 10**15, False)  # the GPU's own


def test_overflow_and_empty_windows_are_noted():
    instrument, _ = run([window(1, 1, overflows=2), window(1, 0)])
    notes = "\n".join(instrument.notes())
    assert "ran over 2 times" in notes
    assert "window without samples" in notes
    assert "other processes" in notes


def test_no_samples_is_an_empty_table():
    instrument, _ = run([])
    table = instrument.tables()["samples"]
    assert table.empty
    assert set(definitions(table)) == set(table.columns)


@pytest.mark.parametrize(
    ("chip", "interval", "cycles", "latest"),
    [("TU102", 1_000_000, True, False), ("GA100", 1_000_000, True, True), ("GH100", 1_000_000, False, True)],
)
def test_chips_without_a_trigger_by_time_count_cycles(chip, interval, cycles, latest):
    _, backend = run([], chip=chip, interval_s=1e-3)
    options = backend.options
    assert (options["interval"], options["interval_in_cycles"], options["keep_latest"]) == (interval, cycles, latest)


def test_metrics_of_ones_own():
    instrument, backend = run([window(1, 2, metrics=1)], metrics="sm__cycles_active.avg")
    assert backend.options["metrics"] == ["sm__cycles_active.avg"]
    table = instrument.tables()["samples"]
    assert set(table["name"]) == {"sm__cycles_active.avg"}
    assert set(table["unit"]) == {"gpc_cycle"}


def test_what_is_refused():
    for interval in (0, -1, 1e-9, float("nan")):
        with pytest.raises(InvalidArgument, match="interval_s"):
            PmSamplingInstrument(interval_s=interval)
    with pytest.raises(Error, match="open"):
        PmSamplingInstrument(backend=BackendDouble()).start()
    instrument, backend = run([])
    instrument.close()
    instrument.close()
    assert backend.session.calls == ["start", "stop", "close"]


@pytest.mark.gpu
def test_on_a_gpu():
    import torch

    instrument = PmSamplingInstrument()
    work = torch.randn(4096, 4096, device="cuda")
    instrument.open()
    try:
        before = timing.now_ns()
        instrument.start()
        for _ in range(50):
            work = work @ work / 4096
        torch.cuda.synchronize()
        instrument.stop()
        table = instrument.tables()["samples"]
    finally:
        instrument.close()
    assert len(table) > 0
    assert abs(int(table["t_ns"].min()) - before) < 10**9
    assert table[table["name"] == "sm_active"]["value"].max() > 50
