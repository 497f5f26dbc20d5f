# SPDX-License-Identifier: MIT
"""LoRA layers of models with ranks, rates of dropout and places of their own."""

import functools

import pytest
import torch

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.sharing import is_shared
from tiny_adapters import ConvNet, bert, gpt2, lora, one_by_one, tokens, trained

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
SEEDS, LRS = [5, 6, 7, 8], [1e-3, 2e-3, 3e-3, 4e-3]
TARGETS = torch.tensor([0, 1])
NORMS = [0.1, float("inf"), 0.3, 0.05]


@functools.cache
def configs():
    return [lora(2, lora_dropout=0.1), lora(9), lora(4, ["query"], lora_dropout=0.3), lora(2, lora_dropout=0.1)]


def train(array, ids, lrs, steps=3, norms=None):
    opt = optim.AdamW(trained(array), lr=lrs, max_grad_norm=norms)
    losses = []
    for _ in range(steps):
        logits = array(input_ids=ids).logits
        own = nn.functional.cross_entropy(logits, TARGETS.expand(logits.shape[:-1]))
        opt.zero_grad()
        own.sum().backward()
        opt.step()
        losses.append(own.detach())
    return torch.stack(losses)


def test_a_model_has_the_same_bits_in_any_company():
    base, (ids,) = bert(0.1), tokens(4)
    together = dnnsuite.adapt(base, configs(), seeds=SEEDS)
    losses = train(together, ids, LRS, norms=NORMS)
    for index, (config, seed, lr) in enumerate(zip(configs(), SEEDS, LRS, strict=True)):
        alone = dnnsuite.adapt(base, [config], seeds=[seed])
        own = train(alone, ids[index : index + 1], [lr], norms=NORMS[index : index + 1])
        assert torch.equal(own[:, 0], losses[:, index])
        mine, theirs = alone[0].state_dict(), together[index].state_dict()
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in mine.items())


def test_in_bfloat16_a_model_has_the_same_bits_beside_other_ranks():
    base, (ids,) = bert(), tokens(3)
    configs = [lora(2), lora(37), lora(4)]
    with torch.autocast("cpu", torch.bfloat16):
        losses = train(dnnsuite.adapt(base, configs, seeds=SEEDS[:3]), ids, LRS[:3])
        for index, config in enumerate(configs):
            alike = train(dnnsuite.adapt(base, [config] * 3, seeds=SEEDS[:3]), ids, LRS[:3])
            assert torch.equal(alike[:, index], losses[:, index])


def test_a_recorded_step_computes_the_rank_of_a_model_that_came_later():
    base, (ids,) = bert(), tokens(2)
    seen = []
    for capture in (True, False):
        array = dnnsuite.adapt(base, [lora(6), lora(2)], seeds=SEEDS[:2])
        opt = optim.AdamW(trained(array), lr=LRS[:2])
        with dnnsuite.StepRunner(array, opt, own_losses, threads=1, capture=capture) as runner:
            for _ in range(4):
                runner.step(ids)
            torch.manual_seed(0)
            array.replace(1, lora(5), opt, lr=1e-3)
            with torch.no_grad():
                for name, parameter in array.named_parameters():
                    if "lora_B" in name:
                        parameter[1, :, :5] = 0.1
            seen.append(torch.stack([runner.step(ids).losses() for _ in range(4)]))
    assert torch.equal(*seen)


def test_dora_where_another_has_no_adapter_is_refused():
    configs = [lora(2, ["query", "value"], use_dora=True), lora(2, ["query"], use_dora=True)]
    with pytest.raises(InvalidArgument, match=r"has DoRA on .*value, where another has no adapter"):
        dnnsuite.adapt(bert(), configs)


def own_losses(array, ids):
    logits = array(input_ids=ids).logits
    return nn.functional.cross_entropy(logits, TARGETS.expand(logits.shape[:-1]))


def test_a_recorded_step_has_the_bits_of_one_as_written():
    base, (ids,) = bert(0.1), tokens(4)
    losses = train(dnnsuite.adapt(base, configs(), seeds=SEEDS), ids, LRS, steps=4)
    array = dnnsuite.adapt(base, configs(), seeds=SEEDS)
    opt = optim.AdamW(trained(array), lr=LRS)

    def loss(model, batch):
        logits = model(input_ids=batch).logits
        return nn.functional.cross_entropy(logits, TARGETS.expand(logits.shape[:-1]))

    with dnnsuite.StepRunner(array, opt, loss, threads=1, width=4) as runner:
        found = torch.stack([runner.step(ids).losses().clone() for _ in range(4)])
        assert runner.mode == "captured"
    assert torch.equal(found, losses)


