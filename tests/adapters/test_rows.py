# SPDX-License-Identifier: MIT
"""Batches of each model's own size: losses and gradients are those of PEFT's model on its own sequences."""

import pytest
import torch

import dnnsuite
from dnnsuite import adapters, optim
from dnnsuite.errors import InvalidArgument
from tiny_adapters import gpt2, llama, lora, one_by_one, peft, prepared, sequences, trained, transformers

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")

SMALL = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 30,
}  # fmt: skip


def qwen(window=None):
    torch.manual_seed(0)
    config = transformers.Qwen3Config(**SMALL, head_dim=4, tie_word_embeddings=True)
    if window:
        config = transformers.MistralConfig(**SMALL, sliding_window=window)
    return transformers.AutoModelForCausalLM.from_config(config)


def of_peft(model, own):
    """Mean cross-entropy of a model's targets, a sequence at a time."""
    total, count = 0, 0
    for sequence in own:
        logits, targets = model(input_ids=sequence["input_ids"][None]).logits[0, :-1], sequence["labels"][1:]
        total = total + torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        count += int((targets != -100).sum())
    return total / count


def check(array, models, own, tolerance=1e-12):
    losses = adapters.losses.next_token(array, adapters.collate(own))
    losses.sum().backward()
    held = dict(array.named_parameters())
    for index, model in enumerate(models):
        loss = of_peft(model, own[index])
        loss.backward()
        torch.testing.assert_close(losses[index], loss, rtol=tolerance, atol=tolerance, check_dtype=False)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                mine = held[name].grad[index][tuple(map(slice, parameter.shape))]
                torch.testing.assert_close(mine, parameter.grad, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("base", "configs"),
    [
        (llama, lambda: [
            lora(2, ["q_proj"]), lora(5, ["q_proj", "down_proj"]), lora(3, ["lm_head", "k_proj"], bias="none")
        ]),
        (qwen, lambda: [peft.LoraConfig(r=rank, target_modules="all-linear") for rank in (1, 4, 2)]),
        (llama, lambda: [lora(2, ["q_proj", "embed_tokens"], modules_to_save=["lm_head"])] * 3),
        (gpt2, lambda: [lora(2, ["c_attn"], fan_in_fan_out=True, lora_bias=True), lora(3, ["c_attn", "c_fc"],
         fan_in_fan_out=True, lora_bias=True), lora(1, ["c_fc"], fan_in_fan_out=True, lora_bias=True)]),
    ],
    ids=["llama", "all linear", "saved head", "gpt2"],
)  # fmt: skip
def test_each_model_learns_from_its_own_sequences(base, configs):
    array, models = prepared(base(), configs())
    assert array.padding() == ""
    check(array, models, sequences(prompt=2))


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_reference_is_the_base(checkpoints):
    base = llama()
    if checkpoints:
        base.gradient_checkpointing_enable()
        base.enable_input_require_grads()
    array, models = prepared(base, [lora(2, ["q_proj"]), lora(3, ["v_proj"]), lora(3, ["v_proj"])])
    own = sequences()
    adapters.losses.log_probs(array, adapters.collate(own))  # whose graph is not this one's
    check(array.train(), models, own)
    found = adapters.losses.log_probs(array, adapters.collate(own), reference=True)
    for index, row in enumerate(own):
        for place, sequence in enumerate(row):
            ids = sequence["input_ids"]
            wanted = base(input_ids=ids[None]).logits[0, :-1].log_softmax(1).gather(1, ids[1:, None]).squeeze(1)
            torch.testing.assert_close(found[index, place, : len(wanted)], wanted)
            assert not found[index, place, len(wanted) :].any()


@pytest.mark.parametrize(
    ("base", "config", "said"),
    [
        (lambda: qwen(window=16), lambda: lora(2, ["q_proj"]), ""),
        (lambda: qwen(window=3), lambda: lora(2, ["q_proj"]), "depend on what comes before"),
        (llama, lambda: peft.IA3Config(target_modules=["v_proj"], feedforward_modules=[]), "default of its own"),
        (lambda: transformers.BloomForCausalLM(transformers.BloomConfig(hidden_size=16, n_layer=1, n_head=2,
         vocab_size=30)), lambda: lora(2, ["query_key_value"]), "not every layer"),
        (lambda: torch.nn.ModuleDict({"q": torch.nn.Linear(2, 2)}), lambda: lora(2, ["q"]),
         "not a causal language model"),
    ],
    ids=["window", "short window", "ia3", "bloom", "no model"],
)  # fmt: skip
def test_what_cannot_stand_in_one_row_is_padded(base, config, said):
    array, models = prepared(base(), [config()] * 3)
    assert said in array.padding()
    assert bool(said) == bool(array.padding())
    if said != "not a causal language model":
        check(
            array.eval(), [model.eval() for model in models], sequences(), 1e-6 if said == "not every layer" else 1e-10
        )


