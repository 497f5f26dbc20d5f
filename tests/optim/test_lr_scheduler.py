# SPDX-License-Identifier: MIT
"""Every schedule against B separate ones of torch, arguments differing between the models."""

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from dnnsuite.optim import lr_scheduler as ours

theirs = torch.optim.lr_scheduler
LR = [0.1, 1.0, 0.003]
B = 3

CASES = {
    "StepLR": {"step_size": [2, 1, 4], "gamma": [0.5, 0.9, 2.0]},
    "MultiStepLR": {"milestones": [[2, 5, 5], [1], [3, 4]], "gamma": [0.5, 0.9, 0.1]},
    "ConstantLR": {"factor": [0.5, 1.0, 0.1], "total_iters": [3, 5, 1]},
    "LinearLR": {"start_factor": [0.5, 0.1, 1.0], "end_factor": [1.0, 0.5, 0.0], "total_iters": [4, 2, 6]},
    "ExponentialLR": {"gamma": [0.9, 0.5, 1.1]},
    "PolynomialLR": {"total_iters": [4, 8, 2], "power": [1.0, 2.0, 0.5]},
    "CosineAnnealingLR": {"T_max": [3, 5, 20], "eta_min": [0.0, 0.1, 0.001]},
    "CosineAnnealingWarmRestarts": {"T_0": [2, 3, 1], "T_mult": [1, 2, 3], "eta_min": [0.0, 0.1, 0.001]},
    "LambdaLR": {"lr_lambda": (lambda e: 0.9**e, lambda e: 1 / (e + 1), lambda e: 2.0)},
    "MultiplicativeLR": {"lr_lambda": (lambda e: 0.9, lambda e: 1 / (e + 1), lambda e: 1.5)},
    "CyclicLR": {
        "base_lr": [0.1, 0.2, 0.0], "max_lr": [0.5, 1.0, 0.1], "step_size_up": [2, 4, 1],
        "step_size_down": [3, 1, 5], "base_momentum": [0.8, 0.5, 0.7],
    },
    "CyclicLR, triangular2": {"base_lr": 0.1, "max_lr": [0.5, 1.0, 0.3], "step_size_up": 2, "mode": "triangular2"},
    "CyclicLR, exp_range": {
        "base_lr": 0.1, "max_lr": 0.5, "step_size_up": 3, "mode": "exp_range", "gamma": [0.9, 0.5, 1.0],
    },
    "CyclicLR, own": {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 2, "scale_fn": lambda x: 1 / x},
    "OneCycleLR": {
        "max_lr": [0.5, 1.0, 0.1], "total_steps": [14, 20, 17], "pct_start": [0.3, 0.5, 0.25],
        "div_factor": [25.0, 10.0, 4.0], "max_momentum": [0.95, 0.9, 0.99],
    },
    "OneCycleLR, linear": {"max_lr": 0.5, "epochs": 5, "steps_per_epoch": [3, 4, 5], "anneal_strategy": "linear"},
    "OneCycleLR, three": {"max_lr": [0.5, 1.0, 0.1], "total_steps": 15, "three_phase": True},
}  # fmt: skip


def one_of(value, index):
    return value[index] if isinstance(value, (list, tuple)) else value


def make(module, kind, optimizer, arguments):
    return getattr(module, kind.split(",")[0])(optimizer, **arguments)


def fused(kind="Adam", lr=LR, n=B):
    params = [torch.nn.Parameter(torch.ones(n, 2))]
    return optim.SGD(params, lr=lr, momentum=0.9) if kind == "SGD" else optim.Adam(params, lr=lr)


def alone(kind, index):
    params = [torch.nn.Parameter(torch.ones(2))]
    return (
        torch.optim.SGD(params, lr=LR[index], momentum=0.9)
        if kind == "SGD"
        else torch.optim.Adam(params, lr=LR[index])
    )


def compare(array, others):
    group = array.param_groups[0]
    rates = [o.param_groups[0]["lr"] for o in others]
    assert group["lr"].tolist() == pytest.approx(rates, rel=1e-12, abs=1e-18)
    for index, other in enumerate(others):
        its = other.param_groups[0]
        mine, momentum = (
            (group["momentum"], its["momentum"]) if "momentum" in its else (group["beta1"], its["betas"][0])
        )
        assert float(mine[index]) == pytest.approx(momentum, rel=1e-12)


