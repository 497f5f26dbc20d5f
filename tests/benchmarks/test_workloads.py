# SPDX-License-Identifier: MIT
"""Everything that a step of a workload touches lies on its device, so that none waits for a copy."""

import pytest
from plain import all_built, drawn
from setting import Setting
from workloads import WORKLOADS

import dnnsuite
from one_device import OneDevice

META = Setting(device="meta")


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_step_stays_on_its_device(workload):
    models, batch = all_built(workload, 2, META), drawn(workload, META)
    with OneDevice("meta"):
        workload.loss(models[0], *batch).backward()
    array = dnnsuite.fuse(models)
    batches = [dnnsuite.stack(x, 2) for x in batch]
    with OneDevice("meta"):
        workload.losses(array, *batches).sum().backward()


def test_another_device_is_seen():
    workload = WORKLOADS["mlp_s"]
    with pytest.raises(AssertionError, match="cpu"), OneDevice("meta"):
        workload.batch()
