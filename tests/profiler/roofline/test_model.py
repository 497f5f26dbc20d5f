# SPDX-License-Identifier: MIT
"""The roofline's law, and operators whose place under the roofs is known."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.roofline import Roofline, draw
from dnnsuite.profiler.roofline._model import attainable_flops_per_s, bound_s

positive = st.floats(1e-3, 1e15)


@given(positive, positive, positive)
def test_the_roof_is_the_lower_of_two(intensity, peak, bandwidth):
    roof = attainable_flops_per_s(intensity, peak, bandwidth)
    assert roof == min(peak, intensity * bandwidth)
    assert attainable_flops_per_s(2 * intensity, peak, bandwidth) >= roof
    assert attainable_flops_per_s(peak / bandwidth, peak, bandwidth) == pytest.approx(peak)  # the ridge


@given(positive, positive, positive, positive)
def test_the_least_time_is_what_the_roof_gives(flops, moved, peak, bandwidth):
    assert flops / bound_s(flops, moved, peak, bandwidth) == pytest.approx(
        attainable_flops_per_s(flops / moved, peak, bandwidth)
    )


def test_operators_of_known_place(peaks, ops, steps):
    found = Roofline(
        peaks,
        ops(
            ("aten::mm", 1, 20, 10**9, 10**7),  # 10 ms at 100 GFLOP/s
            ("aten::add", 1, 10, 0, 5 * 10**7),  # 5 ms from memory
            ("aten::relu", 1, 1, 0, 5 * 10**5),  # 5 us from L2
        ),
        steps((40, 50)),
    )
    table = found.table.set_index("name")
    assert table["attainable_pct"].to_dict() == pytest.approx({"aten::mm": 50, "aten::add": 50, "aten::relu": 0.5})
    assert table["level"].to_dict() == {"aten::mm": "memory", "aten::add": "memory", "aten::relu": "L2"}
    assert table["bound"].to_dict() == {
        "aten::mm": "arithmetic",
        "aten::add": "bandwidth of memory",
        "aten::relu": "far below its roof (bandwidth of L2)",
    }
    assert table["intensity"]["aten::mm"] == pytest.approx(100.0)
    assert table["flops_per_s"]["aten::mm"] == pytest.approx(50e9)
    assert table["share_pct"].sum() == pytest.approx(100)
    assert set(found.table.columns) == set(found.table.attrs["definitions"])


def test_the_steps_against_wall_time_and_against_the_time_they_got(peaks, ops, steps):
    found = Roofline(peaks, ops(("aten::mm", 1, 20, 10**9, 10**7)), steps((50, 20), (50, 20)))
    summary = found.summary
    assert summary.step_s == pytest.approx(0.05)
    assert summary.flops_per_step == 5 * 10**8
    assert summary.pct_of_peak == pytest.approx(10.0)  # 1 GFLOP in 100 ms
    assert summary.pct_of_peak_cpu == pytest.approx(50.0)  # in 40 ms of CPUs that do 50 GFLOP/s each
    assert summary.attainable_pct == pytest.approx(50.0)


def test_threads_side_by_side_share_the_roofs(peaks, ops, steps):
    calls = [("aten::mm", thread, 20, 10**9, 10**7) for thread in (1, 2)]
    alone, together = (Roofline(peaks, ops(*calls[:n]), steps((20, 20 * n))) for n in (1, 2))
    assert (alone.lanes, together.lanes) == (1, 2)
    assert together.table["attainable_pct"][0] == pytest.approx(2 * alone.table["attainable_pct"][0])
    assert together.summary.pct_of_peak == pytest.approx(100.0)
    minor = Roofline(peaks, ops(calls[0], ("aten::mm", 2, 0.1, 10, 10)), steps((20, 20)))
    assert minor.lanes == 1  # a helper thread that does next to nothing


def test_bf16_has_its_own_roof(peaks, ops, steps):
    found = Roofline(peaks, ops(("aten::mm", 1, 20, 10**9, 10**7), dtype="c10::BFloat16"), steps((20, 40)))
    assert found.table["attainable_pct"][0] == pytest.approx(25.0)
    assert found.summary.pct_of_peak == pytest.approx(25.0)


def test_short_calls_are_dispatch(peaks, ops, steps):
    found = Roofline(peaks, ops(*[("aten::add", 1, 0.005, 0, 4000)] * 10), steps((1, 1)))
    assert found.table["bound"].tolist() == ["calls too short: dispatch"]


def test_nothing_recorded_is_refused(peaks, ops, steps):
    with pytest.raises(InvalidArgument, match="nothing to draw"):
        Roofline(peaks, ops(), steps((1, 1)))
    with pytest.raises(InvalidArgument, match="nothing to draw"):
        Roofline(peaks, ops(("aten::mm", 1, 1, 1, 1)), steps())


def test_a_summary_is_plain_numbers(peaks, ops, steps):
    import json

    found = Roofline(peaks, ops(("aten::mm", 1, 20, 10**9, 10**7)), steps((50, 20)))
    assert json.loads(json.dumps(dataclasses.asdict(found.summary)))["steps"] == 1


def test_roofs_alone(peaks):
    axes = draw(peaks, ax=Figure().subplots())
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["fp32 100 GFLOP/s", "bf16 200 GFLOP/s", "L2 100 GB/s", "memory 10 GB/s"]
    for line in axes.get_lines()[2:]:  # a slope ends where it meets the highest roof
        assert line.get_ydata()[-1] == pytest.approx(200e9)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_points_are_of_all_lanes_and_have_names(peaks, ops, steps):
    calls = [
        (name, thread, 20, 10**9, size)
        for name, size in (("aten::mm", 10**7), ("aten::bmm", 10**9))
        for thread in (1, 2)
    ]
    calls.append(("aten::add", 1, 5, 0, 10**6))
    found = Roofline(peaks, ops(*calls), steps((40, 80)))
    axes = draw(peaks, found.table, Figure().subplots(), found.lanes)
    (points,) = axes.collections
    assert sorted(x for x, _ in points.get_offsets()) == pytest.approx([1.0, 100.0])  # one without FLOPs has no place
    assert all(y == pytest.approx(100e9) for _, y in points.get_offsets())
    assert sorted(text.get_text() for text in axes.texts) == ["bmm (forward)", "mm (forward)"]
    low, high = axes.get_xlim()
    assert low < 1.0
    assert high > 100.0


def test_a_figure_of_its_own(peaks, monkeypatch):
    import matplotlib.pyplot as plt

    axes = draw(peaks)
    plt.close(axes.figure)
    assert axes.get_ylabel() == "FLOP/s"
