# SPDX-License-Identifier: MIT
"""Generators of GPUs, with numbers in the place of their states: no GPU is needed to lose sight of one."""

import pytest
import torch

from dnnsuite._fuse.code.plain_draws import Draws, generator_back, gpu_generators


@pytest.fixture
def gpus(monkeypatch):
    """States of two GPUs, of which the first is the current one."""
    held = [torch.tensor([1], dtype=torch.uint8), torch.tensor([2], dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [state.clone() for state in held])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda states: held.__setitem__(slice(None), states))
    return held


def test_what_a_model_on_the_second_gpu_draws_is_put_back(gpus):
    draws = Draws()
    with generator_back(draws):
        gpus[1] = torch.tensor([9], dtype=torch.uint8)
        draws.drew = True
    assert [int(state) for state in gpu_generators()] == [1, 2]


def test_no_gpu_is_looked_at_before_it_is_in_use(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: 1 / 0)
    assert gpu_generators() == []
