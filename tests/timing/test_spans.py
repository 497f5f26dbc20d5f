# SPDX-License-Identifier: MIT
"""Spans as Python sees them: nesting, threads, room, forks, errors; laws against a stack written out in Python."""

import copy
import gc
import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import _C, timing
from dnnsuite.errors import Error, InvalidArgument, Unavailable
from dnnsuite.profiler import nvtx


def test_spans_nest_and_are_of_the_step():
    spans = timing.Spans(10)
    step, forward = spans.span("step"), spans.span("forward")
    assert spans.span("step") is step
    assert (step.name, forward.name) == ("step", "forward")
    before = timing.now_ns()
    for spans.step in (4, 5):
        with step, forward as entered:
            assert entered is forward
    columns = spans.columns()
    assert columns["name"].tolist() == ["step", "forward"] * 2
    assert columns["step"].tolist() == [4, 4, 5, 5]
    assert columns["depth"].tolist() == [0, 1, 0, 1]
    assert set(columns["thread"]) == {threading.get_native_id()}
    t0, t1 = columns["t0_ns"], columns["t1_ns"]
    assert (np.diff([before, t0[0], t0[1], t1[1], t1[0], t0[2], t0[3], t1[3], t1[2], timing.now_ns()]) >= 0).all()
    assert "gpu_ns" not in columns


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=60), st.integers(0, 40))
def test_any_sequence_is_what_a_stack_would_give(moves, capacity):
    """None ends the innermost; the model keeps (name, depth) in the order of beginning."""
    spans = timing.Spans(capacity)
    stack, expected, begun = [], {}, 0
    for move in moves:
        if move is not None:
            spans.span(move).begin()
            stack.append((begun, move, len(stack)))
            begun += 1
        elif stack:
            order, name, depth = stack.pop()
            spans.span(name).end()
            if order < capacity:
                expected[order] = (name, depth)
    columns = spans.columns()
    got = list(zip(columns["name"], columns["depth"].tolist(), strict=True))
    assert got == [expected[order] for order in sorted(expected)]
    assert (spans.open, spans.dropped) == (len(stack), max(0, begun - capacity))
    while stack:
        spans.span(stack.pop()[1]).end()
    spans.clear()
    assert (len(spans), spans.dropped, spans.columns()["name"].size) == (0, 0, 0)


def test_what_does_not_nest_is_refused_and_changes_nothing():
    spans = timing.Spans(4)
    outer, inner = spans.span("outer"), spans.span("inner")
    with pytest.raises(Error, match="never begun"):
        outer.end()
    with outer:
        with inner:
            with pytest.raises(Error, match=r"'outer' ends, but 'inner' is open"):
                outer.end()
            with pytest.raises(Error, match="2 of them are open"):
                spans.clear()
        refused = []

        def elsewhere():
            try:
                outer.end()
            except Error as error:
                refused.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert refused == ["a span ends that was never begun in this thread"]
    assert spans.columns()["name"].tolist() == ["outer", "inner"]


def test_a_span_ends_when_its_body_raises():
    spans = timing.Spans(4)

    @spans.span("f")
    def f(x):
        """Inverts."""
        return 1 / x

    assert (f(2), f.__name__, f.__doc__) == (0.5, "f", "Inverts.")
    with pytest.raises(ZeroDivisionError):
        f(0)
    assert (len(spans), spans.open) == (2, 0)
    with pytest.raises(InvalidArgument, match="generator"):

        @spans.span("g")
        def g():
            yield


def test_threads_have_stacks_of_their_own():
    spans = timing.Spans(4 * 200)
    outer, inner = spans.span("outer"), spans.span("inner")

    def work():
        for _ in range(100):
            with outer, inner:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    columns = spans.columns()
    assert columns["depth"].tolist() == [0 if name == "outer" else 1 for name in columns["name"]]
    assert len(set(columns["thread"])) <= 4
    assert (len(columns["name"]), spans.dropped) == (800, 0)


def test_what_was_dropped_is_said():
    spans = timing.Spans(1)
    assert spans.notes() == []
    with spans.span("a"), spans.span("b"):
        assert spans.notes() == [
            "1 spans were dropped: there was room for 1",
            "2 spans are open and not among the results",
        ]
    assert spans.notes() == ["1 spans were dropped: there was room for 1"]
    assert (spans.capacity, spans.dropped) == (1, 1)


def test_a_span_keeps_its_timer_alive():
    spans = timing.Spans(2)
    span = spans.span("a")
    del spans
    gc.collect()
    with span:
        pass


def test_a_forked_child_starts_with_none():
    spans = timing.Spans(4)
    outer = spans.span("outer")
    with outer:
        child = os.fork()
        if child == 0:
            with spans.span("inner"):
                pass
            outer.end()
            columns = spans.columns()
            good = columns["name"].tolist() == ["inner"] and columns["thread"].tolist() == [os.getpid()]
            os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert spans.columns()["name"].tolist() == ["outer"]


def test_what_cannot_be_had_is_refused():
    with pytest.raises(InvalidArgument, match="-1"):
        timing.Spans(-1)
    try:
        timing.Spans(1, cuda_pairs=4)
    except Unavailable as error:
        assert error.remedy  # noqa: PT017


@pytest.mark.parametrize("kind", [_C.Span, _C.NvtxRange, timing.Span, nvtx.Range], ids=lambda kind: repr(kind))
def test_what_a_factory_makes_cannot_be_made_otherwise(kind):
    """Such an object would point nowhere."""
    for make in (kind, lambda: kind.__new__(kind), lambda: object.__new__(kind)):
        with pytest.raises(TypeError, match=r"cannot create|is not safe|not subscriptable|no attribute"):
            make()


def test_a_factory_makes_its_own_kind_only():
    for other in (int, object, type, _C.NvtxRange):
        with pytest.raises(InvalidArgument, match=r"type must be dnnsuite\._C\.Span or a class derived from it, not"):
            _C.make_span(other, _C.Spans(1), "name")
    for other in (int, _C.Span):
        with pytest.raises(InvalidArgument, match=r"type must be dnnsuite\._C\.NvtxRange or a class derived"):
            _C.make_nvtx_range(other, "name")


def test_copies_of_a_span_are_refused():
    span = timing.Spans(1).span("name")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(span)
    assert span.name == "name"
