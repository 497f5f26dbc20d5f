# SPDX-License-Identifier: MIT
"""Bytes by class against counts made by hand."""

import mmap
import os
import threading

import pytest
import torch
from torch import nn

from dnnsuite.profiler.memory import FeatureMaps, stored_bytes
from dnnsuite.profiler.memory._classes import begin_peak, level, state_tensors

F32 = 4


def saved_bytes(model, x):
    maps = FeatureMaps()
    maps.exclude([*model.parameters(), *model.buffers()])
    maps.enter()
    out = model(x)
    maps.leave()
    return maps, out


def test_storages_are_counted_once():
    base = torch.zeros(10)
    assert stored_bytes([base, base[2:], base.view(2, 5), None]) == 40
    seen = set()
    assert (stored_bytes([base], seen), stored_bytes([base[1:], torch.zeros(3)], seen)) == (40, 12)


@pytest.mark.parametrize(
    ("model", "shape", "elements"),
    [
        # each linear layer saves its input; ReLU saves its output, which is the next layer's input
        (nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)), (4, 10), 4 * 10 + 4 * 20),
        (nn.Sequential(nn.Linear(10, 20), nn.Tanh()), (4, 10), 4 * 10 + 4 * 20),
        # a sum of a tensor with itself saves nothing
        (nn.Sequential(nn.Linear(6, 6), nn.Identity()), (3, 6), 3 * 6),
        # the convolution saves its input, max pooling its input and its int64 indices (two elements each)
        (nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.MaxPool2d(2)), (1, 2, 8, 8), 2 * 64 + 3 * 64 + 2 * 3 * 16),
        # layer norm saves its input, and mean and 1/std of each row
        (nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), (5, 8), 5 * 8 + 5 * 8 + 2 * 5),
    ],
    ids=["mlp", "tanh", "identity", "conv", "layer norm"],
)
def test_feature_maps_by_hand(model, shape, elements):
    maps, out = saved_bytes(model, torch.randn(shape))
    assert maps.peak_bytes == elements * F32
    assert maps.seen > 0
    out.sum().backward()
    del out
    assert maps.live_bytes() == 0


def test_weights_and_their_views_are_no_feature_maps():
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 3))

        def forward(self, x):
            return x @ self.weight.t().t()

    maps, _out = saved_bytes(Transposed(), torch.randn(2, 6))
    assert maps.peak_bytes == 2 * 6 * F32


def test_recomputed_feature_maps_are_not_there():
    from torch.utils.checkpoint import checkpoint

    body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8))

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body

        def forward(self, x):
            return checkpoint(self.body, x, use_reentrant=False)

    x = torch.randn(4, 8, requires_grad=True)
    plain, _kept = saved_bytes(body, x)
    less, _also = saved_bytes(Checkpointed(), x)
    assert plain.peak_bytes == (4 * 8 + 4 * 64) * F32
    assert less.peak_bytes < plain.peak_bytes


def test_nested_forwards_and_threads():
    maps, outs = FeatureMaps(), []

    def forward():
        outer = maps.enter()
        inner = maps.enter()
        outs.append(torch.randn(5, requires_grad=True).exp())
        maps.leave()
        maps.leave()
        assert (outer, inner) == (True, False)

    threads = [threading.Thread(target=forward) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maps.live_bytes() == 2 * 5 * F32
    maps.leave()  # one too many does nothing
    maps.reset()
    assert maps.peak_bytes == 0


def test_state_of_optimizers():
    parameter = nn.Parameter(torch.zeros(7))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(7)
    optimizer.step()
    assert stored_bytes(state_tensors(optimizer)) == 2 * 7 * F32 + F32  # two moments, and the step


def test_the_peak_holds_what_was_there_for_a_moment():
    begin_peak("cpu")
    before = level("cpu")
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the kernel does not let the peak be reset")
    with mmap.mmap(-1, 64 << 20) as held:  # from the kernel, not from what others have freed
        held.write(b"1" * len(held))
    after = level("cpu")
    assert after.peak - before.peak > 50 << 20
    assert after.current < after.peak
    begin_peak("cpu")
    assert level("cpu").peak < after.peak
