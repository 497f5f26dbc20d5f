# SPDX-License-Identifier: MIT
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite._step.threads import ShardThreads, SubmittedStep
from dnnsuite._torch_threads import torch_threads
from dnnsuite.errors import InvalidArgument, StepCancelled


def make(run, threads, shards, queue_depth=2):
    workers = ShardThreads(threads, queue_depth)
    workers.deal(shards, run)
    workers.start(min(threads, shards))
    return workers


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_shard_takes_every_step_in_order(threads):
    seen = {index: [] for index in range(3)}

    def run(index, batch, vectors):
        seen[index].append(batch[0])
        return torch.full((2,), float(10 * index + batch[0]))

    workers = make(run, threads, 3)
    steps = []
    for number in range(7):
        steps.append(SubmittedStep(workers.wait, (number,), [], 3))
        workers.submit(steps[-1])
    assert [step.losses().tolist() for step in steps][2] == [2.0, 2.0, 12.0, 12.0, 22.0, 22.0]
    workers.wait_for_all()
    assert all(numbers == list(range(7)) for numbers in seen.values())
    workers.close()


def test_a_thread_goes_on_with_its_shard_but_not_with_the_newest_step():
    seen = []
    workers = ShardThreads(2, 3)
    workers.deal(2, lambda index, batch, asked: seen.append((index, batch[0])) or torch.zeros(1))
    for number in range(3):
        workers.submit(SubmittedStep(workers.wait, (number,), [], 2))
    workers.start(1)
    workers.wait_for_all()
    workers.close()
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2)]


def test_one_thread_is_the_callers():
    names = []
    workers = make(lambda *_: names.append(threading.current_thread().name) or torch.zeros(1), 1, 2)
    workers.submit(SubmittedStep(workers.wait, (), [], 2))
    assert names == [threading.current_thread().name] * 2
    workers.close()


class Broken(Exception):
    pass


def good_or_broken(index, batch, vectors):
    if batch == index:
        raise Broken(f"shard {index}")
    time.sleep(0.001)
    return torch.full((1,), float(index))


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_is_raised_once_and_the_next_step_is_done(threads):
    workers = make(good_or_broken, threads, 2)
    for bad in (0, 1):
        with pytest.raises(Broken, match=f"shard {bad}"):  # noqa: PT012
            workers.submit(SubmittedStep(workers.wait, bad, [], 2))
            workers.wait_for_all()
        workers.wait_for_all()
        step = SubmittedStep(workers.wait, None, [], 2)
        workers.submit(step)
        assert step.losses().tolist() == [0.0, 1.0]
    workers.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_shards_that_can_take_a_failing_step_do(threads):
    taken = []

    def run(index, batch, vectors):
        if index == 0:
            raise Broken
        taken.append(index)
        return torch.zeros(1)

    workers = make(run, threads, 3)
    step = SubmittedStep(workers.wait, None, [], 3)
    with pytest.raises(Broken):  # noqa: PT012
        workers.submit(step)
        step.losses()
    assert sorted(taken) == [1, 2]
    workers.wait_for_all()  # the caller has it from the step
    workers.close()


def test_a_step_that_no_shard_has_begun_is_cancelled_by_an_error_before_it():
    begun, go = threading.Event(), threading.Event()

    def run(index, batch, vectors):
        begun.set()
        assert go.wait(30)
        raise Broken

    workers = make(run, 2, 1)
    steps = [SubmittedStep(workers.wait, None, [], 1) for _ in range(2)]
    for step in steps:
        workers.submit(step)
    assert begun.wait(30)
    go.set()
    with pytest.raises(Broken):
        steps[0].losses()
    with pytest.raises(StepCancelled, match="an earlier step failed: Broken"):
        steps[1].losses()
    workers.close()


