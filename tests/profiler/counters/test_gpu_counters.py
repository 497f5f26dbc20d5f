# SPDX-License-Identifier: MIT
"""The instrument over a double of its backend; names and plans are the real library's. On a GPU: the real thing."""

import math

import pytest

from counters_double import BackendDouble
from cupti_plans import needs_cupti
from dnnsuite.errors import Error, InvalidArgument, Unavailable
from dnnsuite.profiler import Instrument, definitions
from dnnsuite.profiler.counters import CORES, CountersInstrument, PmSamplingInstrument

pytestmark = needs_cupti


def run(instrument, steps=3, windows=1):
    instrument.open()
    for _ in range(windows):
        instrument.start()
        for index in range(steps):
            instrument.step(index)
        instrument.stop()
    return instrument.tables()


def test_it_is_an_instrument_whose_columns_are_defined():
    instrument = CountersInstrument(backend=BackendDouble())
    assert isinstance(instrument, Instrument)
    for table in run(instrument).values():
        assert set(definitions(table)) == set(table.columns)


def test_steps_carry_on_over_windows_and_a_step_that_did_not_end_is_left_out():
    instrument = CountersInstrument("cores", backend=BackendDouble())
    table = run(instrument, steps=3, windows=2)["counters"]
    whole = table[table["mark"] == ""]
    assert sorted(whole["step"].unique()) == [0, 1, 2, 3, 4, 5]  # the double's ranges of step 6 are of no whole step
    assert set(table["mark"]) == {"", "backward"}
    assert (whole["value"] == whole["step"]).all()
    assert set(whole["role"]) == {"time", "cycles", "gpu_active", "sm_active", *CORES}
    assert whole[whole["role"] == "time"]["unit"].unique() == ["ns"]


def test_groups_take_turns_and_that_is_said():
    backend = BackendDouble("GB202")
    instrument = CountersInstrument("cores", backend=backend)
    table = run(instrument, steps=4)["counters"]
    assert len(backend.session.groups) == 2
    tensor = table[(table["role"] == "tensor") & (table["mark"] == "")]
    fma = table[(table["role"] == "fma") & (table["mark"] == "")]
    assert (tensor["step"].tolist(), fma["step"].tolist()) == ([1, 3], [0, 2])
    assert any("2 groups of metrics took turns" in note for note in instrument.notes())
    assert set(table[table["role"] == "cycles"]["step"]) == {0, 1, 2, 3}  # what others are divided by


def test_utilisation_of_step_and_of_busy():
    def values(step, metric):
        return 50.0 if metric.startswith("gr__") else 20.0

    found = run(CountersInstrument("cores", backend=BackendDouble(values=values)))["utilization"].set_index("core")
    for core in CORES:
        assert found.loc[core, ["pct_of_step", "pct_of_busy", "counted"]].tolist() == [20, 40, 3]


def test_kernels_mode_weighs_by_cycles_and_stops_by_itself():
    def values(step, metric):
        return 100.0 + step if metric.startswith("gpc__") else 10.0 * step

    backend = BackendDouble(values=values)
    instrument = CountersInstrument("cores", mode="kernels", iterations=2, backend=backend)
    tables = run(instrument, steps=5)
    assert backend.session.calls == ["start", "step", "step", "stop"]
    counters = tables["counters"]
    assert sorted(counters["kernel"].unique()) == [0, 1, 2]
    assert set(counters["step"]) == {0, 1}
    found = tables["utilization"].set_index("core")
    assert found.loc["fma", "pct_of_busy"] == pytest.approx((3 * 101 * 10) / (3 * 100 + 3 * 101))
    assert any("replayed" in note for note in instrument.notes())


@pytest.mark.parametrize("iterations", [0, -1, 11, 200])
def test_kernels_mode_is_refused_above_ten_iterations(iterations):
    with pytest.raises(InvalidArgument, match=f"iterations {iterations}"):
        CountersInstrument(mode="kernels", iterations=iterations)


