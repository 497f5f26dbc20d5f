# SPDX-License-Identifier: MIT
import pytest

from cupti_plans import needs_cupti
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.profiler.counters import PRESETS, ROLES, catalogue, select

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
