# SPDX-License-Identifier: MIT
"""Answers that all models sample at once, and their rewards."""

import pytest
import torch

import dnnsuite
from dnnsuite import adapters
from tiny_adapters import llama, lora

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def test_models_sample_from_streams_of_their_own_and_are_rated_each():
    configs, prompts = [lora(rank, ["q_proj"]) for rank in (2, 3)], [[[5, 6, 7], [8]], [[9], [4, 4, 4]]]

    def sampled(places, rewards):
        array = dnnsuite.adapt(llama(), [configs[k] for k in places], seeds=places).train()
        given = {"max_new_tokens": 4, "end": [2, 3]}
        batch, rates = adapters.sample(array, [prompts[k] for k in places], rewards, 2, **given)
        assert array.training
        return batch, rates

    batch, rates = sampled([0, 1], [lambda prompt, answer: len(prompt), lambda prompt, answer: len(set(answer))])
    assert rates[0].tolist() == [3, 3, 1, 1]
    for place, row in enumerate(batch["labels"][1]):
        answer = row[row != -100].tolist()
        assert rates[1, place] == len(set(answer))
        assert not {2, 3} & set(answer[:-1])
    alone, _ = sampled([1], lambda prompt, answer: 0)
    width = alone["labels"].shape[2]
    assert torch.equal(alone["labels"][0], batch["labels"][1, :, :width])
    with pytest.raises(dnnsuite.errors.InvalidArgument, match="one reward or one per model"):
        sampled([0, 1], [len])
    with pytest.raises(dnnsuite.errors.InvalidArgument, match="NaN"):
        adapters.losses.advantages(torch.tensor([[1.0, float("nan")]]), 2)
