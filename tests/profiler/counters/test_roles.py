# SPDX-License-Identifier: MIT
"""Metric names that a chip refuses, and the nearest that it has."""

import json

import pytest

from cupti_plans import missing, needs_cupti, recorded, roles_of
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.profiler.counters import CORES, PRESETS, ROLES, catalogue, overlaps, resolve, select
from dnnsuite.profiler.counters.roles import names, same_role, suggestions, validate

CHIPS = () if missing() else catalogue.chips()
pytestmark = needs_cupti
PCT = ".avg.pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize("chip", CHIPS)
def test_the_roles_of_every_chip_are_those_recorded_and_can_be_collected(chip):
    found = roles_of(chip)
    for role in (
        "time",
        "cycles",
        "gpu_active",
        "sm_active",
        *CORES,
        "alu",
        "fp64",
        "lsu",
        "l2",
        "occupancy",
        "fma_active",
    ):
        assert found[role], f"{chip} lost the role {role}"
    validate([metric for metric in found.values() if metric], chip)
    path = recorded(catalogue.version())
    if path.is_file():
        assert found == json.loads(path.read_text())[chip]["roles"]


def test_names_change_from_chip_to_chip():
    assert resolve("fp16", "GA100") == "sm__inst_executed_pipe_fp16" + PCT
    assert resolve("fp16", "GH100") == "sm__inst_executed_pipe_fma_type_fp16" + PCT
    assert resolve("tensor", "AD102") == "sm__pipe_tensor_cycles_active_v2" + PCT  # the other is deprecated there
    assert resolve("tensor", "GH100") == "sm__pipe_tensor_cycles_active" + PCT
    assert resolve("dram_read", "GB202") == "dram__bytes_op_read.sum"
    assert resolve("dram_read", "GH100") == "dram__bytes_read.sum"


def test_no_role_uses_a_metric_that_its_chip_calls_deprecated():
    for chip in CHIPS:
        for role, metric in roles_of(chip).items():
            assert not metric or "DEPRECATED" not in catalogue.host(chip).describe(metric)["description"], (chip, role)


def test_a_role_that_a_chip_lacks_says_so():
    with pytest.raises(Unavailable, match="GB20B has no counter for the role 'dram'"):
        resolve("dram", "GB20B")  # its memory is the host's
    with pytest.raises(InvalidArgument, match="fma"):
        resolve("fpm", "GH100")


def test_what_must_not_be_added_is_read_from_the_chip():
    assert set(overlaps("GH100")) == {("fp16", "fma"), ("fp64", "tensor")}
    assert set(overlaps("GA100")) == {("fp64", "tensor")}
    assert set(overlaps("GV100")) == {("fp64", "fp16", "tensor")}
    assert set(overlaps("GA102")) == {("fp16", "fma")}
    for chip in CHIPS:
        apart = "pipe_fma_type" not in resolve("fp16", chip)
        assert apart == (("fp16", "fma") not in overlaps(chip))


def test_another_chips_name_leads_to_the_role():
    assert same_role("dram__bytes_op_read.sum", "GH100") == "dram__bytes_read.sum"
    assert same_role("sm__warps_launched.sum", "GH100") is None
    assert same_role("dram__bytes_read.sum", "GB20B") is None


def test_every_role_is_defined_and_every_metric_has_one_role():
    for collection in ("ranges", "sampling"):
        seen = [metric for role in ROLES for metric in names(role, collection)]
        assert len(seen) == len(set(seen))
    assert all(role.definition and role.unit and role.metrics for role in ROLES.values())


@needs_cupti
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm__cycles_activ.avg", "sm__cycles_active.avg"),
        ("sm__cycles_active", "sm__cycles_active.avg"),
        ("sm__cycles_active.averag", "sm__cycles_active.avg"),
        # Older chips' names, of which this one has others for the same role.
        (
            "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_elapsed",
        ),
        ("dram__bytes_op_read.sum", "dram__bytes_read.sum"),
    ],
)
def test_a_bad_name_is_refused_with_the_nearest_that_can_be_collected(name, expected):
    with pytest.raises(InvalidArgument, match="GH100") as caught:
        validate(["sm__cycles_active.avg", name], "GH100")
    assert repr(name) in str(caught.value)
    near = suggestions(name, "GH100")
    assert near[0] == expected
    assert expected in str(caught.value)
    validate(near, "GH100")


@needs_cupti
def test_every_bad_name_is_named_at_once():
    with pytest.raises(InvalidArgument) as caught:
        validate(["a__b.sum", "sm__cycles_active.avg", "zzzz"], "GH100")
    assert "'a__b.sum'" in str(caught.value)
    assert "'zzzz'" in str(caught.value)
    assert "'sm__cycles_active.avg'" not in str(caught.value)


pytestmark = needs_cupti


def test_presets_roles_and_metrics_mix():
    chosen = select("cores,dram,sm__warps_launched.sum", "GH100")
    assert set(PRESETS["cores"]) | {"dram"} == set(chosen.roles.values())
    assert chosen.metrics[-1] == "sm__warps_launched.sum"
    assert chosen == select(["cores", "dram", "sm__warps_launched.sum"], "GH100")
    assert len(set(chosen.metrics)) == len(chosen.metrics)


def test_a_preset_leaves_out_what_the_chip_lacks_and_says_so():
    chosen = select("memory", "GB20B")
    assert any("'dram'" in line for line in chosen.left_out)
    assert "l2_bytes" in chosen.roles.values()
    with pytest.raises(Unavailable):
        select("dram", "GB20B")


@pytest.mark.parametrize("chip", ["TU102", "GA100", "GH100", "GB100", "GB202"])
def test_the_timeline_fits_into_one_pass(chip):
    chosen = select("timeline", chip)
    assert chosen.collection == "sampling"
    assert catalogue.host(chip, "sampling").configure(list(chosen.metrics))[0] == 1
    assert set(chosen.roles.values()) >= {"gpu_active", "sm_active"}
    assert len(chosen.metrics) + len(chosen.left_out) == len(PRESETS["timeline"])


def test_what_cannot_be_selected():
    for asked, words in (
        ("cors", "did you mean cores"),
        ([], "no metrics named"),
        ("timeline,cores", "ask for it alone"),
        ("sm__cycles_activ.avg", "sm__cycles_active.avg"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            select(asked, "GH100")


def test_presets_are_made_of_roles():
    assert all(role in ROLES for roles in PRESETS.values() for role in roles)
