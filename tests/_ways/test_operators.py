# SPDX-License-Identifier: MIT
"""The choice between ways to compute the same, by measurement: candidates of its own, on a CPU."""

import dataclasses
import json
import threading
import time

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dnnsuite import _ways


def slow(x):
    for _ in range(400):
        x = x + 1
    return x - 400


def quick(x):
    return x * 1


def broken(x):
    raise RuntimeError("not here")


@pytest.fixture(autouse=True)
def _fresh(own_answers):
    _ways.forget()
    yield
    _ways.forget()


def x(*shape, **options):
    return torch.randn(shape or (4, 5), **options)


def test_the_quicker_one_is_taken_and_what_fails_is_left_out():
    assert _ways.fastest("a sum", {"broken": broken, "slow": slow, "quick": quick}, [x()]) == "quick"
    assert _ways.fastest("a sum", {"broken": broken, "slow": slow}, [x()]) == "slow"
    assert _ways.fastest("a sum", {"broken": broken, "other": broken}, [x()]) == "broken"


def test_one_choice_for_each_shape_and_fact_kept_on_the_machine():
    measurements = []

    def counted(x):
        measurements.append(tuple(x.shape))
        return quick(x)

    ways = {"counted": counted, "slow": slow}
    given = x()
    for _ in range(2):
        assert _ways.fastest("a sum", ways, [given]) == "counted"
    once = len(measurements)
    _ways.forget()
    _ways.fastest("a sum", ways, [given])
    assert len(measurements) == once  # from the machine's table
    for other in (x(3, 5), given.t().contiguous().t(), given.double(), x(requires_grad=True)):
        before = len(measurements)
        _ways.fastest("a sum", ways, [other])
        assert len(measurements) > before
    before = len(measurements)
    _ways.fastest("a sum", ways, [given], "stride 2")
    assert len(measurements) > before


def test_tensors_are_like_those_given_and_the_backward_pass_counts():
    seen = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            seen.append((x.stride(), y.dtype, x.requires_grad, y.requires_grad))
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append("backward")
            return grad * 2, None

    given = [torch.randn(3, 4).expand(2, 3, 4), torch.zeros(2, dtype=torch.int64)]
    given[0] = given[0].requires_grad_()
    _ways.fastest("watched", {"it": Watched.apply, "again": Watched.apply}, given)
    assert seen[0] == ((0, 4, 1), torch.int64, True, False)
    assert "backward" in seen


def test_nobody_sees_it_and_no_random_number_is_drawn():
    class Recorder(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    given, before = x(), torch.get_rng_state()
    threads = threading.active_count()
    with Recorder() as recorder:
        _ways.fastest("a sum", {"slow": slow, "quick": quick}, [given])
    assert recorder.seen == 0
    assert threading.active_count() == threads
    assert torch.equal(before, torch.get_rng_state())


def test_nothing_is_measured_under_a_transform():
    ways = {"slow": slow, "quick": quick}
    given = x()

    def under(y):
        assert _ways.fastest("a sum", ways, [given]) == "slow"
        return y.sum()

    torch.func.grad(under)(x())


def test_nothing_is_measured_inside_a_backward_pass():
    """A measurement is a backward pass of its own: on a GPU it would wait for the thread that waits for it."""
    chosen = []

    def forward(y):
        chosen.append(_ways.fastest("a sum", {"slow": slow, "quick": quick}, [y]))
        return y * 2

    given = x().requires_grad_()
    torch.utils.checkpoint.checkpoint(forward, given, use_reentrant=True).sum().backward()
    before = _ways.fastest("a sum", {"slow": slow, "quick": quick}, [x()])  # without a gradient, as in the forward
    assert chosen == [before, "slow"]


@pytest.mark.gpu
def test_on_a_gpu_a_choice_is_made_before_a_capture_and_kept_in_it():
    given = torch.randn(64, 64, device="cuda", requires_grad=True)
    ways = {"slow": slow, "quick": quick}
    assert _ways.fastest("a sum", ways, [given]) == "quick"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert _ways.fastest("a sum", ways, [given]) == "quick"
        assert _ways.fastest("another", ways, [given]) == "slow"  # nothing is measured now
    assert _ways.fastest("another", ways, [given]) == "quick"


def test_ways_that_are_compiled_wait_once_a_process_has_spent_its_seconds_on_them():
    ran = []

    def compiled(name, seconds=0.0):
        def way(x):
            if name not in ran:
                time.sleep(seconds)
            ran.append(name)
            return quick(x)

        return way

    def choose(name, seconds=0.0):
        ways = {"slow": slow, "compiled": compiled(name, seconds)}
        return _ways.fastest(name, ways, [x()], compiled=("compiled",))

    assert choose("first", 2.1) == "compiled"
    assert choose("second") == "slow"
    assert "second" not in ran
    _ways.forget()  # as in another process
    assert choose("first") == "compiled"
    assert choose("second") == "compiled"
    _ways.forget()
    before = len(ran)
    assert choose("second") == "compiled"
    assert len(ran) == before  # from the machine's table


def test_an_answer_that_is_old_is_measured_again():
    ran = []

    def counted(x):
        ran.append(1)
        return quick(x)

    def choose():
        _ways.forget()  # as in another process
        before = len(ran)
        assert _ways.fastest("a sum", {"counted": counted, "slow": slow}, [x()]) == "counted"
        return len(ran) > before

    assert choose()
    assert not choose()
    (key,) = json.loads(_ways.table().path.read_text())
    _ways.table().put(key, dataclasses.replace(_ways.table().get(key), at=0.0))
    assert choose()
