# SPDX-License-Identifier: MIT
"""Objectives of adapters: each model's loss and gradients are those of PEFT's model by the papers' formulae."""

import pytest
import torch
from torch.nn.functional import logsigmoid

import dnnsuite
from dnnsuite import adapters
from dnnsuite.errors import InvalidArgument
from tiny_adapters import llama, lora, prepared, sequences, trained

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


def grpo_of_one(model, sampled, gains, old, beta, mean):
    """As in DeepSeekMath (Shao et al., 2024), equation 3, with the estimate of the divergence in equation 4."""
    each = []
    for sequence, gain, before in zip(sampled, gains, old, strict=True):
        mine = rows(model, sequence, sequence["labels"])
        with torch.no_grad(), model.disable_adapter():
            base = rows(model, sequence, sequence["labels"])
        ratio = torch.exp(mine - before)
        surrogate = torch.min(ratio * gain, torch.clamp(ratio, 0.9, 1.3) * gain)
        each.append(beta * (torch.exp(base - mine) - (base - mine) - 1) - surrogate)
    return torch.stack([own.mean() for own in each]).mean() if mean == "sequence" else torch.cat(each).mean()


def reinforce_of_one(model, sampled, gains):
    sums = [rows(model, sequence, sequence["labels"]).sum() for sequence in sampled]
    return -torch.stack([gain * own for gain, own in zip(gains, sums, strict=True)]).mean()


@pytest.mark.parametrize("mean", ["sequence", "token", "reinforce"])
def test_rewarded_answers_are_learned_as_alone(mean):
    array, models = prepared(llama(), [lora(rank, ["q_proj", "v_proj"]) for rank in (2, 5, 3)])
    sampled = sequences([[5, 7, 4, 6], [7, 4, 4, 3], [4, 6, 5, 5]], 2)
    batch, rewards = adapters.collate(sampled), torch.tensor([[1.0, 0, 2, 5], [3, 3, 0, 1], [2, 1, 1, 2]])
    grouped = rewards.view(3, 2, 2)
    with torch.no_grad():
        before = adapters.losses.log_probs(array, batch)
        before = before + torch.randn(before.shape).mul(0.3).masked_fill(batch["labels"][..., 1:] == -100, 0)
    if mean == "reinforce":
        gains = adapters.losses.advantages(rewards, 2, leave_one_out=True)
        torch.testing.assert_close(gains, (grouped - grouped.flip(2)).flatten(1))
        losses = adapters.losses.reinforce(array, batch, gains)
    else:
        gains = adapters.losses.advantages(rewards, 2)
        deviation = (grouped[..., :1] - grouped[..., 1:]).abs() / 2**0.5
        torch.testing.assert_close(gains, ((grouped - grouped.mean(2, True)) / (deviation + 1e-4)).flatten(1))
        losses = adapters.losses.grpo(array, batch, gains, old=before, clip=(0.1, 0.3), beta=BETAS, mean=mean)
    losses.sum().backward()
    held = dict(array.named_parameters())
    for index, model in enumerate(models):
        if mean == "reinforce":
            loss = reinforce_of_one(model, sampled[index], gains[index])
        else:
            old = [row[own[1:] != -100] for row, own in zip(before[index], batch["labels"][index], strict=True)]
            loss = grpo_of_one(model, sampled[index], gains[index], old, BETAS[index], mean)
        loss.backward()
        torch.testing.assert_close(losses[index], loss)
        for own, parameter in model.named_parameters():
            if parameter.grad is not None:
                mine = held[own].grad[index][tuple(map(slice, parameter.shape))]
                torch.testing.assert_close(mine, parameter.grad)


def three_means(array, batch, gains):
    """Means over targets, over sequences that have some, and over the targets of sampled answers."""
    of = adapters.losses
    by_token = of.grpo(array, batch, gains, mean="token")
    return of.next_token(array, batch) + 2 * of.reinforce(array, batch, gains) + 3 * by_token


def test_parts_that_a_runner_accumulates_add_up_to_the_whole():
    """Parts have different numbers of targets and of sequences; one has none."""
    batch = adapters.collate(sequences([[5, 7, 4, 6], [7, 4], [2, 2, 6, 3]], 2))
    gains, found = torch.tensor([[1.0, 2, -1, 3]] * 3), []
    for parts in (1, 2):
        array = dnnsuite.adapt(llama().double(), [lora(2, ["q_proj"])] * 3, seeds=[5, 6, 7])
        opt = dnnsuite.optim.SGD(trained(array), lr=[1.0, 2.0, 3.0])
        options = {"threads": 1, "width": parts, "accumulate": parts, "capture": False}
        with dnnsuite.StepRunner(array, opt, three_means, **options) as runner:
            found.append([runner.step(batch, gains).losses().clone() for _ in range(2)] + trained(array))
    torch.testing.assert_close(found[1], found[0])

    def made_anew(array, batch, gains):
        return adapters.losses.next_token(array, {"input_ids": batch["input_ids"] + 0})

    runner = dnnsuite.StepRunner(array, opt, made_anew, **options)
    with runner, pytest.raises(InvalidArgument, match="input_ids is not a tensor of the runner's batch"):
        runner.step(batch, gains)
