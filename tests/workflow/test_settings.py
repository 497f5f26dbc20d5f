# SPDX-License-Identifier: MIT
from pathlib import Path
from typing import Any

import pytest

from dnnsuite import host
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.workflow import settings
from dnnsuite.workflow.settings import WorkflowSettings, differences, resolve

pytestmark = pytest.mark.usefixtures("toys")


def test_preset_and_defaults() -> None:
    found = resolve("toy", {})
    assert (found.epochs, found.iters_per_epoch, found.repeats, found.batch_size) == (2, 3, 1, 4)
    assert (found.limit_B, found.max_B, found.plan) == (2, None, None)
    assert found.modes == ["serial", "concurrent", "hfta"]  # the others change the GPU: only by name
    assert found.threads == host.num_cpus()
    assert WorkflowSettings.from_dict(found.to_dict()) == found


def test_what_is_given_wins() -> None:
    found = resolve("toy", {"modes": ["hfta,serial"], "max_B": 6, "epochs": 9, "seed": 0, "precisions": None})
    assert found.modes == ["serial", "hfta"]
    assert (found.max_B, found.limit_B, found.epochs, found.seed) == (6, None, 9, 0)
    assert resolve("toy", {"plan": ["4,1", "2"]}).plan == [1, 2, 4]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"modes": ["serial", "vertical"]},
            "unknown mode 'vertical'; accepted: serial, concurrent, mps, mig, hfta",
        ),
        ({"precisions": ["fp8"]}, "unknown precision 'fp8'; accepted: fp32"),
        ({"device": "tpu"}, "unknown device 'tpu'; accepted: auto, cpu, cuda"),
        ({"preset": "slow"}, "unknown preset 'slow'; accepted: quick, paper"),
        ({"max_B": -1}, "--max-B -1: must be at least 1"),
        ({"plan": ["0,2"]}, "--plan 0,2: every B must be at least 1"),
        ({"plan": ["one"]}, "--plan one: wants whole numbers"),
        ({"plan": [","]}, "--plan ,: every B"),
        ({"plan": ["1"], "max_B": 2}, "exclude each other"),
        ({"repeats": 0}, "--repeats 0"),
        ({"epochs": 0}, "--epochs 0"),
        ({"iters_per_epoch": -3}, "--iters-per-epoch -3"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"max_num_Bs": 0}, "--max-num-Bs 0"),
        ({"lambd": 0.0}, "--lambd 0.0: must be positive"),
        ({"timeout_s": -1.0}, "--timeout -1.0: must be positive"),
        ({"threads": 0}, "--threads 0"),
        ({"monitor": "sar"}, "--monitor sar: accepted are auto, nvml, dcgm, none"),
        ({"dataroot": "/no/such/folder"}, "--dataroot /no/such/folder: no such directory"),
        ({"plugins": ["nowhere_at_all"]}, "--plugin nowhere_at_all"),
    ],
)
def test_refusals_name_the_value_and_the_way_out(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        resolve("toy", asked)
    assert words in str(refused.value)


def test_unknown_job_lists_the_known() -> None:
    with pytest.raises(InvalidArgument, match=r"'tot'.*bert.*toy"):
        resolve("tot", {})


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "gpus", lambda: [])
    assert resolve("toy", {}).device == "cpu"
    with pytest.raises(Unavailable, match="dnnsuite doctor"):
        resolve("toy", {"device": "cuda"})
    monkeypatch.setattr(host, "gpus", lambda: [host.Gpu("NVIDIA GeForce RTX 6000", 1, "580")])
    monkeypatch.setattr(host, "torch_has_cuda", lambda: True)
    found = resolve("toy", {})
    assert (found.device, found.device_model) == ("cuda", "rtx-6000")
    assert resolve("toy", {"device_model": "Tesla V100"}).device_model == "v100"


def test_differences_compare_what_was_given(tmp_path: Path) -> None:
    recorded = resolve("toy", {"plan": ["1,2"], "modes": ["serial"], "dataroot": str(tmp_path)})
    same = {
        "plan": ["2", "1"],
        "modes": ["serial"],
        "device": "auto",
        "dataroot": f"{tmp_path}/.",
        "epochs": None,
    }
    assert differences(recorded, same) == []
    assert differences(recorded, {"plan": ["1"], "epochs": 3, "modes": ["serial,hfta"]}) == [
        "--plan is 1, was 1,2",
        "--epochs is 3, was 2",
        "--modes is serial,hfta, was serial",
    ]


def test_a_record_from_before_runs_were_monitored() -> None:
    found = resolve("toy", {"monitor": "none"})
    older = {name: value for name, value in found.to_dict().items() if name != "monitor"}
    assert WorkflowSettings.from_dict(older).monitor == "auto"


def test_a_record_of_another_version() -> None:
    values = {**resolve("toy", {}).to_dict(), "colour": "red"}
    with pytest.raises(InvalidArgument, match=r"another version.*colour"):
        WorkflowSettings.from_dict(values)


def test_slugs() -> None:
    assert settings._slug("NVIDIA A100-SXM4-40GB") == "a100-sxm4-40gb"
