# SPDX-License-Identifier: MIT
"""Named spans in a profile, and the external tools' window around its windows."""

from dnnsuite import profiler, timing
from dnnsuite.profiler import window
from profiler_loops import loop


def test_spans_of_observed_steps_are_a_table():
    spans = timing.Spans(capacity=100)
    mine = spans.span("mine")

    class Stepping:
        def step(self):
            with mine:
                pass
            p.step()

    with profiler.profile(
        schedule=profiler.schedule(wait=2, active=3), instruments=[profiler.SpansInstrument(spans)]
    ) as p:
        loop(Stepping(), 5, 0)
    assert list(p.spans["name"]) == ["mine"] * 3
    assert set(profiler.definitions(p.spans)) == set(p.spans.columns)
    assert len(spans) == 5


def test_spans_that_were_dropped_are_a_note():
    spans = timing.Spans(capacity=1)
    with profiler.profile(instruments=[profiler.SpansInstrument(spans)]) as p:
        for _ in range(3):
            with spans.span("mine"):
                pass
    assert any("2 spans were dropped" in note for note in p.notes)


def test_the_tools_window_is_open_while_a_window_is():
    seen = []

    class Watching:
        def step(self):
            seen.append(window._opened is not None)
            p.step()

    with profiler.profile(schedule=profiler.schedule(wait=1, active=2, repeat=2)) as p:
        loop(Watching(), 7, 0)
    assert seen == [False, True, True, False, True, True, False]
