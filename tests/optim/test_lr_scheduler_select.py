# SPDX-License-Identifier: MIT
"""Schedules follow models that leave an array, come again, or join it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from dnnsuite.optim import lr_scheduler as ours
from schedules import CASES, LR, B, alone, changed, compare, fused, make, one_of, step_all, theirs, warm_up_then


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
    parts = [module.LinearLR(o, pick([0.1, 0.2, 0.5]), total_iters=3), module.ExponentialLR(o, pick([0.9, 0.5, 0.8]))]
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
    return {n: v for n, v in chosen.items() if n not in ("mode", "scale_fn", "anneal_strategy", "three_phase")}


def made_with(case, module, optimizer, index):
    if case in COMBINED:
        return COMBINED[case][0](module, optimizer, index)
    arguments = CASES[case]
    return make(module, case, optimizer, {n: v if index is None else one_of(v, index) for n, v in arguments.items()})


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
    before=st.integers(0, 6), index=st.integers(0, 2), lr=st.floats(0.01, 2.0), slot=st.sampled_from([None, 0, 1, 2])
)
@settings(max_examples=3, deadline=None)
def test_a_model_that_joins_follows_torchs_schedule_from_its_beginning(case, kind, before, index, lr, slot):
    """In an array, by `append` or `replace`, while the others go on with theirs."""
    array = dnnsuite.fuse([torch.nn.Linear(2, 1, bias=False) for _ in range(B)])
    optimizer = (
        optim.SGD(array.parameters(), lr=LR, momentum=0.9) if kind == "SGD" else optim.Adam(array.parameters(), lr=LR)
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
    theirs_of = [made_with(case, theirs, new, index) if place == joined else theirs_of[place] for place in places]
    compare(optimizer, others)
    for _ in range(7):
        step_all(optimizer, others, schedule, theirs_of)
