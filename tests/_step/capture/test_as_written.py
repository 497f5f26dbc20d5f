# SPDX-License-Identifier: MIT
"""Steps with an effect that a replay would not have: they run as written, and the runner says why."""

import ctypes
import logging
import re
import types

import pytest
import torch

import dnnsuite
from captured_steps import STEPS, adam, batches, check, cross_entropy, mlp, train
from dnnsuite import optim
from dnnsuite._step.capture import library, record, script
from dnnsuite._step.capture import step as step_module
from helpers import make_models


def test_batches_of_many_shapes_run_as_written():
    check(mlp, adam, "warming up", data=[batches(3, 1, (n, 6))[0] for n in range(1, 13)])


def test_what_reads_values_runs_as_written():
    def loss(array, x, y):
        values = cross_entropy(array, x, y)
        return values * (2.0 if float(values.detach().sum()) > 4 else 1.0)

    check(
        mlp,
        adam,
        "eager: aten._local_scalar_dense hands a tensor's value to Python (as .item() does) at test_as_written.py:…",
        loss=loss,
    )


def test_what_writes_into_its_batch_runs_as_written():
    """The comparison would do it twice."""

    def loss(array, x, y):
        return cross_entropy(array, x.mul_(2), y)

    losses = []
    for capture in (True, False):
        array = dnnsuite.fuse(make_models(mlp, 3))
        optimizer = adam(array, 3)
        with dnnsuite.StepRunner(array, optimizer, loss, threads=1, width=3, capture=capture) as runner:
            data = [tuple(t.clone() for t in batch) for batch in batches(3, STEPS)]
            losses.append(torch.stack([runner.step(*batch).losses() for batch in data]))
            if capture:
                assert runner.mode.startswith("eager: the step writes into its batch at test_as_written.py:")
    assert torch.equal(*losses)


def test_what_draws_from_torchs_generator_runs_as_written():
    def loss(array, x, y):
        return cross_entropy(array, x + torch.randn_like(x), y)

    _, mode = train(mlp, adam, True, loss=loss)
    assert re.fullmatch(r"eager: aten.randn_like draws from torch's generator at test_as_written.py:\d+ in loss", mode)


def test_hooks_are_called_in_every_step():
    calls = []

    def prepare(array):
        array.get_submodule("1").register_forward_hook(lambda module, inputs, output: calls.append(1))

    _, mode = train(mlp, adam, True, prepare=prepare)
    assert mode == "eager: there is a hook on 1"
    assert len(calls) == STEPS


def test_a_hook_that_comes_later_is_seen():
    calls = []

    def between(index, array, optimizer, runner):
        if index == 4:
            array.get_submodule("1").register_forward_hook(lambda module, inputs, output: calls.append(1))

    _, mode = train(mlp, adam, True, between=between)
    assert mode == "eager: there is a hook on 1"
    assert len(calls) == STEPS - 5


class Counting(torch.nn.Module):
    array_forward = True

    def __init__(self):
        super().__init__()
        self.inner, self.calls = torch.nn.Linear(6, 4), 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x) * self.calls


class Collecting(Counting):
    def forward(self, x):
        self.calls += 1
        return self.inner(x)


class Naming(Counting):
    def forward(self, x):
        self.calls = f"{self.calls}1"
        return self.inner(x)


@pytest.mark.parametrize(
    ("make", "mode"),
    [(Counting, "captured"), (Collecting, "captured"), (Naming, "eager: a step changes the Python value calls")],
)
def test_python_state_that_a_step_changes(make, mode):
    check(make, adam, mode)


def test_a_loss_function_that_writes_down_what_it_sees():
    seen = []

    def loss(array, x, y):
        seen.append(1)
        return cross_entropy(array, x, y)

    _, mode = train(mlp, adam, True, loss=loss)
    assert mode == "eager: the loss function changes a value outside of it"
    assert len(seen) == STEPS


def test_data_that_changes_only_in_python():
    logging.late_numbers_of_tests = iter(range(100))  # guards do not look into installed packages

    def loss(array, x, y):
        return cross_entropy(array, x, y) + torch.tensor(float(next(logging.late_numbers_of_tests)))

    _, mode = train(mlp, adam, True, loss=loss)
    assert mode.startswith("eager: a tensor [] is another one in the next step at "), mode


def test_an_effect_that_no_operator_names_is_noticed():
    """A write through a pointer is not recorded; then a replay leaves other bits, and is not made."""

    class Hidden(optim.SGD):
        def step_groups(self, groups, *args, **kwargs):
            super().step_groups(groups, *args, **kwargs)
            for group in groups:
                for p in group["params"]:
                    (ctypes.c_float * p.numel()).from_address(p.data_ptr())[0] *= 0.5

    check(mlp, lambda array, B: Hidden(array.parameters(), lr=0.05), "eager: a replay gives other bits…")


def test_a_value_that_is_another_one_in_each_step_is_given_up():
    factor = ["0"]

    def loss(array, x, y):
        return cross_entropy(array, x, y) * float(factor[0])

    def between(index, array, optimizer, runner):
        factor[0] += "1"

    _, mode = train(mlp, adam, True, loss=loss, between=between, data=batches(3, 12))
    assert mode == "eager: values that the loss function sees keep changing"


ERRORS = [
    AttributeError("no attribute 'arguments'"),
    TypeError("incompatible arguments"),
    ValueError("other"),
    StopIteration(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["a schema", "a program", "a replay"])
def test_a_step_runs_as_written_whatever_torch_fails_with(monkeypatch, name, error):
    """Schemas are private to torch: another version may have other ones."""

    def fail(*_):
        raise error

    if name == "a schema":
        monkeypatch.setattr(record, "operator_of", fail)
    else:
        program = fail if name == "a program" else lambda plan: types.SimpleNamespace(on=lambda kept: fail)
        monkeypatch.setattr(script, "program_of", program)
    monkeypatch.setattr(library, "SHARED", [])
    eager, _ = train(mlp, adam, False)
    found, mode = train(mlp, adam, True)
    assert all(map(torch.equal, eager, found))
    assert mode.startswith("eager: ")
    assert type(error).__name__ in mode
    assert str(error) in mode


def test_a_torch_without_a_name_that_capture_needs_runs_steps_as_written(monkeypatch):
    monkeypatch.setattr(step_module, "no_capture", "torch 9.9 has no torch._C._DisableTorchDispatch")
    eager, _ = train(mlp, adam, False)
    found, mode = train(mlp, adam, True)
    assert all(map(torch.equal, eager, found))
    assert mode == "eager: torch 9.9 has no torch._C._DisableTorchDispatch"
