# SPDX-License-Identifier: MIT
"""Device, clock and precision of a comparison."""

import time

import pytest
import torch
from plain import built, drawn
from setting import Setting, cpu_clock, device_name, machine
from workloads import WORKLOADS

from dnnsuite.errors import InvalidArgument, Unavailable


@pytest.mark.parametrize(
    ("text", "name"), [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:11", "cuda:11")]
)
def test_device_name(text, name):
    assert device_name(text) == name


@pytest.mark.parametrize("text", ["", "gpu", "cuda:", "cuda:x", "cpu:0", "meta"])
def test_another_device_is_refused_by_name(text):
    with pytest.raises(InvalidArgument, match="it is cpu, cuda or cuda:NUMBER"):
        device_name(text)


def test_cpu_time_counts_where_one_thread_of_a_cpu_does_all():
    assert Setting().clock is cpu_clock
    assert Setting(threads=2).clock is time.perf_counter
    assert Setting(device="cuda:0").clock is time.perf_counter


def test_models_and_batches_lie_on_the_device():
    workload, meta = WORKLOADS["pointnet"], Setting(device="meta")
    assert all(x.device.type == "meta" for x in drawn(workload, meta))
    model = built(workload, 0, meta)
    assert {x.device.type for x in (*model.parameters(), *model.buffers())} == {"meta"}


def test_a_seed_gives_the_same_model_and_batch_on_every_device(device):
    workload = WORKLOADS["mlp_s"]
    here, there = Setting(), Setting(device=device)
    for a, b in zip(drawn(workload, here), drawn(workload, there), strict=True):
        assert torch.equal(a, b.cpu())
    models = [built(workload, 3, setting) for setting in (here, there)]
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(a, b.cpu())


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_have_the_precision_and_losses_train(precision, dtype, device):
    setting = Setting(device=device, precision=precision)
    layer = torch.nn.Linear(8, 8).to(device)
    x, seen = torch.ones(4, 8, device=device), []

    def loss():
        y = layer(x)
        seen.append(y.dtype)
        return y.float().square().mean()

    step = setting.step(torch.optim.SGD(layer.parameters(), lr=0.1), setting.under_autocast(loss))
    before = loss().item()
    for _ in range(4):
        step()
    assert seen[1:] == [dtype] * 4
    assert loss().item() < before


def test_enter(device):
    Setting(device=device).enter()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_what_is_missing():
    with pytest.raises(Unavailable, match=r"--device cuda:0: torch .*; `dnnsuite doctor` says what is missing"):
        Setting(device="cuda:0").enter()


def test_a_device_too_many_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(Unavailable, match="cuda:2: there are 2 CUDA devices, counted from cuda:0"):
        Setting(device="cuda:2").enter()


def test_the_machine_is_described_in_one_line():
    assert f"torch {torch.__version__}" in machine()
    assert "\n" not in machine()
