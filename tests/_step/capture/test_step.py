# SPDX-License-Identifier: MIT
"""Captured steps leave the same bits as steps run as written, or say why they are not captured."""

import ctypes
import re

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from dnnsuite._step.capture import library, record, script
from dnnsuite._step.capture import step as step_module
from helpers import make_models

STEPS = 8


def mlp():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, 4),
    )


def tied():
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6), torch.nn.GELU()
    )
    model[2].weight = model[0].weight
    return model


def encoder():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), layer, torch.nn.Linear(8, 4))


class Branches(torch.nn.Module):
    """No rule: mapped over the models, with views, scalars and constants."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        y = self.inner(x.view(x.size(0), -1)) * 2.0 + torch.arange(4)
        a, b = y.chunk(2, dim=-1)
        return torch.cat([a.sigmoid(), b * torch.tensor(0.5)], dim=-1) * self.scale


def cross_entropy(array, x, y):
    return nn.functional.cross_entropy(array(x).flatten(2) if array.B < 0 else array(x), y)


def adam(array, B):
    return optim.Adam(array.parameters(), lr=[0.1 / (i + 1) for i in range(B)])


def sgd(array, B):
    return optim.SGD(
        array.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=[0.1 * i for i in range(B)]
    )


def adadelta(array, B):
    return optim.Adadelta(array.parameters(), lr=[0.5] * B)


def adamw(array, B):
    half = len(list(array.parameters())) // 2
    parameters = list(array.parameters())
    groups = [{"params": parameters[:half]}, {"params": parameters[half:], "lr": 0.01}]
    return optim.AdamW(groups, lr=0.1, amsgrad=True)


def batches(B, count, shape=(5, 6)):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(B, *shape, generator=generator), torch.randint(4, (B, *shape[:-1]), generator=generator))
        for _ in range(count)
    ]


def train(
    make,
    make_optimizer,
    capture,
    *,
    B=3,
    prepare=None,
    between=None,
    loss=cross_entropy,
    data=None,
    **options,
):
    """Losses, state and optimizer state after some steps, and how they ran."""
    array = dnnsuite.fuse(make_models(make, B), seeds=range(B))
    if prepare is not None:
        prepare(array)
    optimizer = make_optimizer(array, B)
    losses = []
    with StepRunner(
        array, optimizer, loss, capture=capture, **{"width": B, "threads": 1, **options}
    ) as runner:
        for index, batch in enumerate(data or batches(B, STEPS)):
            losses.append(runner.step(*batch).losses().clone())
            if between is not None:
                between(index, array, optimizer, runner)
        mode = runner.mode
    state = [
        *array.state_dict().values(),
        *(b for m in array.modules() for b in m._buffers.values() if b is not None),
    ]
    state += [value for values in optimizer.state.values() for value in values.values()]
    return [*losses, *state], mode


def check(make, make_optimizer, expected="captured", **options):
    eager, _ = train(make, make_optimizer, False, **options)
    captured, mode = train(make, make_optimizer, True, **options)
    for a, b in zip(eager, captured, strict=True):
        assert torch.equal(a, b)
    assert mode == expected or (expected.endswith("…") and mode.startswith(expected[:-1])), mode


def clipped(array, B):
    return optim.Adam(
        array.parameters(), lr=0.1, max_grad_norm=[0.1 * (i + 1) for i in range(B)], on_nan="freeze"
    )


def frozen(array, B):
    optimizer = optim.RMSprop(array.parameters(), lr=0.01)
    optimizer.freeze(1)
    return optimizer


@pytest.mark.parametrize("make_optimizer", [adam, sgd, adadelta, adamw, clipped, frozen])
@pytest.mark.parametrize("make", [mlp, tied, Branches])
def test_same_bits(make, make_optimizer):
    check(make, make_optimizer)


def test_same_bits_for_attention():
    check(
        encoder,
        adam,
        data=batches(2, 6, (3, 4, 6)),
        B=2,
        loss=lambda array, x, y: nn.functional.cross_entropy(array(x).transpose(2, 3), y),
    )


@pytest.mark.parametrize(("width", "threads"), [(1, 1), (1, 2), (2, 2)])
def test_same_bits_in_shards_and_threads(width, threads):
    check(mlp, adam, width=width, threads=threads)


def test_the_trial_of_widths_leaves_room_for_the_capture():
    _, mode = train(mlp, adam, True, B=2, width=None, data=batches(2, 20))
    assert mode == "captured"


def test_a_flag_that_python_reads_is_looked_at_again():
    def run(capture):
        flag = torch.zeros(())

        def loss(array, x, y):
            return cross_entropy(array, x, y) * (3.0 if flag.item() else 1.0)

        def between(index, array, optimizer, runner):
            if index == 5:
                flag.fill_(1)

        return train(mlp, adam, capture, loss=loss, between=between, data=batches(3, 12))

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(map(torch.equal, eager, captured))


def test_a_schedule_between_the_steps():
    def run(capture):
        schedules = []

        def between(index, array, optimizer, runner):
            if not schedules:
                schedules.append(optim.lr_scheduler.StepLR(optimizer, 2, [0.5, 0.1, 0.9]))
            schedules[0].step()
            optimizer.param_groups[0]["weight_decay"] = torch.full((3,), 0.01 * index, dtype=torch.float64)

        return train(mlp, adam, capture, between=between)

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(map(torch.equal, eager, captured))


def test_frozen_layers():
    check(mlp, adam, prepare=lambda array: array.get_submodule("0").requires_grad_(False))


def test_freezing_and_eval_between_the_steps():
    def between(index, array, optimizer, runner):
        if index == 4:
            array.get_submodule("0").requires_grad_(False)
            array.get_submodule("2").eval()

    check(mlp, adam, between=between, expected="captured", data=batches(3, 12))


def test_accumulation():
    check(mlp, adam, accumulate=2, data=[(x[:, :4], y[:, :4]) for x, y in batches(3, STEPS)])


def test_accumulation_is_the_step_of_the_whole_batch():
    def without_dropout(array):
        array.get_submodule("2").eval()

    data = [(x[:, :4], y[:, :4]) for x, y in batches(3, 1)]
    whole, _ = train(mlp, sgd, True, prepare=without_dropout, data=data)
    parts, _ = train(mlp, sgd, True, prepare=without_dropout, data=data, accumulate=2)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


def test_two_layouts_of_batch_are_both_captured():
    data = [batch for pair in zip(batches(3, 6), batches(3, 6, (2, 6)), strict=True) for batch in pair]
    check(mlp, adam, data=data)


def test_batches_of_many_shapes_run_as_written():
    check(mlp, adam, "warming up", data=[batches(3, 1, (n, 6))[0] for n in range(1, 13)])


def test_a_shared_batch_and_other_values():
    def loss(array, x, y, factor, more):
        return cross_entropy(array, x, y) * factor + more["add"].sum((1, 2))

    x, y = batches(1, 1)[0]
    shared = dnnsuite.stack(x[0], B=3), dnnsuite.stack(y[0], B=3)
    data = [(*shared, 2.0, {"add": torch.full((3, 1, 1), float(i))}) for i in range(STEPS)]
    check(mlp, adam, data=data, loss=loss)


def test_what_reads_values_runs_as_written():
    def loss(array, x, y):
        values = cross_entropy(array, x, y)
        return values * (2.0 if values.sum().item() > 4 else 1.0)

    check(
        mlp,
        adam,
        "eager: aten._local_scalar_dense hands a tensor's value to Python (as .item() does) at test_step.py:…",
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
                assert runner.mode.startswith("eager: the step writes into its batch at test_step.py:")
    assert torch.equal(*losses)


def test_what_draws_from_torchs_generator_runs_as_written():
    def loss(array, x, y):
        return cross_entropy(array, x + torch.randn_like(x), y)

    _, mode = train(mlp, adam, True, loss=loss)
    assert re.fullmatch(
        r"eager: aten.randn_like draws from torch's generator at test_step.py:\d+ in loss", mode
    )


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
    [
        (Counting, "captured"),
        (Collecting, "captured"),
        (Naming, "eager: a step changes the Python value calls"),
    ],
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


def test_a_value_that_the_loss_function_closes_over_may_change():
    def run(capture):
        factor = 1.0

        def loss(array, x, y):
            return cross_entropy(array, x, y) * factor

        def between(index, array, optimizer, runner):
            nonlocal factor
            factor = 1.0 if index < 5 else 3.0

        return train(mlp, adam, capture, loss=loss, between=between, data=batches(3, 12))

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(map(torch.equal, eager, captured))


def test_data_that_changes_only_in_python():
    count = iter(range(100))

    def loss(array, x, y):
        return cross_entropy(array, x, y) + torch.tensor(float(next(count)))

    _, mode = train(mlp, adam, True, loss=loss)
    assert mode.startswith("eager: a tensor [] is another one in the next step"), mode


def test_an_error_names_the_operator():
    array = dnnsuite.fuse(make_models(mlp, 2))
    runner = StepRunner(array, adam(array, 2), cross_entropy, threads=1, width=2)
    data = batches(2, 6)
    for batch in data[:5]:
        runner.step(*batch)
    assert runner.mode == "captured"
    with pytest.raises(RuntimeError, match=r"dnnsuite\.cross_entropy in a captured step: .*\b9\b"):
        runner.step(data[5][0], torch.full_like(data[5][1], 9))
    runner.close()


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


@pytest.mark.parametrize("width", [1, 3])
def test_a_scaler_skips_the_step_of_the_model_that_overflows(width):
    def run(capture):
        scaler = optim.GradScaler("cpu", init_scale=[4.0, 8.0, 16.0], growth_interval=3, B=3)
        data = batches(3, STEPS)
        data[5][0][1] = float("inf")
        values, mode = train(mlp, adam, capture, data=data, scaler=scaler, width=width)
        return [*values, scaler.get_scale()], mode

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(eager, captured, strict=True))
    assert captured[-1].tolist() == [16.0, 8.0, 64.0]
    assert all(values[[0, 2]].isfinite().all() for values in captured[:STEPS])


def test_an_optimizers_state_may_be_loaded_between_two_steps():
    def run(capture):
        def between(index, array, optimizer, runner):
            if index == 4:
                runner.synchronize()
                optimizer.load_state_dict(optimizer.state_dict())

        return train(mlp, adam, capture, between=between, data=batches(3, 10))

    (eager, _), (captured, mode) = run(False), run(True)
    assert mode == "captured"
    assert all(map(torch.equal, eager, captured))


class Graph:
    """A graph whose methods are others than those that are known."""

    def __init__(self, error):
        self.error = error

    def nodes(self):
        raise self.error


def fails_to_run(error):
    def made(*_):
        def run(*_):
            raise error

        return run

    return made


ERRORS = [
    AttributeError("no attribute 'nodes'"),
    TypeError("incompatible arguments"),
    ValueError("other"),
    StopIteration(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["parse_ir", "create_function", "a replay", "a schema"])
def test_a_step_runs_as_written_whatever_torchs_interpreter_fails_with(monkeypatch, name, error):
    """Its graphs are private to torch: another version may have other methods, and other arguments."""
    replacement = {
        "parse_ir": lambda text: Graph(error),
        "create_function": lambda *_: next(Graph(error).nodes()),
        "a replay": fails_to_run(error),
        "a schema": lambda *_: next(Graph(error).nodes()),
    }[name]
    if name == "a schema":
        monkeypatch.setattr(record, "operator_of", replacement)
    else:
        monkeypatch.setattr(script, "create_function" if name == "a replay" else name, replacement)
    monkeypatch.setattr(script, "FUNCTIONS", script.Functions())
    monkeypatch.setattr(library, "OUTLINES", library.Outlines())
    monkeypatch.setattr(library, "SHARED", library.SharedRecordings())
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