def step_all(array, others, schedule, schedules):
    array.step()
    schedule.step()
    for other, one in zip(others, schedules, strict=True):
        other.step()
        one.step()
    compare(array, others)


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
@settings(max_examples=30)
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


def warm_up_then(module, optimizer, index=None, start=(3, 1, 5)):
    pick = (lambda v: list(v)) if index is None else (lambda v: v[index])
    parts = [
        module.LinearLR(optimizer, 0.1, total_iters=pick([2, 3, 4])),
        module.CosineAnnealingLR(optimizer, pick([5, 6, 7])),
        module.ExponentialLR(optimizer, pick([0.5, 0.9, 0.8])),
    ]
    milestones = [pick(start), pick([v + 4 for v in start])]
    return module.SequentialLR(optimizer, parts, milestones)


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
        chain = module.ChainedScheduler(
            [module.ConstantLR(optimizer, 0.5, 3), module.ExponentialLR(optimizer, 0.9)]
        )
        return module.SequentialLR(optimizer, [chain, module.CosineAnnealingWarmRestarts(optimizer, 3)], [50])

    array, others = fused(), [alone("Adam", index) for index in range(B)]
    schedule, schedules = build(ours, array), [build(theirs, other) for other in others]
    for _ in range(5):
        step_all(array, others, schedule, schedules)


def test_chained_is_torchs():
    def build(module, optimizer):
        return module.ChainedScheduler(
            [module.ConstantLR(optimizer, 0.1, 2), module.ExponentialLR(optimizer, 0.9)]
        )

    array, others = fused(), [alone("Adam", index) for index in range(B)]
    schedule, schedules = build(ours, array), [build(theirs, other) for other in others]
    for _ in range(5):
        step_all(array, others, schedule, schedules)


@given(
    st.sampled_from(["min", "max"]), st.sampled_from(["rel", "abs"]),
    st.lists(st.tuples(*[st.floats(-3, 3)] * 3), min_size=1, max_size=12),
)  # fmt: skip
@settings(max_examples=40)
def test_plateau_is_torchs_with_a_metric_per_model(mode, threshold_mode, history):
    arguments = {
        "factor": [0.5, 0.1, 0.9], "patience": [0, 1, 2], "threshold": [1e-4, 0.1, 0.5],
        "cooldown": [0, 2, 1], "min_lr": [0.0, 0.2, 0.0], "eps": [1e-8, 1e-8, 1e-3],
    }  # fmt: skip
    array, others = fused(), [alone("Adam", index) for index in range(B)]
    schedule = ours.ReduceLROnPlateau(array, mode, threshold_mode=threshold_mode, **arguments)
    schedules = [
        theirs.ReduceLROnPlateau(
            o, mode, threshold_mode=threshold_mode, **{n: v[i] for n, v in arguments.items()}
        )
        for i, o in enumerate(others)
    ]
    for metrics in history:
        schedule.step(torch.tensor(metrics, dtype=torch.float64))
        for one, metric in zip(schedules, metrics, strict=True):
            one.step(metric)
        compare(array, others)
    assert schedule.num_bad_epochs.tolist() == [s.num_bad_epochs for s in schedules]


def test_functions_of_all_models_and_of_groups():
    params = [torch.nn.Parameter(torch.ones(2, 3)) for _ in range(2)]
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


def changed(optimizer, indices, lr):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.data = torch.ones(len(indices), 2)
        fresh = {name: 0.5 if name.startswith("beta") else 0.0 for name in optimizer.per_model} | {"lr": lr}
    optimizer.select(indices, **(fresh if None in indices else {}))


