# SPDX-License-Identifier: MIT
"""Predicted memory of a step, beside the bytes of what torch allocates during it."""

import pytest
import torch

import dnnsuite
from dnnsuite import adapters, optim
from dnnsuite.errors import InvalidArgument
from tiny_adapters import gpt2, llama, lora, peft, sequences, trained

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def most_allocated(run):
    """Most bytes that torch's allocator has given out at once while `run` ran, above those before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def test_parts_and_what_fits():
    base = llama()
    configs = [lora(rank, ["q_proj", "v_proj"]) for rank in (2, 8)]
    found = adapters.memory(base, configs, adapters.collate(sequences([[6, 6], [6]])))
    array = dnnsuite.adapt(base, configs)
    assert found.base >= sum(p.nbytes for p in base.parameters())
    assert found.adapters == 3 * sum(p.nbytes for p in trained(array))
    one = (found.adapters + found.activations) / 2
    assert found.fit(found.peak) == 2
    assert found.fit(int(found.base + 5.5 * one)) == 5
    assert found.fit(found.base // 2) == 0
    with pytest.raises(InvalidArgument, match="batch is of 1 models, and there are 2 configs"):
        adapters.memory(base, configs, adapters.collate(sequences([[6]])))


def ia3():
    """Three models whose batches are padded."""
    return [peft.IA3Config(target_modules=["v_proj"], feedforward_modules=[])] * 3


@pytest.mark.parametrize(
    ("base", "configs"),
    [
        (llama, lambda: [lora(rank, ["q_proj", "v_proj"]) for rank in (2, 4, 3)]),
        (gpt2, lambda: [lora(rank, ["c_attn"], fan_in_fan_out=True) for rank in (2, 4, 3)]),
        (llama, ia3),
    ],
    ids=["llama", "gpt2", "padded"],
)
def test_a_step_holds_what_was_predicted(base, configs):
    base, configs, own = base().train(), configs(), sequences([[14] * 8, [14, 6, 10] * 5, [12] * 10])
    batch = adapters.collate(own)
    predicted = adapters.memory(base, configs, batch).peak
    adapters.losses.next_token(dnnsuite.adapt(base, configs), batch)  # what is set up once
    held = [base]

    def run():
        array = dnnsuite.adapt(base, configs).train()
        opt = optim.AdamW(trained(array), lr=1e-3)
        for _ in range(2):
            opt.zero_grad()
            adapters.losses.next_token(array, batch).sum().backward()
            opt.step()
        held.append((array, opt))

    measured = most_allocated(run) + sum(p.nbytes for p in base.parameters())
    assert predicted == pytest.approx(measured, rel=0.1)
