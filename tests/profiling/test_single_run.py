# SPDX-License-Identifier: MIT
from dnnsuite import jobs
from dnnsuite.profiling.single_run import plugins_for, version_of


def test_a_training_configuration_brings_its_module() -> None:
    assert plugins_for("toy_reg", ("mine",)) == ("mine",)
    added = plugins_for("imagenet-resnet50", ("mine",))
    assert added[0] == "mine"
    assert plugins_for("imagenet-resnet50", added) == added


def test_another_option_is_another_version() -> None:
    job = jobs.get("toy_reg")
    versions = {version_of(job, {}), version_of(job, {"a": 1}), version_of(job, {"a": 2})}
    assert len(versions) == 3
    assert version_of(job, {"a": 1, "b": 2}) == version_of(job, {"b": 2, "a": 1})
    assert version_of(jobs.get("vae"), {}) not in versions