@pytest.mark.parametrize("case", [c for c in CASES if "lr_lambda" not in CASES[c] and "One" not in c])
def test_select_clones_and_begins_anew(case):
    arguments = CASES[case]
    optimizer, reference, young = fused(), fused(), fused(lr=0.7, n=1)
    schedule, other = make(ours, case, optimizer, arguments), make(ours, case, reference, arguments)
    first = {name: one_of(value, 0) for name, value in arguments.items()}
    for _ in range(4):
        schedule.step()
        other.step()
    changed(optimizer, [2, None, 2, 0], 0.7)
    names = [n for n in (*schedule.per_model, "milestones") if hasattr(schedule, n)]
    fresh = {n: first.get(n, float(getattr(schedule, n).flatten()[0])) for n in names}
    if "step_size_down" in fresh and "step_size_down" not in first:
        fresh["step_size_down"] = fresh["step_size_up"]
    schedule.select([2, None, 2, 0], **fresh)
    its = make(ours, case, young, first)
    for _ in range(3):
        for one in (schedule, other, its):
            one.step()
    mine, old = optimizer.param_groups[0]["lr"], reference.param_groups[0]["lr"]
    assert mine[[0, 2, 3]].tolist() == old[[2, 2, 0]].tolist()
    assert float(mine[1]) == pytest.approx(float(young.param_groups[0]["lr"][0]), rel=1e-12)


def test_select_of_functions_and_combined_ones():
    optimizer = fused()
    schedule = ours.LambdaLR(optimizer, CASES["LambdaLR"]["lr_lambda"])
    combined = ours.ChainedScheduler([ours.ExponentialLR(optimizer, [0.5, 0.9, 1.0])])
    changed(optimizer, [1, None], 0.5)
    schedule.select([1, None], functions=[lambda e: 10.0 * (e + 1)])
    assert optimizer.param_groups[0]["lr"].tolist() == [1.0, 5.0]
    combined.select([1, None], schedulers=[{"gamma": 0.1}])
    combined.step()
    assert optimizer.param_groups[0]["lr"].tolist() == pytest.approx([0.9, 0.5])
    optimizer = fused()
    sequence = warm_up_then(ours, optimizer)
    changed(optimizer, [2, 0], 0.5)
    with pytest.raises(InvalidArgument, match="needs milestones: the others' differ"):
        sequence.select([2, None], schedulers=[{"total_iters": 2}, {"T_max": 5}, {"gamma": 0.5}])
    with pytest.raises(InvalidArgument, match="milestones are"):
        sequence.select([2, None], [{"total_iters": 2}, {"T_max": 5}, {"gamma": 0.5}], milestones=[1])
    sequence.select([2, 0])
    sequence.step()
    with pytest.raises(InvalidArgument, match="needs gamma"):
        ours.ExponentialLR(optimizer, [0.5, 0.6]).select([0, None])


def sequence_of(module, o, i):
    pick = (lambda values: list(values)) if i is None else (lambda values: values[i])
    parts = [
        module.LinearLR(o, pick([0.1, 0.2, 0.5]), total_iters=3),
        module.ExponentialLR(o, pick([0.9, 0.5, 0.8])),
    ]
    return module.SequentialLR(o, parts, [pick([2, 3, 4])])


def chain_of(module, o, i):
    pick = (lambda values: list(values)) if i is None else (lambda values: values[i])
    warm = module.ConstantLR(o, pick([0.5, 0.25, 0.1]), total_iters=pick([2, 3, 1]))
    return module.ChainedScheduler([warm, module.ExponentialLR(o, pick([0.9, 0.5, 0.8]))], optimizer=o)


def sequence_of_chains(module, o, i):
    pick = (lambda values: list(values)) if i is None else (lambda values: values[i])
    first = module.ChainedScheduler(
        [module.LinearLR(o, 0.5, total_iters=3), module.ExponentialLR(o, pick([0.9, 0.8, 0.7]))]
    )
    last = module.CosineAnnealingWarmRestarts(o, pick([2, 3, 4]), 2)
    return module.SequentialLR(o, [first, last], [pick([3, 2, 4])])


COMBINED = {
    "sequence": (sequence_of, lambda i: {
        "schedulers": [{"start_factor": [0.1, 0.2, 0.5][i]}, {"gamma": [0.9, 0.5, 0.8][i]}],
        "milestones": [[2, 3, 4][i]],
    }),
    "chain": (chain_of, lambda i: {
        "schedulers": [
            {"factor": [0.5, 0.25, 0.1][i], "total_iters": [2, 3, 1][i]}, {"gamma": [0.9, 0.5, 0.8][i]}
        ],
    }),
    "sequence of chains": (sequence_of_chains, lambda i: {
        "schedulers": [{"schedulers": [{}, {"gamma": [0.9, 0.8, 0.7][i]}]}, {"T_0": [2, 3, 4][i]}],
        "milestones": [[3, 2, 4][i]],
    }),
}  # fmt: skip


