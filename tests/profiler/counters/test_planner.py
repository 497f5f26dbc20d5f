# SPDX-License-Identifier: MIT
"""Plans against the real library: those recorded for its version, and laws that hold for any."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupti_plans import missing, needs_cupti, plans_of, recorded
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.counters import PRESETS, ROLES, catalogue, plan, resolve
from dnnsuite.profiler.counters.planner import plan_kernels

CHIPS = () if missing() else catalogue.chips()
pytestmark = needs_cupti


@pytest.mark.parametrize("chip", CHIPS)
def test_plans_of_all_presets_are_those_recorded(chip):
    found = plans_of(chip)  # a preset that no longer resolves fails here, whatever the version
    path = recorded(catalogue.version())
    if not path.is_file():
        pytest.skip(f"no plans recorded for CUPTI {catalogue.version()}: python tests/support/cupti_plans.py")
    assert found == json.loads(path.read_text())[chip]["plans"]


def test_the_seed_question_takes_one_pass_from_ampere_on():
    for chip in ("GA100", "GA102", "AD102", "GH100", "GB100"):
        assert plans_of(chip, ["cores"])["cores"][0] == 1
    for chip in ("GV100", "TU102", "GB202"):
        assert [passes for _, passes, _ in plans_of(chip, ["cores"])["cores"][1]] == [1, 1]  # in turn, not twice


ON_GH100 = [] if missing() else [resolve(role, "GH100") for role in ROLES]


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(ON_GH100 or [""]), min_size=1, max_size=10, unique=True))
def test_every_metric_is_in_one_group_and_each_group_takes_what_it_says(metrics):
    made = plan(metrics, "GH100")
    assert sorted(metric for group in made.groups for metric in group.metrics) == sorted(metrics)
    for group in made.groups:
        config = catalogue.host("GH100").configure(list(group.metrics))
        assert config is not None
        assert config[0] == group.passes
        alone = [catalogue.host("GH100").configure([metric])[0] for metric in group.metrics]
        assert group.passes == max(alone)  # nothing waits for a pass that it does not need itself
    assert made.steps <= sum(catalogue.host("GH100").configure([metric])[0] for metric in metrics)


def test_what_is_counted_for_the_device_has_groups_of_its_own():
    made = plan(["sm__cycles_active.avg", "pcie__read_bytes.sum", "nvlrx__bytes.sum"], "GH100")
    assert made.passes_together is None
    assert [(group.scope, len(group.metrics)) for group in made.groups] == [("context", 1), ("device", 2)]


def test_weights_are_counted_with_every_group_that_has_room():
    weight = "gpc__cycles_elapsed.max"
    cores = [resolve(role, "GB202") for role in PRESETS["cores"]]
    made = plan(cores, "GB202", in_every_group=[weight])
    assert len(made.groups) == 2
    assert all(weight in group.metrics for group in made.groups)
    assert list(made.metrics).count(weight) == 1


def test_kernels_are_replayed_for_all_passes_and_leave_the_device_out():
    metrics = [resolve(role, "GH100") for role in (*PRESETS["cores"], "alu", "pcie_read")]
    made = plan_kernels(metrics, "GH100")
    assert [(group.metrics, group.passes) for group in made.groups] == [(tuple(metrics[:-1]), 2)]
    with pytest.raises(InvalidArgument, match="pcie__read_bytes"):
        plan_kernels(metrics[-1:], "GH100")


def test_a_bad_name_is_refused_before_anything_is_planned():
    with pytest.raises(InvalidArgument, match="did you mean"):
        plan(["sm__cycles_activ.avg"], "GH100")


def test_as_json():
    made = plan(["sm__cycles_active.avg"], "GH100").to_dict()
    assert made == {
        "chip": "GH100",
        "collection": "ranges",
        "passes_together": 1,
        "steps": 1,
        "groups": [{"metrics": ["sm__cycles_active.avg"], "passes": 1, "scope": "context"}],
    }
    assert json.loads(json.dumps(made)) == made
