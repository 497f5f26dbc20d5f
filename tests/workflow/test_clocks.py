# SPDX-License-Identifier: MIT
import time

from dnnsuite import timing
from dnnsuite.workflow.tasks import Clock, CudaClock, HostClock, clock_for


def run(clock: Clock, epochs: int, iters: int, step_s: float, synchronise_s: float = 0.0) -> None:
    for _ in range(epochs):
        clock.begin_epoch()
        for _ in range(iters):
            clock.begin_step()
            time.sleep(step_s)
            clock.end_step(7)
        time.sleep(synchronise_s)
        clock.end_epoch()


def test_steps_that_are_done_when_they_return() -> None:
    clock = HostClock(2, 3)
    run(clock, 2, 3, 0.01)
    steps = clock.steps()
    assert steps.epochs.tolist() == [0, 0, 0, 1, 1, 1]
    assert steps.items.tolist() == [7] * 6
    assert (steps.stops_ns - steps.starts_ns >= 10_000_000).all()


def test_steps_that_go_on_are_found_out() -> None:
    clock = HostClock(2, 3)
    run(clock, 2, 3, 0.0, synchronise_s=0.05)
    assert clock.asynchronous
    lengths = clock.steps().stops_ns - clock.steps().starts_ns
    assert (lengths[[2, 5]] >= 50_000_000).all()  # an epoch ends when the job is synchronised
    assert min(lengths[[0, 1, 3, 4]]) < 50_000_000  # each of them only while this process has the CPU


class FakeEvent:
    """A CUDA event on a device whose every step takes 5 ms, played in order of recording."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at_ms = FakeCuda.clock_ms
        FakeCuda.clock_ms += 5.0

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.at_ms - self.at_ms


class FakeCuda:
    clock_ms = 0.0
    synchronised = 0
    Event = FakeEvent

    @classmethod
    def synchronize(cls) -> None:
        cls.synchronised += 1


def test_cuda_steps_are_dated_by_events() -> None:
    clock = CudaClock(2, 3, FakeCuda)
    before = timing.now_ns()
    run(clock, 2, 3, 0.0)
    steps = clock.steps()
    assert FakeCuda.synchronised == 2  # once an epoch, not in the loop
    assert steps.epochs.tolist() == [0, 0, 0, 1, 1, 1]
    assert (steps.stops_ns - steps.starts_ns).tolist() == [5_000_000] * 6
    assert before <= steps.starts_ns[0] <= timing.now_ns()
    assert not clock.asynchronous


def test_a_clock_for_the_device() -> None:
    assert isinstance(clock_for("cpu", 1, 1), HostClock)
