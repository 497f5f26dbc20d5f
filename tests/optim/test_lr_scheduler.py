# SPDX-License-Identifier: MIT
"""Every schedule against B separate ones of torch, arguments differing between the models."""

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from array_parameters import array_parameters
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from dnnsuite.optim import lr_scheduler as ours
from schedules import CASES, B, alone, compare, fused, make, one_of, step_all, theirs, warm_up_then


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
@pytest.mark.parametrize("case", CASES)
def test_is_torchs_for_every_model(case, kind):
    arguments = CASES[case]
    array, others = fused(kind), [alone(kind, index) for index in range(B)]
    schedule = make(ours, case, array, arguments)
    schedules = [
        make(theirs, case, other, {name: one_of(value, index) for name, value in arguments.items()})
        for index, other in enumerate(others)
    ]
    compare(array, others)
    for _ in range(13):
        step_all(array, others, schedule, schedules)
    last = [s.get_last_lr()[0] for s in schedules]
    assert schedule.get_last_lr()[0].tolist() == pytest.approx(last, rel=1e-12)


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_an_epoch_out_of_order_is_torchs_too(case):
    arguments = CASES[case]
    array, others = fused(), [alone("Adam", index) for index in range(B)]
    schedule = make(ours, case, array, arguments)
    schedules = [
        make(theirs, case, other, {name: one_of(value, index) for name, value in arguments.items()})
        for index, other in enumerate(others)
    ]
    step_all(array, others, schedule, schedules)
    for epochs in ([5, 2, 9], [1, 12, 3], 7):
        schedule.step(epochs)
        for index, one in enumerate(schedules):
            one.step(one_of(epochs, index))
        compare(array, others)
    with pytest.raises(InvalidArgument, match="whole number"):
        schedule.step(-1)
    assert schedule.last_epoch.tolist() == [7, 7, 7]


@given(
    st.lists(st.tuples(st.floats(1e-6, 10), st.integers(1, 6), st.floats(0.01, 2)), min_size=1, max_size=4),
    st.integers(0, 15),
)
@settings(max_examples=12)
def test_step_lr_is_torchs_to_the_bit(models, epochs):
    lr, step_size, gamma = (list(values) for values in zip(*models, strict=True))
    optimizer = fused("SGD", lr, len(models))
    schedule = ours.StepLR(optimizer, step_size, gamma)
    others = [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=value) for value in lr]
    schedules = [theirs.StepLR(o, s, g) for o, s, g in zip(others, step_size, gamma, strict=True)]
    for _ in range(epochs):
        optimizer.step()
        schedule.step()
        for one, its in zip(others, schedules, strict=True):
            one.step()
            its.step()
    assert optimizer.param_groups[0]["lr"].tolist() == [o.param_groups[0]["lr"] for o in others]


@pytest.mark.parametrize("case", ["StepLR", "LinearLR", "CosineAnnealingLR", "PolynomialLR", "ExponentialLR"])
def test_goes_on_from_an_epoch(case):
    arguments = CASES[case]
    array, others = fused(), [alone("Adam", index) for index in range(B)]
    for group, rate in ((array.param_groups[0], torch.tensor([0.2, 0.3, 0.4], dtype=torch.float64)),):
        group["initial_lr"] = rate
    for other, rate in zip(others, (0.2, 0.3, 0.4), strict=True):
        other.param_groups[0]["initial_lr"] = rate
    schedule = make(ours, case, array, {**arguments, "last_epoch": 1})
    schedules = [
        make(theirs, case, o, {**{n: one_of(v, i) for n, v in arguments.items()}, "last_epoch": 1})
        for i, o in enumerate(others)
    ]
    for _ in range(3):
        step_all(array, others, schedule, schedules)
    with pytest.raises(InvalidArgument, match="no initial_lr"):
        ours.StepLR(fused(), 2, last_epoch=3)


def test_sequential_is_torchs_with_milestones_of_each_model():
    array, others = fused(), [alone("Adam", index) for index in range(B)]
    schedule = warm_up_then(ours, array)
    schedules = [warm_up_then(theirs, other, index) for index, other in enumerate(others)]
    compare(array, others)
    for _ in range(12):
        step_all(array, others, schedule, schedules)


@pytest.mark.filterwarnings("ignore:Detected call of")  # torch's own, of the chain within its sequence
def test_sequential_of_restarts_and_chains():
    def build(module, optimizer):
        chain = module.ChainedScheduler([module.ConstantLR(optimizer, 0.5, 3), module.ExponentialLR(optimizer, 0.9)])
        return module.SequentialLR(optimizer, [chain, module.CosineAnnealingWarmRestarts(optimizer, 3)], [50])

    array, others = fused(), [alone("Adam", index) for index in range(B)]
    schedule, schedules = build(ours, array), [build(theirs, other) for other in others]
    for _ in range(5):
        step_all(array, others, schedule, schedules)


def test_chained_is_torchs():
    def build(module, optimizer):
        return module.ChainedScheduler([module.ConstantLR(optimizer, 0.1, 2), module.ExponentialLR(optimizer, 0.9)])

    array, others = fused(), [alone("Adam", index) for index in range(B)]
    schedule, schedules = build(ours, array), [build(theirs, other) for other in others]
    for _ in range(5):
        step_all(array, others, schedule, schedules)


