# SPDX-License-Identifier: MIT
"""Memory of a loop that does not know of it, against counts by hand."""

import mmap
import os
import sys
import threading

import pytest
import torch
from torch import nn

from dnnsuite import fuse, optim, profiler
from dnnsuite.errors import Unavailable
from dnnsuite.nn import functional
from dnnsuite.profiler.memory import (
    CLASSES,
    FeatureMaps,
    MemoryInstrument,
    begin_peak,
    level,
    state_tensors,
    stored_bytes,
)


def observe(step, **arguments):
    with profiler.profile(instruments=[MemoryInstrument(**arguments)]) as p:
        for _ in range(3):
            step()
            p.step()
    return p


def by_class(p):
    return dict(zip(p.memory["class"], p.memory["bytes"], strict=True))


def test_a_plain_loop_by_hand():
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5), nn.BatchNorm1d(5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 10)).sum().backward()
        optimizer.step()

    p = observe(step)
    parameters = 10 * 20 + 20 + 20 * 5 + 5 + 5 + 5
    buffers = 2 * 5 * 4 + 8  # running mean and variance, and an int64 counter
    found = by_class(p)
    assert found["weights"] == 4 * parameters + buffers
    assert found["gradients"] == found["optimizer state"] == 4 * parameters
    # inputs of the linear layers and of the normalisation, and its mean and 1/std
    assert found["feature maps"] == 4 * (4 * 10 + 4 * 20 + 4 * 5 + 2 * 5)
    assert found["workspace and other"] > 0
    assert list(p.memory["definition"]) == list(CLASSES.values())
    assert len(p.memory_steps) == 3
    assert p.memory_steps["feature_maps_bytes"].nunique() == 1
    assert p._driver.instruments[0]._modules == {}


def test_an_array_of_models():
    models = [nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)) for _ in range(3)]
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=[0.1, 0.2, 0.3])
    x, y = torch.randn(3, 4, 10), torch.randint(5, (3, 4))

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(array(x), y).sum().backward()
        optimizer.step()

    p = observe(step, models=3)
    table = p.memory.set_index("class")
    own = sum(buffer.nbytes for buffer in array.buffers()) / 3  # an array keeps a few numbers of each model
    assert table.loc["weights", "bytes_per_model"] == 4 * (10 * 20 + 20 + 20 * 5 + 5) + own
    # x, and at least the hidden layer that both ReLU and the second layer need
    assert table.loc["feature maps", "bytes_per_model"] >= 4 * (4 * 10 + 4 * 20)


def test_what_cannot_be_seen_is_a_note_not_a_zero():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()

    assert any("3 steps saved nothing that could be seen" in note for note in observe(step, modules=False).notes)
    assert not any("saved nothing" in note for note in observe(step).notes)


def test_the_advice_sees_feature_maps():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)))

    p = observe(lambda: model(torch.randn(4096, 8)).sum().backward())
    from dnnsuite.profiler._advice import facts

    assert facts(p).memory_shares["feature maps"] > 90


def test_without_torch_there_is_nothing_to_see(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(Unavailable):
        MemoryInstrument().open()


def test_gradients_of_steps_that_warm_up_do_not_add_up():
    model = nn.Linear(10, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = profiler.schedule(warmup=3, active=1, repeat=1)
    with profiler.profile(schedule=schedule, instruments=[MemoryInstrument()]) as p:
        for _ in range(5):
            model(torch.randn(4, 10)).sum().backward()
            optimizer.step()
            p.step()
    assert by_class(p)["gradients"] == 4 * (10 * 20 + 20)


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
