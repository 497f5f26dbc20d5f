# SPDX-License-Identifier: MIT
from typing import Any

import pytest

from dnnsuite.workflow import MODES, plan
from dnnsuite.workflow.launch import Point
from dnnsuite.workflow.settings import WorkflowSettings, resolve

pytestmark = pytest.mark.usefixtures("toys")


def settings(**asked: Any) -> WorkflowSettings:
    return resolve("toy", asked)


def test_Bs_without_a_search() -> None:
    assert plan.fixed_Bs(settings(), MODES["serial"]) == [1]
    assert plan.fixed_Bs(settings(), MODES["hfta"]) is None
    assert plan.fixed_Bs(settings(plan=["1,9"]), MODES["hfta"]) == [1, 9]
    assert plan.fixed_Bs(settings(plan=["1,9"]), MODES["mig"]) == [1]  # a GPU has at most seven instances
    assert plan.fixed_Bs(settings(max_B=3), MODES["concurrent"]) == [1, 2, 3]


def test_modes_with_one_maximum_share_their_Bs() -> None:
    asked = settings(max_B=100, max_num_Bs=6, seed=3)
    assert plan.fixed_Bs(asked, MODES["hfta"]) == plan.fixed_Bs(asked, MODES["concurrent"])
    assert len(plan.drawn_Bs(asked, "hfta", 100)) == 6


def test_each_mode_may_have_Bs_of_its_own() -> None:
    asked = settings(max_B=100, max_num_Bs=6, hfta_max_num_Bs=9)
    assert len(plan.fixed_Bs(asked, MODES["hfta"]) or []) == 9
    assert len(plan.fixed_Bs(asked, MODES["concurrent"]) or []) == 6


def test_the_plan_that_a_dry_run_shows() -> None:
    order, remarks = plan.planned_points(settings(repeats=2, modes=["serial,concurrent,mps,hfta"]))
    assert {point for _, point in order} == {
        Point("serial", "fp32", 1),
        *(Point(mode, "fp32", B) for mode in ("concurrent", "hfta") for B in (1, 2)),
    }
    assert len(order) == 10
    assert any("mps: unavailable" in remark for remark in remarks)
    assert any("hfta: the largest B is searched for" in remark and "at most 2" in remark for remark in remarks)