def test_close_ends_every_step_and_nothing_is_begun_after_it():
    workers = make(good_or_broken, 2, 2)
    steps = [SubmittedStep(workers.wait, None, [], 2) for _ in range(2)]
    for step in steps:
        workers.submit(step)
    workers.close()
    assert all(step.losses().tolist() == [0.0, 1.0] for step in steps)
    with pytest.raises(InvalidArgument, match="closed"):
        workers.submit(SubmittedStep(workers.wait, None, [], 2))


def test_who_waits_for_a_step_that_will_not_be_done_learns_it_at_once():
    begun, go, learned = threading.Event(), threading.Event(), []

    def run(index, batch, vectors):
        begun.set()
        assert go.wait(30)
        return torch.zeros(1)

    workers = make(run, 2, 1)
    steps = [SubmittedStep(workers.wait, None, [], 1) for _ in range(2)]
    for step in steps:
        workers.submit(step)

    def wait():
        try:
            steps[1].losses()
        except StepCancelled as error:
            learned.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(30)
    workers.stop()
    waiting.join(30)
    assert len(learned) == 1
    go.set()
    workers.close()


CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from([None, None, 0, 1])),
        st.tuples(st.sampled_from(["wait_for_all", "close", "stop"]), st.none()),
        st.tuples(st.just("losses"), st.integers(0, 5)),
    ),
    max_size=10,
)


@pytest.mark.parametrize("threads", [1, 2])
@settings(deadline=None, max_examples=60)
@given(CALLS)
def test_no_order_of_calls_waits_for_ever(threads, calls):
    """Each call returns, or raises the error of a step or one that says why there is no result."""
    workers, steps, strange = make(good_or_broken, threads, 2), [], []

    def work():
        for name, value in [*calls, ("close", None), *(("losses", i) for i in range(len(calls)))]:
            try:
                if name == "submit":
                    steps.append(SubmittedStep(workers.wait, value, [], 2))
                    workers.submit(steps[-1])
                elif name == "losses":
                    if value < len(steps):
                        assert steps[value].losses().tolist() == [0.0, 1.0]
                else:
                    getattr(workers, name)()
            except InvalidArgument:
                steps.pop()  # refused: it is nobody's step
            except Broken:
                if name == "submit":
                    steps.pop()
            except StepCancelled:
                pass
            except BaseException as error:
                strange.append(error)

    caller = threading.Thread(target=work, daemon=True)
    caller.start()
    caller.join(60)
    assert not caller.is_alive(), calls
    assert strange == []


def test_the_threads_share_the_cores_and_keep_to_their_share():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        seen = []

        def run(*_):
            torch.ones(100_000).add(1)
            seen.append(torch.get_num_threads())
            return torch.zeros(1)

        workers = make(run, 4, 2)
        workers.submit(SubmittedStep(workers.wait, (), [], 2))
        workers.wait_for_all()
        workers.close()
        assert seen == [2, 2]
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_the_caller_uses_one_thread_while_steps_are_under_way():
    go_on = threading.Event()

    def run(index, batch, asked):
        go_on.wait(30)
        return torch.zeros(1)

    workers = make(run, 2, 2)
    with torch_threads(3):
        steps = [SubmittedStep(workers.wait, (number,), [], 2) for number in range(2)]
        for step in steps:
            workers.submit(step)
        seen = [torch.get_num_threads()]
        go_on.set()
        steps[0].losses()
        seen.append(torch.get_num_threads())  # the second may be under way
        steps[1].losses()
        seen.append(torch.get_num_threads())
        for end in (workers.wait_for_all, workers.settle, workers.close):
            workers.submit(SubmittedStep(workers.wait, (0,), [], 2))
            end()
            seen.append(torch.get_num_threads())
    assert seen == [1, 1, 3, 3, 3, 3]


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_a_step_that_settles_is_told_that_it_is_under_way(threads):
    told = []

    def run(index, batch, asked):
        told.append(workers.settle())
        return torch.zeros(1)

    workers = make(run, threads, 2)
    for way in (workers.submit, workers.run_here):
        step = SubmittedStep(workers.wait, (), [], 2)
        way(step)
        step.losses()
        assert workers.settle()
    workers.close()
    assert told == [False] * 4
