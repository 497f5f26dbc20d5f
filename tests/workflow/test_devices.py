# SPDX-License-Identifier: MIT
"""The NVIDIA tools are played from a script: what they are asked, in which order, and what they answer."""

from pathlib import Path

import pytest

from dnnsuite._files import cache_folder
from dnnsuite.errors import Unavailable
from dnnsuite.workflow import devices
from dnnsuite.workflow.devices import mig_instances, mps_daemon, mps_servers, whole_gpu
from nvidia_tools import A30, Machine


def test_mps_is_started_for_the_body_and_put_back() -> None:
    machine = Machine()
    with mps_daemon(3, machine.tools()) as environments:
        assert machine.state == ("[N/A]", "Exclusive_process", True, "")
        assert len(environments) == 3
        assert set(environments[0]) == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"}
    assert machine.state == ("[N/A]", "Default", False, "")
    assert machine.log[-2:] == ["nvidia-cuda-mps-control <quit", "nvidia-smi -i 0 -c DEFAULT"]


def test_mps_beside_others_leaves_the_compute_mode() -> None:
    machine = Machine()
    with mps_daemon(1, machine.tools(), exclusive=False) as (client,):
        assert machine.state == ("[N/A]", "Default", True, "")
        assert mps_servers(client, machine.tools()) == [4711]
    assert machine.state == ("[N/A]", "Default", False, "")
    assert not any(" -c " in command for command in machine.log)
    assert mps_servers(client, machine.tools()) == []


def test_nothing_is_left_of_the_daemon() -> None:
    machine = Machine()
    with mps_daemon(1, machine.tools()) as (client,):
        folder = Path(client["CUDA_MPS_PIPE_DIRECTORY"]).parent
        assert sorted(path.name for path in folder.iterdir()) == ["log", "pipe"]
    assert not folder.exists()
    assert not list((cache_folder() / "gpu").glob("*.json"))


def test_mps_is_put_back_when_the_body_fails() -> None:
    machine = Machine()
    with pytest.raises(ZeroDivisionError), mps_daemon(1, machine.tools()):
        raise ZeroDivisionError
    assert machine.state == ("[N/A]", "Default", False, "")


@pytest.mark.parametrize("fails", ["-c EXCLUSIVE_PROCESS", "nvidia-cuda-mps-control -d"])
def test_mps_that_does_not_start_is_put_back(fails: str) -> None:
    machine = Machine(fails=fails)
    with pytest.raises(Unavailable, match="Insufficient Permissions"), mps_daemon(1, machine.tools()):
        pass
    assert machine.state == ("[N/A]", "Default", False, "")


HFTAS = ["0", "9,9", "14,14,14", "14,14,14,19", "14,14,19,19,19", "14,19,19,19,19,19", "19,19,19,19,19,19,19"]


@pytest.mark.parametrize("n", range(1, 8))
def test_mig_splits_an_a100_into_n_as_hfta_does(n: int) -> None:
    machine = Machine(mig="Disabled")
    with mig_instances(n, machine.tools()) as environments:
        assert machine.state == ("Enabled", "Default", False, HFTAS[n - 1])
        assert [e["CUDA_VISIBLE_DEVICES"] for e in environments] == [f"MIG-{i}" for i in range(n)]
    assert machine.state == ("Disabled", "Default", False, "")
    assert "nvidia-smi mig -dci -i 0" in machine.log


def test_the_ids_are_those_that_the_driver_lists() -> None:
    machine = Machine(mig="Enabled", profiles=A30)
    with mig_instances(3, machine.tools()):
        assert machine.instances == "5,14,14"
    with pytest.raises(Unavailable, match=r"into 5 MIG instances .at most 4"), mig_instances(5, machine.tools()):
        pass
    assert machine.state == ("Enabled", "Default", False, "")


def test_mig_mode_that_was_on_stays_on() -> None:
    machine = Machine(mig="Enabled")
    with pytest.raises(ZeroDivisionError), mig_instances(2, machine.tools()):
        raise ZeroDivisionError
    assert machine.state == ("Enabled", "Default", False, "")


def test_mig_does_not_destroy_what_is_not_ours() -> None:
    machine = Machine(mig="Enabled")
    machine.instances = "9,9"
    with pytest.raises(Unavailable, match="not ours"), mig_instances(2, machine.tools()):
        pass
    assert machine.instances == "9,9"


@pytest.mark.parametrize("fails", ["-mig 1", "-cgi"])
def test_mig_that_is_refused_is_put_back(fails: str) -> None:
    machine = Machine(mig="Disabled", fails=fails)
    with pytest.raises(Unavailable, match="Insufficient Permissions"), mig_instances(2, machine.tools()):
        pass
    assert machine.state == ("Disabled", "Default", False, "")


def test_eight_instances_cannot_be() -> None:
    with pytest.raises(Unavailable, match="8 MIG instances"), mig_instances(8, Machine(mig="Enabled").tools()):
        pass


def test_whole_gpu_needs_an_instance_only_in_mig_mode() -> None:
    plain, split = Machine(mig="Disabled"), Machine(mig="Enabled")
    with whole_gpu(2, plain.tools()) as environments:
        assert environments == [{}, {}]
    with whole_gpu(2, split.tools()) as environments:
        assert split.instances == "0"
        assert environments == [{"CUDA_VISIBLE_DEVICES": "MIG-0"}] * 2
    assert split.instances == ""


def test_reasons() -> None:
    assert "runs on cpu" in (devices.mps_unavailable("cpu") or "")
    assert "runs on cpu" in (devices.mig_unavailable("cpu") or "")
    assert devices.mps_unavailable("cuda", Machine().tools()) is None
    assert "nvidia-cuda-mps-control not found" in (
        devices.mps_unavailable("cuda", Machine(tools=["nvidia-smi"]).tools()) or ""
    )
    assert "in MIG mode" in (devices.mps_unavailable("cuda", Machine(mig="Enabled").tools()) or "")
    assert devices.mig_unavailable("cuda", Machine(mig="Disabled").tools()) is None
    assert "cannot be split" in (devices.mig_unavailable("cuda", Machine().tools()) or "")
    assert "nvidia-smi not found" in (devices.mig_unavailable("cuda", Machine(tools=[]).tools()) or "")
