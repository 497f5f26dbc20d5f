# SPDX-License-Identifier: MIT
"""The library that replays steps as boxed calls, by itself (`cpp/replay`)."""

import sys
import threading
import time
from dataclasses import dataclass

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from dnnsuite._step.capture.script import REPLAY, no_replay

pytestmark = pytest.mark.skipif(REPLAY is None, reason=str(no_replay))


@dataclass(frozen=True)
class Slot:
    index: int


def program(calls, results, inputs=(0,), kept=()):
    return REPLAY.Program(list(inputs), list(kept), calls, list(results), Slot)


ADD = ("aten::add", "Tensor", (Slot(0), Slot(0), 1), [1])


@pytest.fixture
def operator():
    """Operators of Python's, defined by their functions for as long as a test runs."""
    library = torch.library.Library("dnnsuite_replay_test", "FRAGMENT")

    def define(name, function):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, function, "CPU")
        return lambda taken, made: (f"dnnsuite_replay_test::{name}", "", (Slot(taken),), [made])

    yield define
    library._destroy()


def test_takes_inputs_what_is_kept_and_constants():
    calls = [
        ("aten::mul", "Tensor", (Slot(0), Slot(7)), [1]),
        ("aten::mul", "Tensor", (Slot(1), 2.5), [2]),
        ("aten::cat", "", ([Slot(2), Slot(0), Slot(7)], 0), [3]),
    ]
    kept = torch.tensor([2, 3])
    (result,) = program(calls, [3], kept=[7]).on([kept])([torch.tensor([1, 2])])
    assert torch.equal(result, torch.tensor([5.0, 15, 1, 2, 2, 3]))
    assert result.dtype == torch.float32  # a number beside whole numbers counts less than a tensor of one


def test_runs_the_packages_own_operators():
    x = torch.randn(2, 3, 4)
    (result,) = program([("dnnsuite::layer_norm", "", (Slot(0), None, None, 1e-5), [1])], [1]).on([])([x])
    assert torch.equal(result, torch.ops.dnnsuite.layer_norm(x, None, None, 1e-5))


def test_each_keeps_its_own_tensors():
    made = program([("aten::add", "Tensor", (Slot(0), Slot(7), 1), [1])], [1], kept=[7])
    first, second = made.on([torch.tensor(10.0)]), made.on([torch.tensor(20.0)])
    assert [float(run([torch.tensor(1.0)])[0]) for run in (first, second, first)] == [11, 21, 11]


def test_a_number_may_be_an_input_wherever_an_operator_takes_one():
    calls = [
        ("aten::mul", "Tensor", (Slot(0), Slot(1)), [2]),  # a tensor of it
        ("aten::add", "Scalar", (Slot(2), Slot(1), 1), [3]),
        ("aten::leaky_relu", "", (Slot(3), Slot(1)), [4]),
        ("aten::gelu", "", (Slot(4), "none"), [5]),
        ("aten::_foreach_mul", "ScalarList", ([Slot(4)], [Slot(1)]), [[6]]),
        ("aten::upsample_nearest1d", "vec", (Slot(0), None, [Slot(1)]), [7]),  # a whole number for a float
    ]
    x = torch.tensor([[[-2, -1]]])
    results = program(calls, [2, 6, 7], inputs=(0, 1)).on([])([x.float(), 2])
    expected = torch.nn.functional.leaky_relu(x.float() * 2 + 2, 2) * 2
    assert torch.equal(results[0], x.float() * 2)
    assert torch.equal(results[1], expected)
    assert torch.equal(results[2], x.float().repeat_interleave(2, -1))
    assert program(calls[:1], [2], inputs=(0, 1)).on([])([x, 0.5])[0].dtype == torch.float32


def test_results_that_nobody_reads_are_left_out():
    calls = [
        ("aten::unbind", "int", (Slot(0), 0), [[1, 2, None]]),
        ("aten::var_mean", "correction", (Slot(1), None, None, False), [3, 4]),
        ("aten::add_", "Tensor", (Slot(2), Slot(4), 1), [2]),
    ]
    x = torch.arange(6.0).view(3, 2)
    (result,) = program(calls, [2]).on([])([x])
    assert result.tolist() == [2.5, 3.5]
    assert x[1].tolist() == [2.5, 3.5]


