# SPDX-License-Identifier: MIT
import threading

import pytest
import torch

from dnnsuite._step.threads import ShardThreads, SubmittedStep, parts_of


def make(run, threads, shards, queue_depth=2):
    workers = ShardThreads(run, threads, queue_depth)
    workers.deal(shards)
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


def test_one_thread_is_the_callers():
    names = []
    workers = make(lambda *_: names.append(threading.current_thread().name) or torch.zeros(1), 1, 2)
    workers.submit(SubmittedStep(workers.wait, (), [], 2))
    assert names == [threading.current_thread().name] * 2
    workers.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_is_raised_by_every_later_call(threads):
    def run(index, batch, vectors):
        raise ValueError("broken")

    workers = make(run, threads, 2)

    def submit_and_wait():
        workers.submit(SubmittedStep(workers.wait, (), [], 2))
        workers.wait_for_all()

    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            submit_and_wait()
    workers.close()


def test_starts_again_after_close():
    workers = make(lambda *_: torch.zeros(1), 2, 2)
    workers.close()
    workers.deal(4)
    workers.start(2)
    step = SubmittedStep(workers.wait, (), [], 4)
    workers.submit(step)
    assert step.losses().shape == (4,)
    workers.close()


def test_parts():
    assert parts_of(5, 2) == [(0, 2), (2, 2), (4, 1)]
    assert parts_of(2, 8) == [(0, 2)]


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
