# SPDX-License-Identifier: MIT
import pytest

from dnnsuite import jobs
from dnnsuite.errors import Error
from dnnsuite.suites.mila import FAST, SUITES, job_of_command, script_of

NAMES = [
    "toy_reg",
    "toy_lstm",
    "vae",
    "loader",
    "reso",
    "translator",
    "wlm",
    "wlmfp16",
    "cart",
    "atari",
    "ssd",
    "fast_style",
    "dcgan",
    "convnet",
    "convnet_fp16",
    "recom",
    "convnet_distributed",
    "convnet_distributed_fp16",
    "dcgan_all",
]


def test_nineteen_jobs_in_the_originals_order() -> None:
    assert list(SUITES["baselines"]) == list(SUITES["fast"]) == NAMES
    assert set(FAST) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_jobs_own_script_is_the_job(name: str) -> None:
    try:
        Job = jobs.get(name)
    except Error as error:
        pytest.skip(str(error))
    half = Job.default_precision == "fp16"
    assert job_of_command(script_of(name), half, Job.scope == "all") == name
    for option in FAST.get(name, {}):
        assert option in Job.settings("default")
    for option in Job.settings("smoke"):
        assert option in Job.settings("default")


def test_scripts_are_known_wherever_they_are() -> None:
    script = "image_classification/convnets/pytorch/run.sh"
    assert job_of_command(f"/home/u/training/{script}", half=False, whole_machine=False) == "convnet"
    assert job_of_command(f"./{script}", half=True, whole_machine=False) == "convnet_fp16"
    assert job_of_command("./run.sh", half=False, whole_machine=False) is None
