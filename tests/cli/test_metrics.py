# SPDX-License-Identifier: MIT
import json

import pytest

from cupti_plans import needs_cupti
from dnnsuite.cli.app import main
from dnnsuite.profiler.counters import ROLES, catalogue

pytestmark = needs_cupti


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["metrics", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_list(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("list", "sm__pipe_tensor_*", "--chip", "gh100") == 0
    said = capfd.readouterr().out
    assert "sm__pipe_tensor_cycles_active  [gpc_cycle, sm]  # of cycles where tensor pipe was active" in said
    assert status("list", "pipe_xu", "--chip", "GH100", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert "sm__inst_executed_pipe_xu" in {one["name"] for one in found["metrics"]}
    assert status("list", "nothing_like_it", "--chip", "GH100") == 1
    assert status("list", "dramc__read", "--chip", "GH100", "--sampling") == 0


def test_plan(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("plan", "cores", "--chip", "GH100") == 0
    said = capfd.readouterr().out
    assert "8 metrics in one pass" in said
    assert "sfu         sm__inst_executed_pipe_xu" in said
    assert status("plan", "cores,memory", "all", "--chip", "GB202", "--json") == 0
    made = json.loads(capfd.readouterr().out)
    assert made["passes_together"] is None
    assert {group["scope"] for group in made["groups"]} == {"context", "device"}
    assert any("nvlink" in line for line in made["left_out"])
    assert status("plan", "timeline", "--chip", "GH100") == 0
    assert "sampled together" in capfd.readouterr().out
    assert status("plan", "cores,alu", "--kernels", "--chip", "GH100") == 0
    assert "every kernel runs alone, in 2 passes" in capfd.readouterr().out
    assert status("plan", "cores", "--chip", "GV100") == 0
    assert "2 groups: a cycle takes 2 steps, none is run again" in capfd.readouterr().out


def test_roles(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("roles") == 0
    said = capfd.readouterr().out
    assert all(f"{name}: " in said for name in ROLES)
    assert "GV100 TU102" in said
    assert status("roles", "--chip", "GH100") == 0
    assert "do not add: half precision runs on the FMA pipes" in capfd.readouterr().out
    assert status("roles", "dram", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found["chips"]) == set(catalogue.chips())
    assert found["chips"]["GB202"]["dram_read"] == "dram__bytes_op_read.sum"
    assert found["chips"]["GB20B"]["dram_read"] is None
    assert status("roles", "no_such_role") == 1


def test_errors_name_the_way_out(capfd: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["list", "--chip", "GH10"], "CUPTI does not know the chip GH10 (did you mean 'GH100'?); it knows GV100"),
        (["plan", "cors", "--chip", "GH100"], "did you mean cores"),
        (["plan", "sm__cycles_active", "--chip", "GH100"], "sm__cycles_active.avg"),
        (["roles", "--chip", "XX"], "it knows GV100"),
    ):
        assert status(*arguments) == 2
        assert words in capfd.readouterr().err


def test_a_product_stands_for_its_chip(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("roles", "tensor", "--chip", "h100") == 0
    said = capfd.readouterr()
    assert said.err == "dnnsuite: the chip of H100 is GH100\n"
    assert "tensor" in said.out


def test_a_mistyped_role_has_a_hint(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("roles", "tensro") == 1
    assert "unknown role 'tensro' (did you mean 'tensor'?)" in capfd.readouterr().err


def test_support_says_what_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    code = status("support", "--json")
    features = {one["name"]: one for one in json.loads(capfd.readouterr().out)["features"]}
    assert features["planning"]["available"]
    assert set(features) >= {"permission", "no_mps", "no_mig", "ranges", "sampling"}
    assert code == (0 if features["ranges"]["available"] and features["sampling"]["available"] else 1)
    assert status("support") == code
    assert "planning    ok  CUPTI 13" in capfd.readouterr().out
