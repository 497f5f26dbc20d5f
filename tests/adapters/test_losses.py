# SPDX-License-Identifier: MIT
"""Objectives of adapters: each model's loss and gradients are those of PEFT's model by the papers' formulae."""

import pytest
import torch
from torch.nn.functional import logsigmoid

import dnnsuite
from dnnsuite import adapters
from tiny_adapters import llama, lora, prepared, sequences

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
BETAS = [0.1, 0.5, 2.0]


def rows(model, sequence, labels):
    """Log-probabilities of a sequence's targets."""
    logits = model(input_ids=sequence["input_ids"][None]).logits[0, :-1]
    chances = logits.log_softmax(1).gather(1, sequence["input_ids"][1:, None]).squeeze(1)
    return chances[labels[1:] != -100]


def dpo_of_one(model, chosen, rejected, beta):
    losses = []
    for pair in zip(chosen, rejected, strict=True):
        mine, base = [], []
        for sequence in pair:
            mine.append(rows(model, sequence, sequence["labels"]).sum())
            with torch.no_grad(), model.disable_adapter():
                base.append(rows(model, sequence, sequence["labels"]).sum())
        losses.append(-logsigmoid(beta * (mine[0] - mine[1] - base[0] + base[1])))
    return torch.stack(losses).mean()


def orpo_of_one(model, chosen, rejected, beta):
    ratios, whole = [], []
    for pair in zip(chosen, rejected, strict=True):
        p = [rows(model, sequence, sequence["labels"]).mean().exp() for sequence in pair]
        ratios.append(logsigmoid(torch.log((p[0] / (1 - p[0])) / (p[1] / (1 - p[1])))))
        whole.append(rows(model, pair[0], pair[0]["input_ids"]))
    return -torch.cat(whole).mean() - beta * torch.stack(ratios).mean()


@pytest.mark.parametrize(("name", "of_one"), [("dpo", dpo_of_one), ("orpo", orpo_of_one)])
def test_preferences_are_learned_as_alone(name, of_one):
    array, models = prepared(llama(), [lora(rank, ["q_proj", "v_proj"]) for rank in (2, 5, 3)])
    chosen, rejected = sequences([[5], [7, 4, 4], [4, 6]], 2), sequences([[6], [3, 5, 7], [9, 4]], 2)
    pairs = [adapters.collate(own) for own in (chosen, rejected)]
    losses = getattr(adapters.losses, name)(array, *pairs, BETAS)
    losses.sum().backward()
    held = dict(array.named_parameters())
    for index, model in enumerate(models):
        loss = of_one(model, chosen[index], rejected[index], BETAS[index])
        loss.backward()
        torch.testing.assert_close(losses[index], loss)
        for own, parameter in model.named_parameters():
            if parameter.grad is not None:
                mine = held[own].grad[index][tuple(map(slice, parameter.shape))]
                torch.testing.assert_close(mine, parameter.grad)


def test_a_reference_may_be_given_and_labels_be_wrong():
    array, _ = prepared(llama(), [lora(2, ["q_proj"])] * 2)
    chosen, rejected = (adapters.collate(sequences(own, 2)) for own in ([[5], [7, 4]], [[6], [3, 5]]))
    known = [adapters.losses.log_probs(array, batch, reference=True).sum(2) for batch in (chosen, rejected)]
    plain = adapters.losses.dpo(array, chosen, rejected, reference=known)
    torch.testing.assert_close(plain, adapters.losses.dpo(array, chosen, rejected))
    turned = adapters.losses.dpo(array, rejected, chosen)
    mixed = adapters.losses.dpo(array, chosen, rejected, label_smoothing=[0.0, 0.25])
    torch.testing.assert_close(mixed, torch.stack([plain[0], 0.75 * plain[1] + 0.25 * turned[1]]))


def test_the_base_of_a_batch_of_all_models_is_computed_once():
    array, _ = prepared(llama(), [lora(2, ["q_proj"])] * 3)
    one = {name: value[0] for name, value in adapters.collate(sequences([[5, 3]])).items()}
    found = adapters.losses.log_probs(array, dnnsuite.stack(one, B=3), reference=True)
    assert found.stride(0) == 0
    each = {name: value.repeat(3, 1, 1) for name, value in one.items()}
    torch.testing.assert_close(found, adapters.losses.log_probs(array, each, reference=True))
