# SPDX-License-Identifier: MIT
"""Markers as a real NVTX tool sees them: domain, registered strings, payload, nesting, threads."""

import pytest

from dnnsuite import timing
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler import nvtx
from profiler.nvtx_tool import compile_tool, seen_by

needs_nvtx = pytest.mark.skipif(not nvtx.available(), reason="this build has no NVTX: install the CUDA toolkit")


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    return compile_tool(tmp_path_factory.mktemp("tool"))


def test_ranges_nest_with_registered_names_and_the_step(tool, tmp_path):
    calls = seen_by(
        tool,
        tmp_path,
        """
        from dnnsuite.profiler import nvtx
        step, forward = nvtx.range("step"), nvtx.range("forward")
        for step.step in range(2):
            with step:
                forward.push(10 + step.step)
                forward.pop()
        nvtx.mark("saved", 5)
        """,
    )
    assert {call.domain for call in calls} == {"dnnsuite"}
    assert {call.kind for call in calls if call.what != "pop"} == {"registered"}
    assert [(call.what, call.name, call.payload) for call in calls] == [
        *[("push", "step", "0"), ("push", "forward", "10"), ("pop", "-", "-"), ("pop", "-", "-")],
        *[("push", "step", "1"), ("push", "forward", "11"), ("pop", "-", "-"), ("pop", "-", "-")],
        ("mark", "saved", "5"),
    ]


def test_ranges_are_of_their_thread(tool, tmp_path):
    calls = seen_by(
        tool,
        tmp_path,
        """
        import threading
        from dnnsuite.profiler import nvtx
        here, there = nvtx.range("here"), nvtx.range("there")
        with here:
            thread = threading.Thread(target=there(lambda: None))
            thread.start()
            thread.join()
        """,
    )
    assert [(call.what, call.name) for call in calls] == [
        *[("push", "here"), ("push", "there"), ("pop", "-"), ("pop", "-")]
    ]
    outer, inner, inner_end, outer_end = (call.thread for call in calls)
    assert inner == inner_end != outer == outer_end


def test_spans_are_ranges_too(tool, tmp_path):
    calls = seen_by(
        tool,
        tmp_path,
        """
        from dnnsuite import timing
        spans = timing.Spans(1, nvtx=True)  # a full timer still speaks to the tool
        for spans.step in (3, 4):
            with spans.span("step"), spans.span("forward"): pass
        """,
    )
    assert [(call.what, call.name, call.payload) for call in calls if call.what == "push"] == [
        ("push", name, step) for step in ("3", "4") for name in ("step", "forward")
    ]
    assert [call.what for call in calls].count("pop") == 4


@needs_nvtx
def test_a_range_ends_when_its_body_raises(tool, tmp_path):
    calls = seen_by(
        tool,
        tmp_path,
        """
        from dnnsuite.profiler import nvtx
        @nvtx.range("f")
        def f(): raise KeyError
        try: f()
        except KeyError: pass
        """,
    )
    assert [call.what for call in calls] == ["push", "pop"]


@needs_nvtx
def test_without_a_tool_nothing_happens():
    scope = nvtx.range("quiet")
    assert scope is nvtx.range("quiet")
    with scope as entered:
        assert entered is scope
    scope.push(1 << 62)
    scope.pop()
    nvtx.mark("now")
    with pytest.raises(OverflowError):
        scope.push(1 << 64)
    with pytest.raises(OverflowError):
        scope.step = 1 << 64
    with pytest.raises(TypeError):
        scope.push("one")


@needs_nvtx
def test_a_decorated_function_stays_itself():
    @nvtx.range("f")
    def f(a, *, b):
        """Adds."""
        return a + b

    assert (f(1, b=2), f.__name__, f.__doc__) == (3, "f", "Adds.")


@pytest.mark.parametrize("kind", ["async def f(): pass", "def f(): yield"])
def test_what_returns_before_it_runs_is_refused(kind):
    names = {}
    exec(kind, names)
    with pytest.raises(InvalidArgument, match="use `with` inside it"):
        timing.decorated(None, names["f"])