def test_what_a_step_begins_with_may_be_a_result():
    x, kept = torch.ones(1), torch.zeros(1)
    results = program([], [0, 7], kept=[7]).on([kept])([x, "not looked at"])
    assert results[0] is x
    assert results[1] is kept


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([("aten::no_such", "", (), [1])], "torch has no operator aten::no_such"),
        ([("aten::add", "no_such", (), [1])], r"torch has no operator aten::add\.no_such"),
        ([("aten::add", "Tensor", (Slot(0), Slot(0)), [1])], "aten::add takes 3 arguments, not 2"),
        ([("aten::neg", "", (Slot(0),), [1, 2])], "aten::neg returns 1 results, not 2"),
        ([("aten::neg", "", (Slot(5),), [1])], "nothing has made slot 5"),
        ([("aten::neg", "", ([Slot(0)],), [1])], "a list of tensors stands for Tensor"),
    ],
)
def test_a_list_that_cannot_be_run_is_refused(calls, message):
    with pytest.raises(ValueError, match=message):
        program(calls, [1])


def test_an_argument_of_another_kind_is_refused():
    with pytest.raises(RuntimeError):
        program([("aten::neg", "", ("text",), [1])], [1])


def test_other_numbers_of_tensors_are_refused():
    made = program([ADD], [1], kept=[7])
    with pytest.raises(ValueError, match="the step keeps 1 tensors, not 0"):
        made.on([])
    with pytest.raises(ValueError, match="the step takes 1 inputs, not 0"):
        made.on([torch.ones(1)])([])
    with pytest.raises(TypeError, match="not a tensor"):
        made.on([3])


def test_an_error_leaves_nothing_but_what_was_written(operator):
    held = []

    def fail(x):
        held.append(StorageWeakRef(x.untyped_storage()))
        if len(held) == 1:
            raise ArithmeticError("once")
        return x.clone()

    kept = torch.zeros(1)
    calls = [ADD, ("aten::add_", "Tensor", (Slot(7), Slot(1), 1), [7]), operator("fail", fail)(1, 2)]
    run = program(calls, [2], kept=[7]).on([kept])
    with pytest.raises(
        RuntimeError, match=r"^dnnsuite_replay_test\.fail in a captured step: ArithmeticError: once$"
    ) as e:
        run([torch.ones(1)])
    assert isinstance(e.value.__cause__, ArithmeticError)
    del e
    assert kept.tolist() == [2]
    assert torch.zeros(1, requires_grad=True).exp().requires_grad
    assert run([torch.ones(1)])[0].tolist() == [2]
    assert kept.tolist() == [4]
    assert all(one.expired() for one in held)


def test_an_interrupt_stays_one(operator):
    def interrupt(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program([operator("interrupt", interrupt)(0, 1)], [1]).on([])([torch.ones(1)])


def test_a_tensor_is_freed_after_its_last_use(operator):
    seen, alive = [], []

    def look(x):
        alive.append(sum(not one.expired() for one in seen))
        seen.append(StorageWeakRef(x.untyped_storage()))
        return x + 1

    look_at = operator("look", look)
    calls = [look_at(slot, slot + 1) for slot in range(1, 6)]
    run = program([ADD, *calls, ("aten::mul", "Tensor", (Slot(6), Slot(6)), [7])], [7]).on([])
    assert run([torch.ones(1)])[0].tolist() == [49]
    assert alive == [0] * 5


def test_threads_run_one_program_at_a_time_each(operator):
    barrier, results = threading.Barrier(3, timeout=60), {}

    def meet(x):
        barrier.wait()
        return x + 1

    run = program([ADD, operator("meet", meet)(1, 2)], [2]).on([])
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: float(run([torch.tensor(float(n))])[0])}))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: 1, 1: 3, 2: 5}


@pytest.fixture
def no_switches():
    """Python's lock goes to another thread only where it is released."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def test_pythons_lock_is_released(no_switches):
    turns, done = [0], threading.Event()

    def take_turns():
        while not done.is_set():
            turns[0] += 1
            time.sleep(0)

    run = program([("aten::mm", "", (Slot(0), Slot(0)), [1])], [1]).on([])
    thread, x = threading.Thread(target=take_turns), torch.randn(200, 200)
    thread.start()
    try:
        for _ in range(10_000):
            before = turns[0]
            run([x])
            if turns[0] > before:
                break
        else:
            pytest.fail("no other thread got a turn")
    finally:
        done.set()
        thread.join()


def test_neither_autograd_nor_autocast_sees_it():
    run = program([("aten::mm", "", (Slot(0), Slot(0)), [1])], [1]).on([])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (result,) = run([torch.eye(2, requires_grad=True)])
    assert (result.dtype, result.requires_grad) == (torch.float32, False)


def test_a_warning_of_torchs_is_one_of_pythons():
    run = program([("aten::add", "out", (Slot(0), Slot(0), 1, Slot(7)), [7])], [7], kept=[7])
    with pytest.warns(UserWarning, match="was resized"):
        assert run.on([torch.zeros(3)])([torch.ones(2)])[0].tolist() == [2, 2]
    run = run.on([torch.zeros(3)])
    with pytest.raises(UserWarning, match="was resized"):  # they are errors in tests
        run([torch.ones(2)])
