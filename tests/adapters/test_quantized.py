# SPDX-License-Identifier: MIT
"""Adapters over bases that bitsandbytes has quantized, against PEFT's models over the same base."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from tiny_adapters import LRS, SEEDS, bert, bitsandbytes, gpt2, llama, lora, one_by_one, tokens, trained, transformers

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def four(kind, compute=torch.float32, twice=True):
    def make(layer):
        return bitsandbytes.nn.Linear4bit(
            layer.in_features, layer.out_features, layer.bias is not None, quant_type=kind, compute_dtype=compute,
            compress_statistics=twice,
        )  # fmt: skip

    return make


def eight(threshold=0.0):
    def make(layer):
        return bitsandbytes.nn.Linear8bitLt(
            layer.in_features, layer.out_features, layer.bias is not None, has_fp16_weights=False,
            threshold=threshold,
        )  # fmt: skip

    return make


def quantized(model, make, but=("lm_head", "classifier")):
    """Put quantized layers in the places of linear ones, as transformers' loading does."""
    for above in list(model.modules()):
        for name, layer in list(above.named_children()):
            if type(layer) is torch.nn.Linear and name not in but:
                other = make(layer)
                other.load_state_dict(layer.state_dict())
                setattr(above, name, other.requires_grad_(False).to("cpu"))
    return model


KINDS = {
    "NF4": four("nf4"),
    "FP4, quantized once, computing in bfloat16": four("fp4", torch.bfloat16, twice=False),
    "int8": eight(),
    "int8 with a threshold": eight(0.5),
}
BASES = {
    "llama": (llama, ["q_proj", "v_proj"], ["q_proj", "v_proj", "up_proj"]),
    "bert": (bert, ["query", "value"], ["query", "value", "dense"]),
}


@pytest.mark.parametrize(("kind", "base"), [*zip(KINDS, ["llama", "bert"] * 2, strict=True)])
def test_steps_are_those_of_pefts_models(kind, base):
    make, places, more = BASES[base]
    base = quantized(make(), KINDS[kind])
    before = copy.deepcopy(base.state_dict())
    configs = [lora(2, places), lora(4, more), lora(3, places)]
    array, models = dnnsuite.adapt(base, configs, seeds=SEEDS), one_by_one(base, configs)
    own = [torch.optim.AdamW(trained(model), lr=lr) for model, lr in zip(models, LRS, strict=True)]
    labels = torch.tensor([0, 1]) if make is bert else None
    # Where inputs are rounded to whole numbers too, one that lies between two of them may go either way.
    least = 1e-4 if "int8" in kind else 1e-5
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if "bfloat16" in kind else {"rtol": 1e-4, "atol": least}

    def loss(model, ids):
        given = {"labels": ids} if labels is None else {"labels": labels.expand(*ids.shape[:-2], 2)}
        return model(input_ids=ids, **given).loss

    with dnnsuite.StepRunner(array, optim.AdamW(trained(array), lr=LRS), loss, threads=1) as runner:
        for ids in tokens(3, steps=4):
            losses = runner.step(ids).losses()
            for index, (model, optimizer) in enumerate(zip(models, own, strict=True)):
                optimizer.zero_grad()
                expected = loss(model, ids[index])
                expected.backward()
                optimizer.step()
                torch.testing.assert_close(losses[index], expected.detach(), **tolerance)
        assert not runner.mode.startswith("eager"), runner.mode
    for index, model in enumerate(models):
        mine, theirs = ({n: p for n, p in one.named_parameters() if p.requires_grad} for one in (array[index], model))
        torch.testing.assert_close(mine, theirs, **tolerance)
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())


def test_rows_train_as_the_padded_batch_does_also_after_an_evaluation():
    """In eval mode bitsandbytes repacks a layer for products without a gradient, on some processors."""
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    base = quantized(transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=30, **sizes)), four("nf4"))
    array = dnnsuite.adapt(base, [lora(2, ["q_proj", "up_proj"]), lora(5, ["v_proj"])], seeds=SEEDS[:2])
    for parameter in trained(array):
        torch.nn.init.normal_(parameter, std=0.05)
    rows = [[{"input_ids": [1, 2, 3, 4, 5]}], [{"input_ids": [7, 8]}, {"input_ids": [9, 3, 4]}]]
    batch = dnnsuite.adapters.collate(rows)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    with torch.no_grad():
        array.eval()(input_ids=ids)
        base.eval()(input_ids=ids[0])
    array.train()
    found = dnnsuite.adapters.losses.next_token(array, batch)
    assert not array.padding()
    logits = array(input_ids=ids, attention_mask=mask).logits[..., :-1, :].log_softmax(-1)
    wanted = mask[..., 1:] * logits.gather(-1, ids[..., 1:, None]).squeeze(-1)
    wanted = -wanted.sum((1, 2)) / mask[..., 1:].sum((1, 2))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    mine, theirs = (torch.autograd.grad(losses.sum(), trained(array)) for losses in (found, wanted))
    for a, b in zip(mine, theirs, strict=True):
        assert b.any()
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_rows_of_int8_with_a_threshold_are_padded():
    array = dnnsuite.adapt(quantized(llama(), eight(0.5)), [lora(2, ["q_proj"])] * 2, seeds=SEEDS[:2])
    assert "of int8, chooses columns by all rows of a call" in array.padding()


def test_a_model_is_saved_loaded_added_and_taken_away(tmp_path):
    base, places = quantized(llama(), four("nf4")), ["q_proj", "v_proj"]
    array = dnnsuite.adapt(base, [lora(2, places), lora(3, places)], seeds=SEEDS[:2])
    for parameter in trained(array):
        torch.nn.init.normal_(parameter, std=0.1)
    ids = tokens(2)[0]
    expected = array(input_ids=ids).logits
    array[1].save_pretrained(tmp_path)
    again = dnnsuite.adapt(base, [tmp_path, lora(3, places)], seeds=[1, 2])
    torch.testing.assert_close(again(input_ids=ids[[1, 0]]).logits[0], expected[1])
    torch.testing.assert_close(copy.deepcopy(array)(input_ids=ids).logits, expected)
    array.drop([0])
    torch.testing.assert_close(array(input_ids=ids[1:]).logits[0], expected[1])


def test_the_weights_are_in_memory_once():
    base = quantized(llama(layers=2), four("nf4"))
    array = dnnsuite.adapt(base, [lora(2, ["q_proj"])] * 8, seeds=list(range(8)))
    held = {part.packed.data_ptr() for part in array.modules() if hasattr(part, "packed")}
    theirs = {part.weight.data_ptr() for part in base.modules() if type(part) is bitsandbytes.nn.Linear4bit}
    assert held == theirs
    assert len(held) == 14


def test_a_quantized_layer_that_would_train_is_refused():
    base = quantized(gpt2(), four("nf4"), but=())
    base.lm_head.bias = torch.nn.Parameter(torch.zeros(30))
    with pytest.raises(InvalidArgument, match="quantized layer lm_head has trainable parameters"):
        dnnsuite.adapt(base, [lora(2, ["c_attn"])])
