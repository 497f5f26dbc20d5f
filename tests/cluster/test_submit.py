# SPDX-License-Identifier: MIT
"""A plan of no suite as tasks; suites on a cluster, and Slurm, are in tests/suites/test_on_cluster.py."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dnnsuite.cluster import ClusterPlan, Part, run_parts
from dnnsuite.errors import InvalidArgument


class Plan:
    """Three parts: one ends well, one badly, one leaves nothing."""

    name, file, task = "three", "part.json", "cluster_parts:make"
    asked: Mapping[str, Any] = {"colour": "red"}

    def __init__(self) -> None:
        orders = {"good": (True, False), "bad": (False, False), "lost": (True, True)}
        self.parts = [Part(name, {"ok": ok, "fails": fails}) for name, (ok, fails) in orders.items()]
        self.said: list[tuple[str, bool]] = []

    def ended(self, root: Path, part: Part, state: Mapping[str, Any] | None) -> str:
        self.said.append((part.name, state is not None))
        return part.name

    def all_ended(self, root: Path, seconds: float) -> None:
        (root / "summary.txt").write_text(f"{seconds > 0}")


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return Plan()


def test_any_plan_is_run_in_parts_and_resumed(plan: Plan, tmp_path: Path) -> None:
    typed: ClusterPlan = plan
    said: list[str] = []
    out = tmp_path / "out"
    assert not run_parts(typed, out, "local", {"timeout_min": 5}, tell=said.append)
    assert said[0] == "three: 3 of 3 tasks to submit to local"
    assert sorted(plan.said) == [("bad", True), ("good", True), ("lost", False)]
    (lost,) = [line for line in said if "without a result" in line]
    assert str(tmp_path / ".out-tasks") in lost
    state = json.loads((out / "cluster.json").read_text())
    assert (state["status"], state["asked"], len(state["id"])) == ("failed", {"colour": "red"}, 32)
    assert (out / "summary.txt").read_text() == "True"
    (out / "bad" / "part.json").write_text("{")  # damaged: made again
    plan.parts = [Part(part.name, {"ok": True, "fails": False}) for part in plan.parts]
    said.clear()
    assert run_parts(typed, out, "local", {}, resume=True, tell=said.append)
    assert said[0] == "three: 2 of 3 tasks to submit to local"
    assert json.loads((out / "bad" / "part.json").read_text())["resumed"] is True


def test_other_options_are_not_the_same_plan(plan: Plan, tmp_path: Path) -> None:
    run_parts(plan, tmp_path / "out", "local", {}, tell=lambda line: None)
    plan.asked = {"colour": "blue"}
    with pytest.raises(InvalidArgument, match=r"was made with asked .*red.*blue"):
        run_parts(plan, tmp_path / "out", "local", {}, resume=True)
