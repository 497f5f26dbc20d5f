# SPDX-License-Identifier: MIT
"""Arrays of adapters against PEFT's models trained one by one, in float64."""

import copy
import sys

import pytest
import torch

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite.errors import InvalidArgument, Unavailable
from tiny_adapters import LRS, SEEDS, ConvNet, bert, gpt2, llama, lora, one_by_one, peft, targets_like, tokens, trained

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
CAUSAL = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 2}

CASES = {
    "ranks, scales and rslora": lambda: (
        lambda: bert(layers=2),
        [lora(2, use_rslora=True), lora(5, lora_alpha=7), lora(3, rank_pattern={"layer.1.*.query": 4})],
    ),
    "other places": lambda: (bert, [lora(2, ["query"]), lora(3, ["query", "dense"]), lora(1, ["value"])]),
    "a head of each": lambda: (bert, [lora(rank, modules_to_save=["classifier"]) for rank in (2, 3, 4)]),
    "every bias": lambda: (bert, [lora(rank, bias="all", lora_bias=True) for rank in (2, 3, 4)]),
    "Conv1D": lambda: (gpt2, [lora(rank, ["c_attn"], fan_in_fan_out=True) for rank in (2, 3, 4)]),
    "embeddings and a tied head": lambda: (
        gpt2, [lora(2, ["wte", "lm_head"]), lora(4, ["wte"], use_rslora=True), lora(3, ["wte", "lm_head"])],
    ),
    "all linear": lambda: (llama, [lora(rank, ["q_proj", "down_proj"], init_lora_weights="gaussian")
                           for rank in (2, 3, 4)]),
    "IA3": lambda: (
        bert, [peft.IA3Config(target_modules=["key", "output.dense"], feedforward_modules=["output.dense"])] * 3,
    ),
    "prefixes": lambda: (gpt2, [peft.PrefixTuningConfig(**CAUSAL)] * 3),
    "projected prefixes": lambda: (
        gpt2, [peft.PrefixTuningConfig(prefix_projection=True, encoder_hidden_size=8, **CAUSAL)] * 3,
    ),
    "prompts": lambda: (gpt2, [peft.PromptTuningConfig(**CAUSAL)] * 3),
}  # fmt: skip


