# SPDX-License-Identifier: MIT
"""Plain models as CUDA graphs and in processes through MPS, whose tools are played from a script."""

import plain
import pytest
import torch
import ways
from setting import Setting
from workloads import WORKLOADS

from dnnsuite.errors import Error, Unavailable
from nvidia_tools import Machine

GPU = Setting(device="cuda:1")


class Started:
    """Stands for processes that were started."""

    def __init__(self) -> None:
        self.calls, self.closed = [], False

    def __call__(self, make, arguments, threads, environment=None):
        self.calls.append((arguments, environment))
        return ways.Closing(lambda steps: None, self.close)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def started(monkeypatch):
    made = Started()
    monkeypatch.setattr(ways, "concurrent", made)
    return made


def test_mps_has_a_daemon_while_the_way_is_open(started):
    machine = Machine()
    way = plain.concurrent_mps(WORKLOADS["mlp_s"], 2, GPU, machine.tools())
    assert machine.state == ("[N/A]", "Default", True, "")  # this process is on the GPU: not exclusive
    ((arguments, environment),) = started.calls
    assert [(name, seed) for name, seed, _ in arguments] == [("mlp_s", 0), ("mlp_s", 1)]
    assert {setting.device for *_, setting in arguments} == {"cuda:0"}  # the daemon shows one GPU
    assert set(environment) == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"}
    ways.close(way)
    assert started.closed
    assert machine.state == ("[N/A]", "Default", False, "")


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (Machine(tools=["nvidia-smi"]), "nvidia-cuda-mps-control not found"),
        (Machine(tools=[]), "nvidia-smi not found"),
        (Machine(mig="Enabled"), "in MIG mode"),
        (Machine(fails="nvidia-cuda-mps-control -d"), "did not start: Insufficient Permissions"),
    ],
)
def test_where_there_is_no_daemon_the_reason_is_given(started, machine, reason):
    with pytest.raises(Unavailable, match=reason):
        plain.concurrent_mps(WORKLOADS["mlp_s"], 2, GPU, machine.tools())
    assert started.calls == []
    assert not machine.daemon


def test_replicas_that_go_past_the_daemon_are_not_measured(started):
    machine = Machine(fails="get_server_list")
    with pytest.raises(Error, match="serves no process"):
        plain.concurrent_mps(WORKLOADS["mlp_s"], 2, GPU, machine.tools())
    assert started.closed
    assert not machine.daemon


@pytest.mark.parametrize("make", [plain.graphed, plain.graphed_streams, plain.concurrent_mps])
def test_a_cpu_has_neither(make):
    with pytest.raises(Unavailable, match="--device cuda"):
        make(WORKLOADS["mlp_s"], 2, Setting())


@pytest.mark.gpu
def test_a_graph_trains_as_the_step_it_is_of():
    workload, setting = WORKLOADS["mlp_s"], Setting(device="cuda:0")
    trained = []
    for capture in (False, True):
        model, batch = plain.built(workload, 0, setting), plain.drawn(workload, setting)
        adam = torch.optim.Adam(model.parameters(), fused=True, capturable=True)
        step = setting.step(adam, lambda model=model, batch=batch: workload.loss(model, *batch))
        if capture:
            graph = plain.Graphed(step, torch.cuda.graph_pool_handle())  # three steps, and one that is recorded
            for _ in range(5):
                graph()
        else:
            for _ in range(8):
                step()
        torch.cuda.synchronize()
        trained.append([p.detach().clone() for p in model.parameters()])
    torch.testing.assert_close(*trained, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_a_gpu_is_named_as_the_driver_does():
    assert plain.gpu_id("cuda:0").startswith("GPU-")