def test_arguments_that_are_refused():
    for arguments, words in (
        ({"mode": "ranges"}, "steps, kernels"),
        ({"metrics": "timeline"}, "PmSamplingInstrument"),
        ({"max_ranges": 0}, "max_ranges 0"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            CountersInstrument(**arguments)
    with pytest.raises(InvalidArgument, match="did you mean"):
        CountersInstrument("sm__cycles_activ.avg", backend=BackendDouble()).open()
    with pytest.raises(Error, match="open"):
        CountersInstrument(backend=BackendDouble()).start()


@pytest.mark.parametrize(
    ("chip", "arguments", "room"),
    [
        ("GH100", {}, 64),
        ("GB202", {}, 8),  # a segment a step, all kept until the end: less room for each
        ("GH100", {"mode": "kernels"}, 2048),
        ("GH100", {"max_ranges": 5}, 5),
    ],
)
def test_room_for_ranges(chip, arguments, room):
    backend = BackendDouble(chip)
    CountersInstrument(backend=backend, **arguments).open()
    assert backend.options["max_ranges"] == room


def test_dropped_ranges_and_shared_pipes_are_noted():
    backend = BackendDouble()
    instrument = CountersInstrument("cores,fp64", backend=backend)
    instrument.open()
    backend.session.dropped, backend.session.steps_left_out = 4, 1
    instrument.start()
    instrument.step(0)
    instrument.stop()
    notes = "\n".join(instrument.notes())
    assert "4 ranges found no room" in notes
    assert "1 steps were not counted in all passes" in notes
    assert "fp16 is a part of fma" in notes
    assert "shared pipe" in notes


def test_marks_reach_the_session_within_a_window_only():
    backend = BackendDouble()
    instrument = CountersInstrument(backend=backend)
    instrument.open()
    instrument.mark("early")
    instrument.start()
    instrument.mark("forward")
    instrument.stop()
    instrument.mark("late")
    assert backend.session.calls == ["start", "mark forward", "stop"]


def test_closing_releases_and_again_does_nothing():
    backend = BackendDouble()
    instrument = CountersInstrument(backend=backend)
    instrument.close()
    instrument.open()
    session = backend.session
    instrument.open()
    assert backend.session is session
    instrument.start()
    instrument.close()
    instrument.close()
    assert session.calls == ["start", "close"]
    assert instrument.tables()["counters"].empty


def test_a_window_that_failed_is_given_up():
    backend = BackendDouble()
    instrument = CountersInstrument(backend=backend)
    instrument.open()
    instrument.start()
    backend.session.fails_at = "step"
    with pytest.raises(RuntimeError):
        instrument.step(0)
    instrument.step(1)
    instrument.stop()
    assert backend.session.calls == ["start", "step"]


def test_a_refusal_leaves_nothing_open():
    refusal = Unavailable("another profiler holds the GPU's counters", "", "stop ncu")
    for kind in (CountersInstrument, PmSamplingInstrument):
        instrument = kind(backend=BackendDouble(refusal=refusal))
        with pytest.raises(Unavailable, match="stop ncu"):
            instrument.open()
        instrument.close()
        assert all(table.empty for table in instrument.tables().values())


def test_nan_stays_nan():
    backend = BackendDouble(values=lambda step, metric: math.nan)
    tables = run(CountersInstrument("cores", backend=backend))
    assert tables["counters"]["value"].isna().all()
    assert (tables["utilization"]["left_out"] == 3).all()


@pytest.mark.gpu
def test_on_a_gpu():
    import torch

    instrument = CountersInstrument("cores")
    work = torch.randn(2048, 2048, device="cuda")
    instrument.open()
    try:
        instrument.start()
        for index in range(4):
            work = work @ work / 2048
            torch.cuda.synchronize()
            instrument.step(index)
        instrument.stop()
        found = instrument.tables()
    finally:
        instrument.close()
    steps = found["counters"]
    assert set(steps["step"]) == {0, 1, 2, 3}
    assert (steps[steps["role"] == "time"]["value"] > 0).all()
    percent = steps[steps["unit"] == "%"]["value"].dropna()
    assert ((percent >= 0) & (percent <= 100.5)).all()
    assert found["utilization"].set_index("core").loc[["fma", "tensor"], "pct_of_step"].max() > 1
