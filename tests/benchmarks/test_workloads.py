# SPDX-License-Identifier: MIT
"""A step of a workload stays on its device, so that none waits for a copy; array and models have the same losses."""

import pytest
import torch
from plain import all_built, drawn
from setting import Setting
from workloads import WORKLOADS

import dnnsuite
from one_device import OneDevice

META = Setting(device="meta")
# They read from the device: a norm that ends a loop, the seed of a stochastic depth.
HOST_DECIDES = {"deq", "swin"}


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in HOST_DECIDES])
def test_a_step_stays_on_its_device(name):
    workload = WORKLOADS[name]
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


@pytest.mark.parametrize("name", ["cnn", "vgg", "unet", "gru", "tabular_resnet", "deq", "swin"])
def test_losses_of_an_array_are_those_of_its_models(name):
    """In eval mode, so that nobody draws."""
    workload = WORKLOADS[name]
    models, batch = [model.eval() for model in all_built(workload, 2, Setting())], drawn(workload, Setting())
    expected = torch.stack([workload.loss(model, *batch) for model in models])
    found = workload.losses(dnnsuite.fuse(models), *(dnnsuite.stack(x, 2) for x in batch))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
