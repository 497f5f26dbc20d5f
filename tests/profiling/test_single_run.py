# SPDX-License-Identifier: MIT
from dnnsuite import jobs
from dnnsuite.profiling.throughput_request import version_of


def test_another_option_is_another_version() -> None:
    job = jobs.get("toy_reg")
    versions = {version_of(job, {}), version_of(job, {"a": 1}), version_of(job, {"a": 2})}
    assert len(versions) == 3
    assert version_of(job, {"a": 1, "b": 2}) == version_of(job, {"b": 2, "a": 1})
    assert version_of(jobs.get("convnet"), {}) not in versions
