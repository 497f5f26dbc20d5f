# SPDX-License-Identifier: MIT
"""`profiler.profile` around a loop: what it gives, and what it survives."""

import os

import pytest
import torch

import forked_program
from dnnsuite import profiler
from dnnsuite.errors import InvalidArgument, Unavailable
from profiler_loops import Operators, loop

EVERY = profiler.schedule(skip_first=1, wait=2, active=2, repeat=2)


def run_python(code, *arguments, expect=0):
    result = forked_program.run(code, *arguments)
    assert result.returncode == expect, result.stderr
    return result


def test_a_loop_by_schedule():
    ready = []
    operators = Operators()
    with profiler.profile(schedule=EVERY, instruments=[operators], on_ready=lambda p: ready.append(len(p.active))) as p:
        loop(p, 10)
    assert operators.calls == ["open", "start", "stop", "start", "stop", "close"]
    assert ready == [2, 4]
    assert p.done
    assert len(p.steps) == 10
    assert (p.steps["phase"] == "active").sum() == 4
    assert len(p.ops) == 12
    assert set(p.phases["phase"]) == {"forward", "backward", "optimizer"}
    assert len(p.phases) == 12  # of observed steps only
    assert p.breakdown["share_pct"].sum() == pytest.approx(100)
    assert {"gemm", "copy", "norm", "host"} <= set(p.breakdown["class"])
    assert p.overhead.windows == 2
    assert p.notes == ["ops: 2 records were dropped"]
    assert set(p.instruments["state"]) == {"ok"}
    assert p.advice
    for table in p.tables.values():
        assert set(profiler.definitions(table)) == set(table.columns)


def test_without_a_schedule_the_whole_body_is_observed():
    ready = []
    with profiler.profile(on_ready=ready.append) as p:
        loop(p, 3)
    assert ready == [p]
    assert len(p.active) == 3
    assert p.overhead is None
    assert not any("cut short" in note for note in p.notes)


def test_a_body_that_names_no_steps_is_one():
    with profiler.profile() as p:
        torch.nn.Linear(2, 2)(torch.ones(1, 2))
    assert len(p.active) == 1
    assert list(p.phases["phase"]) == ["forward"]


def test_an_error_in_a_window_passes_and_what_was_seen_is_kept():
    operators = Operators()

    class Stop(KeyboardInterrupt):
        pass

    p = profiler.profile(schedule=profiler.schedule(active=9), instruments=[operators])

    def interrupted():
        with p:
            loop(p, 2)
            raise Stop

    with pytest.raises(Stop):
        interrupted()
    assert operators.calls[-2:] == ["stop", "close"]
    assert len(p.active) == 2
    assert "the last window was cut short: Stop ended the loop" in p.notes
    with profiler.profile():  # the place is free again
        pass


def test_a_loop_that_ends_inside_a_window_is_noted():
    with profiler.profile(schedule=profiler.schedule(active=9, repeat=1)) as p:
        loop(p, 2)
    assert not p.done
    assert "the last window was cut short: the loop ended inside it" in p.notes


def test_a_loop_that_never_reaches_its_window_says_so():
    with profiler.profile(schedule=profiler.schedule(start_iteration=50)) as p:
        loop(p, 2)
    assert "the loop made 2 steps and the first window opens after 50" in p.summary()
    with pytest.raises(AttributeError, match="breakdown"):
        _ = p.breakdown


def test_two_profilers_the_second_is_refused_and_told_of_the_first():
    with (
        profiler.profile() as first,
        pytest.raises(Unavailable, match=rf"at work already: .*test_profile\.py:\d+ \(process {os.getpid()}\)"),
        profiler.profile(),
    ):
        pass
    assert first.active


def test_inside_torchs_profiler_it_is_refused():
    with (
        torch.autograd.profiler.profile(use_kineto=False),
        pytest.raises(Unavailable, match=r"torch\.profiler .*is recording.*leave its `with` block"),
        profiler.profile(),
    ):
        pass
    with profiler.profile():
        pass


def test_an_instrument_that_is_not_to_be_had():
    class Missing(Operators):
        name = "missing"

        def open(self):
            raise Unavailable("no such device", remedy="buy one")

    with pytest.raises(Unavailable, match="buy one"), profiler.profile(instruments=[Missing()]):
        pass
    with profiler.profile():
        pass


def test_an_instrument_whose_results_cannot_be_read_is_a_note():
    class Damaged(Operators):
        def tables(self):
            raise ValueError("damaged")

    with profiler.profile(instruments=[Damaged()]) as p:
        loop(p, 1)
    assert any("damaged" in note for note in p.notes)
    assert len(p.phases) == 3


def test_one_profile_observes_one_loop():
    p = profiler.profile()
    with pytest.raises(InvalidArgument, match="was not started"):
        _ = p.active
    with p:
        pass
    p.stop()
    p.step()
    with pytest.raises(InvalidArgument, match="make another one"):
        p.start()


def test_left_open_at_exit_it_is_closed_and_said():
    code = """
        from dnnsuite import profiler
        import torch
        class Instrument:
            name = "mine"
            def open(self): pass
            def start(self): pass
            def step(self, index): pass
            def stop(self): print("stopped")
            def tables(self): return {}
            def notes(self): return []
            def close(self): print("closed")
        p = profiler.profile(instruments=[Instrument()])
        p.start()
        p.step()
    """
    result = run_python(code)
    assert result.stdout.split() == ["stopped", "closed"]
    assert "was left open; it is closed now" in result.stderr


def test_a_child_that_is_forked_in_a_window_leaves_the_parents_instruments_alone():
    code = """
        import os
        from dnnsuite import profiler
        import torch
        class Instrument:
            name = "mine"
            def open(self): pass
            def start(self): pass
            def step(self, index): print("step", os.getpid() == parent, flush=True)
            def stop(self): print("stop", os.getpid() == parent, flush=True)
            def tables(self): return {}
            def notes(self): return []
            def close(self): pass
        parent = os.getpid()
        with profiler.profile(instruments=[Instrument()]) as p:
            child = os.fork()
            p.step()
            if child:
                os.waitpid(child, 0)
            else:
                with profiler.profile() as own:  # the child may observe itself
                    own.step()
        if child == 0:
            os._exit(0)
    """
    assert run_python(code).stdout.splitlines() == ["step True", "stop True"]


def test_on_sigint_the_window_is_closed():
    code = """
        import os, signal, sys
        from dnnsuite import profiler
        import torch
        try:
            with profiler.profile(schedule=profiler.schedule(active=5)) as p:
                p.step()
                os.kill(os.getpid(), signal.SIGINT)
                p.step()
        except KeyboardInterrupt:
            p.save(sys.argv[1])
            print(p.notes)
    """
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert "KeyboardInterrupt ended the loop" in run_python(code, folder).stdout
        assert "profile.json" in os.listdir(folder)


def test_the_second_is_refused_until_the_first_is_gone():
    with profiler.profile(), pytest.raises(Unavailable, match=r"test_profile\.py:\d+ .*; close that one first"):
        profiler.profile().start()
    with profiler.profile() as p:
        pass
    assert len(p.active) == 1