@given(
    st.sampled_from(["min", "max"]),
    st.sampled_from(["rel", "abs"]),
    st.lists(st.tuples(*[st.floats(-3, 3)] * 3), min_size=1, max_size=12),
)
@settings(max_examples=15)
def test_plateau_is_torchs_with_a_metric_per_model(mode, threshold_mode, history):
    arguments = {
        "factor": [0.5, 0.1, 0.9],
        "patience": [0, 1, 2],
        "threshold": [1e-4, 0.1, 0.5],
        "cooldown": [0, 2, 1],
        "min_lr": [0.0, 0.2, 0.0],
        "eps": [1e-8, 1e-8, 1e-3],
    }
    array, others = fused(), [alone("Adam", index) for index in range(B)]
    schedule = ours.ReduceLROnPlateau(array, mode, threshold_mode=threshold_mode, **arguments)
    schedules = [
        theirs.ReduceLROnPlateau(o, mode, threshold_mode=threshold_mode, **{n: v[i] for n, v in arguments.items()})
        for i, o in enumerate(others)
    ]
    for metrics in history:
        schedule.step(torch.tensor(metrics, dtype=torch.float64))
        for one, metric in zip(schedules, metrics, strict=True):
            one.step(metric)
        compare(array, others)
    assert schedule.num_bad_epochs.tolist() == [s.num_bad_epochs for s in schedules]


def test_functions_of_all_models_and_of_groups():
    params = array_parameters(torch.ones(2, 3), torch.ones(2, 3))
    optimizer = optim.SGD([{"params": [params[0]]}, {"params": [params[1]], "lr": 2.0}], lr=1.0)
    schedule = ours.LambdaLR(optimizer, [lambda e: 0.5**e, lambda e: [1.0, 0.1]])
    schedule.step()
    assert [group["lr"].tolist() for group in optimizer.param_groups] == [[0.5, 0.5], [2.0, 0.2]]


@pytest.mark.parametrize("case", CASES)
def test_goes_on_from_a_safe_file(case):
    first, second = fused(), fused()
    schedule, again = make(ours, case, first, CASES[case]), make(ours, case, second, CASES[case])
    for _ in range(4):
        schedule.step()
    file = io.BytesIO()
    torch.save([schedule.state_dict(), first.state_dict()], file)
    file.seek(0)
    state, optimizer = torch.load(file, weights_only=True)
    second.load_state_dict(optimizer)
    again.load_state_dict(state)
    for _ in range(4):
        schedule.step()
        again.step()
    assert torch.equal(first.param_groups[0]["lr"], second.param_groups[0]["lr"])


def test_combined_ones_go_on_from_their_state():
    first, second = fused(), fused()
    schedule, again = warm_up_then(ours, first), warm_up_then(ours, second)
    for _ in range(4):
        schedule.step()
    second.load_state_dict(first.state_dict())
    again.load_state_dict(schedule.state_dict())
    for _ in range(4):
        schedule.step()
        again.step()
    assert torch.equal(first.param_groups[0]["lr"], second.param_groups[0]["lr"])


def test_an_epoch_of_its_own_for_each_model():
    array, others = fused(), [alone("Adam", index) for index in range(B)]
    starts = [3, -1, 7]
    array.param_groups[0]["initial_lr"] = array.param_groups[0]["lr"].clone()
    for other in others:
        other.param_groups[0]["initial_lr"] = other.param_groups[0]["lr"]
    schedule = ours.StepLR(array, [2, 1, 4], 0.5, last_epoch=starts)
    schedules = [
        theirs.StepLR(other, [2, 1, 4][index], 0.5, last_epoch=starts[index]) for index, other in enumerate(others)
    ]
    compare(array, others)
    for _ in range(4):
        step_all(array, others, schedule, schedules)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda o: ours.StepLR(torch.optim.SGD([torch.ones(2)]), 1), r"torch\.optim\.lr_scheduler"),
        (lambda o: ours.StepLR(o, [3, 0, 1]), "step_size of model 1 is 0"),
        (lambda o: ours.ConstantLR(o, [0.5, 0.5, 2.0]), "factor of model 2 is 2"),
        (lambda o: ours.LinearLR(o, 0.0), "start_factor of model 0"),
        (lambda o: ours.MultiStepLR(o, [[1], [2]]), "2 lists for 3 models"),
        (lambda o: ours.CosineAnnealingWarmRestarts(o, 1.5), "T_0 of model 0 is 1.5"),
        (lambda o: ours.LambdaLR(o, (abs,)), "1 functions for 3 models"),
        (lambda o: ours.LambdaLR(o, [abs, abs]), "list of 2 for 1 groups"),
        (lambda o: ours.CyclicLR(o, 0.1, 0.2, mode="saw"), "mode is 'saw'"),
        (lambda o: ours.CyclicLR(optim.Adagrad(array_parameters(torch.ones(3))), 0.1, 0.2), "neither momentum"),
        (lambda o: ours.OneCycleLR(o, 0.1), "total_steps"),
        (lambda o: ours.ReduceLROnPlateau(o, factor=[0.5, 1.0, 0.5]), "factor of model 1"),
        (lambda o: ours.ReduceLROnPlateau(o).step(1.0), "one per model"),
        (lambda o: ours.SequentialLR(o, [ours.StepLR(o, 1)], [3]), "0 milestones"),
        (lambda o: ours.ChainedScheduler([ours.ReduceLROnPlateau(o)]), "without a metric"),
        (lambda o: ours.ChainedScheduler([ours.StepLR(fused(), 1), ours.StepLR(o, 1)]), "another"),
    ],
)
def test_refuses(build, message):
    with pytest.raises(InvalidArgument, match=message):
        build(fused())


def test_one_cycle_ends():
    schedule = ours.OneCycleLR(fused(), 0.1, total_steps=[2, 3, 3])
    schedule.step()
    schedule.step()
    with pytest.raises(InvalidArgument, match=r"models \[0\] have had their total_steps"):
        schedule.step()