def one_cycle_arguments(arguments, index):
    """The fresh model's arguments under the names that `select` takes."""
    chosen = {name: one_of(value, index) for name, value in arguments.items()}
    if "epochs" in chosen:
        chosen["total_steps"] = chosen.pop("epochs") * chosen.pop("steps_per_epoch")
    return {
        n: v for n, v in chosen.items() if n not in ("mode", "scale_fn", "anneal_strategy", "three_phase")
    }


def made_with(case, module, optimizer, index):
    if case in COMBINED:
        return COMBINED[case][0](module, optimizer, index)
    arguments = CASES[case]
    return make(
        module, case, optimizer, {n: v if index is None else one_of(v, index) for n, v in arguments.items()}
    )


def fresh_for(case, index):
    if case in COMBINED:
        return COMBINED[case][1](index)
    fresh = one_cycle_arguments(CASES[case], index)
    if "lr_lambda" in fresh:
        return {"functions": [fresh["lr_lambda"]]}
    if "Cyclic" in case:
        fresh.setdefault("step_size_down", fresh["step_size_up"])
    return fresh


@pytest.mark.filterwarnings("ignore:Detected call of:UserWarning")
@pytest.mark.parametrize("kind", ["Adam", "SGD"])
@pytest.mark.parametrize("case", [*CASES, *COMBINED])
@given(
    before=st.integers(0, 6),
    index=st.integers(0, 2),
    lr=st.floats(0.01, 2.0),
    slot=st.sampled_from([None, 0, 1, 2]),
)
@settings(max_examples=6, deadline=None)
def test_a_model_that_joins_follows_torchs_schedule_from_its_beginning(case, kind, before, index, lr, slot):
    """In an array, by `append` or `replace`, while the others go on with theirs."""
    array = dnnsuite.fuse([torch.nn.Linear(2, 1, bias=False) for _ in range(B)])
    optimizer = (
        optim.SGD(array.parameters(), lr=LR, momentum=0.9)
        if kind == "SGD"
        else optim.Adam(array.parameters(), lr=LR)
    )
    schedule = made_with(case, ours, optimizer, None)
    others = [alone(kind, i) for i in range(B)]
    theirs_of = [made_with(case, theirs, other, i) for i, other in enumerate(others)]
    for _ in range(before):
        step_all(optimizer, others, schedule, theirs_of)
    start = {"momentum": 0.9} if kind == "SGD" else {"betas": (0.9, 0.999)}
    fresh = {**fresh_for(case, index), "lr": lr, **start}
    model = torch.nn.Linear(2, 1, bias=False)
    if slot is None:
        array.append(model, optimizer, schedule, **fresh)
        places = range(B + 1)
    else:
        array.replace(slot, model, optimizer, schedule, **fresh)
        places = range(B)
    own = torch.nn.Parameter(torch.ones(2))
    new = torch.optim.SGD([own], lr=lr, momentum=0.9) if kind == "SGD" else torch.optim.Adam([own], lr=lr)
    joined = B if slot is None else slot
    others = [new if place == joined else others[place] for place in places]
    theirs_of = [
        made_with(case, theirs, new, index) if place == joined else theirs_of[place] for place in places
    ]
    compare(optimizer, others)
    for _ in range(7):
        step_all(optimizer, others, schedule, theirs_of)


def test_an_epoch_of_its_own_for_each_model():
    array, others = fused(), [alone("Adam", index) for index in range(B)]
    starts = [3, -1, 7]
    array.param_groups[0]["initial_lr"] = array.param_groups[0]["lr"].clone()
    for other in others:
        other.param_groups[0]["initial_lr"] = other.param_groups[0]["lr"]
    schedule = ours.StepLR(array, [2, 1, 4], 0.5, last_epoch=starts)
    schedules = [
        theirs.StepLR(other, [2, 1, 4][index], 0.5, last_epoch=starts[index])
        for index, other in enumerate(others)
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
        (
            lambda o: ours.CyclicLR(optim.Adagrad([torch.nn.Parameter(torch.ones(3))]), 0.1, 0.2),
            "neither momentum",
        ),
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