def test_room_beyond_a_models_rank_stays_zero():
    base, (ids,) = bert(), tokens(4)
    array = dnnsuite.adapt(base, configs(), seeds=SEEDS)
    train(array, ids, LRS)
    layer = array.get_submodule("base_model.model.bert.encoder.layer.0.attention.self.value")
    ranks = [2, 9, 0, 2]  # the third model has no adapter here
    for index, rank in enumerate(ranks):
        assert not layer.lora_A["default"].weight[index, rank:].any()
        assert not layer.lora_B["default"].weight[index, :, rank:].any()
        assert layer.lora_B["default"].weight[index, :, :rank].any() or not rank


def test_a_base_in_bfloat16_keeps_adapters_in_float32():
    base, (ids,) = bert().bfloat16(), tokens(3)
    configs = [lora(rank) for rank in (2, 3, 4)]
    array = dnnsuite.adapt(base, configs, seeds=[5, 6, 7])
    logits = array(input_ids=ids).logits
    assert logits.dtype == torch.bfloat16
    assert {p.dtype for p in trained(array)} == {torch.float32}
    for index, model in enumerate(one_by_one(base, configs)):
        torch.testing.assert_close(logits[index], model(input_ids=ids[index]).logits, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpoints_change_nothing(reentrant):
    (ids,) = tokens(4)
    base = bert(0.1)
    losses = train(dnnsuite.adapt(base, configs(), seeds=SEEDS), ids, LRS)
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    base.enable_input_require_grads()
    assert torch.equal(train(dnnsuite.adapt(base, configs(), seeds=SEEDS), ids, LRS), losses)


def test_running_statistics_are_each_models_own():
    base, x = ConvNet(), torch.randn(2, 5, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    config = lora(2, ["conv", "fc"])
    array, models = dnnsuite.adapt(base, [config] * 2, seeds=[5, 6]), one_by_one(base, [config] * 2)
    torch.testing.assert_close(array(x), torch.stack([model(own) for model, own in zip(models, x, strict=True)]))
    for index, model in enumerate(models):
        torch.testing.assert_close(array[index].state_dict(), model.state_dict())
    assert not base.norm.running_mean.any()


def test_statistics_of_a_base_in_eval_mode_are_shared_until_they_are_trained():
    base, x = ConvNet().eval(), torch.randn(2, 5, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    before = base.norm.running_mean.clone()
    array = dnnsuite.adapt(base, [lora(2, ["fc"])] * 2, seeds=[5, 6])
    assert is_shared(array.get_submodule("base_model.model.norm").running_mean)
    models = one_by_one(base, [lora(2, ["fc"])] * 2)
    for one in (array, *models):
        one.train()
    torch.testing.assert_close(array(x), torch.stack([model(own) for model, own in zip(models, x, strict=True)]))
    for index, model in enumerate(models):
        torch.testing.assert_close(array[index].state_dict(), model.state_dict())
    assert torch.equal(base.norm.running_mean, before)


def test_embeddings_have_the_same_bits_in_any_company():
    configs = [lora(2, ["wte"]), lora(7, ["wte", "c_attn"], fan_in_fan_out=True), lora(3, ["wte"])]
    base, (ids,) = gpt2(), tokens(3)

    def trained_on(array, ids, lrs):
        opt = optim.AdamW(trained(array), lr=lrs)
        for _ in range(3):
            losses = array(input_ids=ids).logits.square().mean((1, 2, 3))
            opt.zero_grad()
            losses.sum().backward()
            opt.step()
        return array

    together = trained_on(dnnsuite.adapt(base, configs, seeds=SEEDS[:3]), ids, LRS[:3])
    for index, config in enumerate(configs):
        alone = dnnsuite.adapt(base, [config], seeds=SEEDS[index : index + 1])
        trained_on(alone, ids[index : index + 1], LRS[index : index + 1])
        mine, theirs = alone[0].state_dict(), together[index].state_dict()
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in mine.items())


def test_a_few_tokens_under_a_large_rank_have_the_same_bits_in_any_company():
    base, configs, (ids,) = bert(), [lora(2), lora(40), lora(4)], tokens(3)
    ids = ids[:, :1, :4]

    def trained_on(array, ids):
        opt = optim.SGD(trained(array), lr=0.1)
        for _ in range(2):
            opt.zero_grad()
            losses = array(input_ids=ids).logits.square().mean((1, 2))
            losses.sum().backward()
            opt.step()
        return losses

    losses = trained_on(dnnsuite.adapt(base, configs, seeds=SEEDS[:3]), ids)
    for index, config in enumerate(configs):
        alone = dnnsuite.adapt(base, [config], seeds=SEEDS[index : index + 1])
        assert torch.equal(trained_on(alone, ids[index : index + 1])[0], losses[index])
