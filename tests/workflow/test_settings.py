# SPDX-License-Identifier: MIT
from typing import Any

import pytest

from dnnsuite import host
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.workflow import settings
from dnnsuite.workflow.settings import WorkflowSettings, resolve

pytestmark = pytest.mark.usefixtures("toys")


def test_preset_and_defaults() -> None:
    found = resolve("toy", {})
    assert (found.epochs, found.iters_per_epoch, found.repeats, found.batch_size) == (2, 3, 1, 4)
    assert (found.limit_B, found.max_B, found.plan) == (2, None, None)
    assert found.modes == ["serial", "concurrent", "hfta"]  # the others change the GPU: only by name
    assert found.threads == host.num_threads()
    assert WorkflowSettings.from_dict(found.to_dict()) == found


def test_presets_of_a_declared_workload() -> None:
    """HFTA's protocol and its model; the quick one needs no search."""
    paper, quick = (resolve("bert", {"preset": name, "device": "cpu"}) for name in ("paper", "quick"))
    assert (paper.epochs, paper.iters_per_epoch, paper.repeats, paper.batch_size) == (5, 1000, 3, 32)
    assert (paper.options["emsize"], paper.options["nhid"]) == (512, 2048)
    assert paper.search["concurrent"] == {
        "dry_run_repeats": 10, "max_num_Bs": 5, "lambd": 4.0, "dry_run_epochs": 2, "dry_run_iters_per_epoch": 10,
    }  # fmt: skip
    assert paper.search["hfta"]["max_num_Bs"] == 10
    assert paper.search["mig"]["dry_run_repeats"] == 1
    assert quick.plan == [1, 4]
    assert (paper.budget_s, quick.budget_s) == (None, 15.0)
    assert resolve("bert", {"preset": "quick", "epochs": 3}).budget_s is None  # a number that is asked for is made
    assert resolve("bert", {"preset": "quick", "epochs": 3, "budget_s": 5.0}).budget_s == 5.0
    assert resolve("bert", {"preset": "quick", "max_B": 3}).plan is None
    assert resolve("bert", {}).preset == "default"


def test_flags_of_one_mode_win_over_those_of_all() -> None:
    asked = {"hfta_max_num_Bs": 7, "max_num_Bs": 3, "lambd": 2.0, "mps_lambd": 1.5, "preset": "paper"}
    found = resolve("bert", asked).search
    assert [found[mode]["max_num_Bs"] for mode in ("concurrent", "hfta")] == [3, 7]
    assert [found[mode]["lambd"] for mode in ("concurrent", "mps")] == [2.0, 1.5]


def test_options_replace_the_presets() -> None:
    found = resolve("bert", {"preset": "paper", "options": ["nhid=64", "dropout=0"]})
    assert found.options.items() >= {"emsize": 512, "nhid": 64, "vocab_size": 33_279, "dropout": 0.0}.items()
    with pytest.raises(InvalidArgument, match=r"no option 'nhit' \(did you mean 'nhid'"):
        resolve("bert", {"options": ["nhit=64"]})


def test_bfloat16_is_asked_for_by_name() -> None:
    assert resolve("bert", {"device": "cpu"}).precisions == ["fp32"]
    assert resolve("bert", {"device": "cpu", "bf16": True}).precisions == ["fp32", "bf16"]
    assert resolve("bert", {"device": "cpu", "precisions": ["bf16"]}).precisions == ["bf16"]
    with pytest.raises(InvalidArgument, match="unknown precision 'bf16'; accepted: fp32"):
        resolve("toy", {"bf16": True})


def test_an_alias_of_hfta_is_the_job_it_means() -> None:
    assert resolve("mobilenet_cifar10_v3s", {"preset": "quick"}).job == "mobilenet_v3_small"


def test_settings_of_another_version_are_refused() -> None:
    values = resolve("toy", {"max_num_Bs": 6}).to_dict()
    assert WorkflowSettings.from_dict(values) == resolve("toy", {"max_num_Bs": 6})
    del values["options"]
    with pytest.raises(InvalidArgument, match=r"of another version \(they differ in: options\)"):
        WorkflowSettings.from_dict(values)


def test_what_is_given_wins() -> None:
    found = resolve("toy", {"modes": ["hfta,serial"], "max_B": 6, "epochs": 9, "seed": 0, "precisions": None})
    assert found.modes == ["serial", "hfta"]
    assert (found.max_B, found.limit_B, found.epochs, found.seed) == (6, None, 9, 0)
    assert resolve("toy", {"plan": ["4,1", "2"]}).plan == [1, 2, 4]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"modes": ["serial", "vertical"]}, "unknown mode 'vertical'; accepted: serial, concurrent, mps, mig, hfta"),
        ({"precisions": ["fp8"]}, "unknown precision 'fp8'; accepted: fp32"),
        ({"device": "tpu"}, "unknown device 'tpu'; accepted: auto, cpu, cuda"),
        ({"preset": "slow"}, "unknown preset 'slow'; accepted: quick, default, paper"),
        ({"max_B": -1}, "--max-B -1: must be at least 1"),
        ({"plan": ["0,2"]}, "--plan 0,2: every B must be at least 1"),
        ({"plan": ["one"]}, "--plan one: expected whole numbers"),
        ({"plan": [","]}, "--plan ,: every B"),
        ({"plan": ["1"], "max_B": 2}, "exclude each other"),
        ({"repeats": 0}, "--repeats 0"),
        ({"epochs": 0}, "--epochs 0"),
        ({"iters_per_epoch": -3}, "--iters-per-epoch -3"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"max_num_Bs": 0}, "--max-num-Bs 0"),
        ({"lambd": 0.0}, "--lambd 0.0: must be positive"),
        ({"timeout_s": -1.0}, "--timeout -1.0: must be positive"),
        ({"hfta_max_num_Bs": 0}, "--hfta-max-num-Bs 0: must be at least 1"),
        ({"mig_lambd": -1.0}, "--mig-lambd -1.0: must be positive"),
        ({"concurrent_dry_run_repeats": 0}, "--concurrent-dry-run-repeats 0: must be at least 1"),
        ({"options": ["depth"]}, "--option depth: expected NAME=VALUE"),
        ({"threads": 0}, "--threads 0"),
        ({"monitor": "sar"}, "--monitor 'sar'; accepted: auto, nvml, dcgm, none"),
        ({"dataroot": "/no/such/folder"}, "--dataroot /no/such/folder: no such directory"),
        ({"plugins": ["nowhere_at_all"]}, "--plugin nowhere_at_all"),
    ],
)
def test_refusals_name_the_value_and_the_way_out(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        resolve("toy", asked)
    assert words in str(refused.value)


def test_unknown_job_lists_the_known() -> None:
    with pytest.raises(InvalidArgument, match=r"'tot'.*'toy'.*bert.*more"):
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


def test_a_record_of_another_version() -> None:
    values = {**resolve("toy", {}).to_dict(), "colour": "red"}
    with pytest.raises(InvalidArgument, match=r"another version.*colour"):
        WorkflowSettings.from_dict(values)


def test_slugs() -> None:
    assert settings._slug("NVIDIA A100-SXM4-40GB") == "a100-sxm4-40gb"
