# SPDX-License-Identifier: MIT
"""Adapters that leave an array, come into one, and go to disk."""

import copy
import pickle

import pytest
import torch

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite.errors import InvalidArgument
from tiny_adapters import bert, lora, one_by_one, peft, targets_like, tokens, trained

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def ranks(array):
    return [config.r for config in array.configs]


def step(array, opt, ids):
    logits = array(input_ids=ids).logits
    losses = nn.functional.cross_entropy(logits, targets_like(logits[0]).expand(logits.shape[:-1]))
    opt.zero_grad()
    losses.sum().backward()
    opt.step()
    return losses.detach()


def test_of_32_adapters_some_stop_early():
    configs = [lora(rank, ["query"]) for rank in (1, 2, 4, 8) * 8]
    base, (ids,) = bert(), tokens(32)
    array = dnnsuite.adapt(base, configs, seeds=range(32))
    opt = optim.AdamW(trained(array), lr=[1e-3 * (1 + index) for index in range(32)])
    step(array, opt, ids)
    stopped = [0, 3, 5, 31]
    left = [index for index in range(32) if index not in stopped]
    array.drop(stopped, opt)
    assert ranks(array) == [configs[index].r for index in left]
    step(array, opt, ids[left])
    for place in (0, 27):  # each as if it had been alone
        index = left[place]
        alone = dnnsuite.adapt(base, [configs[index]], seeds=[index])
        own = optim.AdamW(trained(alone), lr=1e-3 * (1 + index))
        for _ in range(2):
            step(alone, own, ids[index : index + 1])
        assert all(
            torch.equal(mine, other)
            for mine, other in zip(alone[0].parameters(), array[place].parameters(), strict=True)
        )


def test_models_come_and_go(tmp_path):
    base, (ids,) = bert(layers=2), tokens(4)
    array = dnnsuite.adapt(base, [lora(2), lora(6), lora(4)], seeds=[1, 2, 3])
    opt = optim.SGD(trained(array), lr=[0.1, 0.2, 0.3])
    (model,) = one_by_one(base, [lora(3)])
    array.append(model, opt, lr=0.4)
    assert ranks(array) == [2, 6, 4, 3]
    assert [config.r for config in model.peft_config.values()] == [3]
    torch.testing.assert_close(array(input_ids=ids).logits[3], model(input_ids=ids[3]).logits)
    array.replace(0, lora(5, ["query"]), opt, lr=0.5)
    array.clone(1, opt, into=2)
    assert ranks(array) == [5, 6, 6, 3]
    assert {name for name in array[0].state_dict() if "lora_" in name} < {*array[1].state_dict()}
    assert array[0].base_model.targeted_module_names == [
        f"bert.encoder.layer.{index}.attention.self.query" for index in (0, 1)
    ]
    step(array, opt, ids)
    folder = tmp_path / "of model 2"
    array[2].save_pretrained(folder)
    array.replace(3, folder, opt, lr=0.1)
    torch.testing.assert_close(array[3].state_dict(), array[2].state_dict())
    assert len(dnnsuite.unfuse(array)) == 4
    assert ranks(array.narrow(1, 2)) == [6, 6]


def test_what_does_not_fit_in_is_refused_and_changes_nothing():
    base, (ids,) = bert(), tokens(2)
    array = dnnsuite.adapt(base, [lora(2), lora(3)])
    opt = optim.SGD(trained(array), lr=0.1)
    before = array(input_ids=ids).logits
    for config, said in [
        (lora(4), "rank 4 at .*query, and this array holds ranks up to 3"),
        (lora(2, ["key"]), "adapter on .*key, where this array has none"),
        (peft.IA3Config(target_modules=["query"], feedforward_modules=[]), "LoraModel and IA3Model"),
        ("nowhere", "no adapter_config.json"),
    ]:
        with pytest.raises(InvalidArgument, match=said):
            array.append(config, opt)
    with pytest.raises(InvalidArgument, match="models of PEFT's"):
        array.append(bert(), opt)
    assert ranks(array) == [2, 3]
    assert torch.equal(array(input_ids=ids).logits, before)


def test_copies_and_pickles_are_arrays_of_adapters():
    base, (ids,) = bert(), tokens(2)
    array = dnnsuite.adapt(base, [lora(2), lora(3)])
    logits = array(input_ids=ids).logits
    for other in (copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
        assert ranks(other) == [2, 3]
        assert torch.equal(other(input_ids=ids).logits, logits)
        assert next(iter(other[1].peft_config.values())).r == 3
    with pytest.raises(InvalidArgument, match="unpickled"):
        other.append(lora(2))


def test_an_adapter_is_switched_off_for_all_models():
    base, (ids,) = bert(), tokens(2)
    array = dnnsuite.adapt(base, [lora(2), lora(3)], seeds=[1, 2])
    step(array, optim.Adam(trained(array), lr=1.0), ids)
    with array.disable_adapter():
        logits = array(input_ids=ids).logits
    torch.testing.assert_close(logits, torch.stack([base(input_ids=own).logits for own in ids]))
    assert not torch.allclose(array(input_ids=ids).logits, logits)
    with pytest.raises(InvalidArgument, match=r"array\.replace"):
        array.merge_and_unload()


def test_a_part_that_an_adapter_trains_is_switched_off_with_it():
    base, (ids,) = bert(), tokens(2)
    array = dnnsuite.adapt(base, [lora(2, modules_to_save=["classifier"])] * 2, seeds=[1, 2])
    step(array, optim.Adam(trained(array), lr=1.0), ids)
    with array.disable_adapter():
        logits = array(input_ids=ids).logits
    torch.testing.assert_close(logits, torch.stack([base(input_ids=own).logits for own in ids]))


def test_an_optimizer_of_one_model_goes_on_with_its_own_ranks():
    base, (ids,) = bert(), tokens(2)
    array = dnnsuite.adapt(base, [lora(2), lora(3)], seeds=[1, 2])
    opt = optim.AdamW(trained(array), lr=[1e-3, 2e-3])
    step(array, opt, ids)
    model = array[0]
    own = opt.to_model(0, trained(model))
    for parameter in trained(model):
        assert own.state[parameter]["exp_avg"].shape == parameter.shape


def test_training_goes_on_with_the_masks_that_would_have_come():
    def trained_from(first, last, kept=None):
        array = dnnsuite.adapt(bert(0.1), [lora(2, lora_dropout=0.3), lora(3)], seeds=[1, 2]).train()
        opt = optim.AdamW(trained(array), lr=[1e-2, 1e-3])
        if kept is not None:
            array.load_state_dict(kept[0])
            opt.load_state_dict(kept[1])
            nn.set_rng_state(array, kept[2])
        losses = []
        for ids in tokens(2, steps=4)[first:last]:
            losses.append(array(input_ids=ids).logits.square().mean((1, 2)))
            opt.zero_grad()
            losses[-1].sum().backward()
            opt.step()
        return losses, copy.deepcopy((array.state_dict(), opt.state_dict(), nn.get_rng_state(array)))

    whole, _ = trained_from(0, 4)
    first, kept = trained_from(0, 2)
    rest, _ = trained_from(2, 4, kept)
    assert all(map(torch.equal, whole, [*first, *rest]))