def step(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_pefts_models(tmp_path, case):
    make, configs = CASES[case]()
    base = make().double()
    before = {name: value.clone() for name, value in base.state_dict().items()}
    models = [model.double() for model in one_by_one(base, configs)]  # PEFT's prompts are float32
    array = dnnsuite.adapt(base, configs, seeds=SEEDS).double()
    opt = optim.AdamW(trained(array), lr=LRS)
    own = [torch.optim.AdamW(trained(model), lr=lr) for model, lr in zip(models, LRS, strict=True)]
    for ids in tokens(3, steps=2):
        logits = array(input_ids=ids).logits
        targets = targets_like(logits)
        losses = nn.functional.cross_entropy(logits.flatten(1, -2), targets.flatten(1))
        opt.zero_grad()
        losses.sum().backward()
        opt.step()
        for index, model in enumerate(models):
            loss = step(model(input_ids=ids[index]).logits, targets[index])
            own[index].zero_grad()
            loss.backward()
            own[index].step()
            torch.testing.assert_close(losses[index], loss, rtol=1e-7, atol=1e-9)
    for index, model in enumerate(models):
        found = array[index].state_dict()
        assert found.keys() == model.state_dict().keys()
        torch.testing.assert_close(found, model.state_dict(), rtol=1e-7, atol=1e-8)
    assert all(torch.equal(value, base.state_dict()[name]) for name, value in before.items())
    assert not [cover for cover in array.coverage() if cover.how == "per model"]

    folders = array.save_pretrained(tmp_path)
    again = dnnsuite.adapt(base, folders).double()
    with torch.no_grad():
        logits = array(input_ids=ids).logits
        torch.testing.assert_close(again(input_ids=ids).logits, logits, rtol=1e-5, atol=1e-7)
        loaded = peft.PeftModel.from_pretrained(make().double(), folders[1]).double()
        torch.testing.assert_close(loaded(input_ids=ids[1]).logits, logits[1], rtol=1e-5, atol=1e-7)
    assert trained(again)


def test_the_base_is_not_copied_and_stays_trainable():
    base = bert()
    array = dnnsuite.adapt(base, [lora(2), lora(3)])
    assert all(parameter.requires_grad for parameter in base.parameters())
    names = {name for name, parameter in array.named_parameters() if parameter.requires_grad}
    assert names
    assert all("lora_" in name for name in names)


def test_adapters_that_take_a_part_out_of_the_base(tmp_path):
    base = bert()
    before = {name: value.clone() for name, value in base.state_dict().items()}
    configs = [lora(2, init_lora_weights="pissa"), lora(3, init_lora_weights="olora"), lora(2)]
    models = one_by_one(base, configs)
    array = dnnsuite.adapt(base, configs, seeds=SEEDS)
    (ids,) = tokens(3, steps=1)
    (array(input_ids=ids).logits.square().sum()).backward()
    optim.SGD(trained(array), lr=[0.1] * 3).step()
    for index, model in enumerate(models):
        model(input_ids=ids[index]).logits.square().sum().backward()
        torch.optim.SGD(trained(model), lr=0.1).step()
        torch.testing.assert_close(array[index].state_dict(), model.state_dict(), rtol=1e-5, atol=1e-6)
    assert all(torch.equal(value, base.state_dict()[name]) for name, value in before.items())
    again = dnnsuite.adapt(base, array.save_pretrained(tmp_path))
    torch.testing.assert_close(again(input_ids=ids).logits, array(input_ids=ids).logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("models", [1, 3])
def test_parameters_of_the_base_stay_where_they_are(models):
    base = ConvNet()
    array = dnnsuite.adapt(base, [lora(2, ["conv", "fc"])] * models)
    held = {p.data_ptr() for name, p in array.named_parameters() if "lora_" not in name}
    assert held == {p.data_ptr() for p in base.parameters()}


def test_without_seeds_adapters_start_as_a_loop_over_peft_would_start_them():
    base = bert()
    torch.manual_seed(3)
    array = dnnsuite.adapt(base, [lora(2), lora(3)])
    torch.manual_seed(3)
    models = [peft.get_peft_model(copy.deepcopy(base), lora(rank)) for rank in (2, 3)]
    for index, model in enumerate(models):
        torch.testing.assert_close(array[index].state_dict(), model.state_dict(), rtol=0, atol=0)


def refused(*args, **options):
    with pytest.raises(InvalidArgument) as error:
        dnnsuite.adapt(*args, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_makes_no_array_is_refused_by_name():
    base = bert()
    assert "got none" in refused(base, [])
    assert "a list of configs" in refused(base, lora(2))
    assert "config 1 is a int" in refused(base, [lora(2), 3])
    assert "config 0: x has no adapter_config.json" in refused(base, ["x"])
    assert "one seed per config" in refused(base, [lora(2)], seeds=[1, 2])
    assert "'qurey'" in refused(base, [lora(2, ["value", "qurey"])])
    assert "did you mean 'query'" in refused(base, [lora(2, ["value", "qurey"])])
    assert "did you mean 'classifier'" in refused(base, [lora(2, modules_to_save=["clasifier"])])
    assert "LORA and IA3" in refused(base, [lora(2), peft.IA3Config(target_modules=["query"], feedforward_modules=[])])
    assert "PeftModelForSequenceClassification" in refused(base, [lora(2), lora(2, task_type="SEQ_CLS")])
    assert "adapter on classifier" in refused(base, [lora(2), lora(2, modules_to_save=["classifier"])])
    assert "same bias, lora_bias" in refused(base, [lora(2), lora(2, bias="all")])
    assert "lora_B.default.bias" in refused(base, [lora(2), lora(2, lora_bias=True)])
    assert "num_virtual_tokens 2 and 3" in refused(
        gpt2(), [peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=n) for n in (2, 3)]
    )
    assert "array[i]" in refused(dnnsuite.fuse([torch.nn.Linear(2, 2)]), [lora(2)])
    assert "unload" in refused(one_by_one(base, [lora(2)])[0], [lora(2)])


class Experts(torch.nn.Module):
    """Weights that are no linear layer's, as those of a mixture of experts."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(3, 4, 4))

    def forward(self, x):
        return (x @ self.weights).sum(0)


@pytest.mark.parametrize("threads", [1, 2])
def test_lora_on_parameters_trains_as_pefts_models(threads):
    base = torch.nn.Sequential(torch.nn.Linear(4, 4), Experts()).double()
    weights = base[1].weights.clone()
    configs = [lora(2, ["0"], lora_alpha=alpha, target_parameters=["1.weights"]) for alpha in (2, 5, 7)]
    models = one_by_one(base, configs)
    array = dnnsuite.adapt(base, configs, seeds=SEEDS)
    opt = optim.AdamW(trained(array), lr=LRS)
    own = [torch.optim.AdamW(trained(model), lr=lr) for model, lr in zip(models, LRS, strict=True)]

    def loss(array, x, y):
        return nn.functional.mse_loss(array(x), y)

    with dnnsuite.StepRunner(array, opt, loss, threads=threads) as runner:
        for x, y in torch.randn(25, 2, 3, 5, 4, dtype=torch.float64):
            losses = runner.step(x, y).losses()
            for index, (model, optimizer) in enumerate(zip(models, own, strict=True)):
                alone = torch.nn.functional.mse_loss(model(x[index]), y[index])
                optimizer.zero_grad()
                alone.backward()
                optimizer.step()
                torch.testing.assert_close(losses[index], alone)
        assert runner.mode == "captured"
    assert torch.equal(base[1].weights, weights)


def test_without_peft_the_install_line_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)  # as if it were not installed
    with pytest.raises(Unavailable, match=r"pip install 'dnnsuite\[peft\]'"):
        dnnsuite.adapt(torch.nn.Linear(2, 2), [None])