def moe():
    torch.manual_seed(0)
    sizes = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 12,
    }
    config = transformers.Qwen2MoeConfig(**SMALL, **sizes, experts_implementation="eager")  # grouped_mm has no float64
    return transformers.Qwen2MoeForCausalLM(config)


@pytest.mark.parametrize(
    ("base", "config", "said"),
    [
        (gpt2, lambda: lora(2, ["c_fc"], fan_in_fan_out=True, modules_to_save=["attn"]), "tokens of a row alone"),
        (llama, lambda: lora(2, ["q_proj"], modules_to_save=["mlp"]), ""),
        (moe, lambda: lora(2, ["gate_proj", "q_proj"]), ""),
    ],
    ids=["attention", "a block", "tokens without a batch"],
)
def test_what_is_trained_of_the_base_sees_its_models_tokens(base, config, said):
    """A part that attends is no layer of single tokens."""
    array, models = prepared(base(), [config()] * 3)
    assert said in array.padding()
    assert bool(said) == bool(array.padding())
    check(array, models, sequences())


def test_models_with_other_weights_than_the_base_have_are_padded():
    config = lora(2, ["q_proj"], init_lora_weights="pissa")
    array, models = dnnsuite.adapt(llama(), [config] * 2, seeds=[5, 6]), one_by_one(llama(), [config] * 2)
    assert "weight of its own" in array.padding()
    check(array, models, sequences()[:2], 1e-5)


def test_a_sequence_longer_than_the_window_is_padded():
    array, models = prepared(qwen(window=7), [lora(2, ["q_proj"])] * 3)
    assert not array.padding()
    check(array, models, sequences([[9], [10, 3], [4]]))


@pytest.mark.parametrize("options", [{"width": 3}, {"width": 1}, {"threads": 2}])
def test_a_runner_follows_lengths_that_change(options):
    configs = [lora(2, ["q_proj"], lora_dropout=0.2), lora(5, ["q_proj", "down_proj"]), lora(3, ["v_proj"])]
    lengths = [[5], [7, 3, 3], [4, 6]], [[7], [2, 3, 4], [5, 6]], [[4], [2, 3, 7], [5, 6]]
    batches = [adapters.collate(sequences(lengths[index % 3])) for index in (0, 1, 2, 0, 0, 2, 1, 0)]
    found = []
    for runs in (False, True):
        array = dnnsuite.adapt(llama(), configs, seeds=[5, 6, 7]).train()
        opt = optim.AdamW(trained(array), lr=[1e-2, 2e-2, 5e-3])
        if runs:
            with dnnsuite.StepRunner(array, opt, adapters.losses.next_token, **{"threads": 1, **options}) as runner:
                found.append(torch.stack([runner.step(batch).losses().clone() for batch in batches]))
            continue
        losses = []
        for batch in batches:
            losses.append(adapters.losses.next_token(array, batch))
            opt.zero_grad()
            losses[-1].sum().backward()
            opt.step()
        found.append(torch.stack(losses).detach())
    torch.testing.assert_close(found[1], found[0])


def test_a_model_drops_the_same_elements_beside_longer_sequences():
    configs = [lora(2, ["q_proj"], lora_dropout=0.3), lora(3, ["q_proj"], lora_dropout=0.1), lora(3, ["v_proj"])]
    together = dnnsuite.adapt(llama().double(), configs, seeds=[5, 6, 7]).train()
    alone = dnnsuite.adapt(llama().double(), configs[:1], seeds=[5]).train()
    own = sequences()
    for _ in range(2):
        for array in (together, alone):
            for name, parameter in array.named_parameters():
                if "lora_B" in name:
                    parameter.data[0, :, :2].fill_(0.1)
        losses = [adapters.losses.next_token(array, adapters.collate(own[: array.B])) for array in (together, alone)]
        torch.testing.assert_close(losses[0][:1], losses[1])


def test_a_batch_of_other_models_is_refused():
    array, _ = prepared(llama(), [lora(2, ["q_proj"])] * 2)
    with pytest.raises(InvalidArgument, match=r"input_ids \[2, N, T\]; got \[3, 3, 7\]"):
        adapters.losses.next_token(array, adapters.collate(sequences()))
