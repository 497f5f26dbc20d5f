# SPDX-License-Identifier: MIT
"""Bases of many kinds under adapters, against PEFT's models over copies of them, in float64."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.data import import_torchvision
from dnnsuite.errors import InvalidArgument
from tiny_adapters import LRS, SEEDS, bert, gpt2, lora, one_by_one, peft, targets_like, tokens, trained, transformers

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


def vit():
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **SMALL)
    )


def t5():
    config = transformers.T5Config(
        vocab_size=30, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def whisper():
    sizes = {"layers": 1, "attention_heads": 2, "ffn_dim": 24}
    config = transformers.WhisperConfig(
        vocab_size=30, d_model=16, num_mel_bins=4, max_source_positions=8, max_target_positions=8, dropout=0.0,
        pad_token_id=1, bos_token_id=2, eos_token_id=2, decoder_start_token_id=3,
        **{f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in sizes.items()},
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.fc = torch.nn.Embedding(30, 8), torch.nn.Linear(8, 3)
        self.parts = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))

    def forward(self, input_ids):
        h = torch.utils.checkpoint.checkpoint_sequential(self.parts, 2, self.words(input_ids), use_reentrant=True)
        return self.fc(h.mean(-2))


def resnet():
    block = import_torchvision().models.resnet.BasicBlock
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), block(8, 8), torch.nn.Flatten(), torch.nn.Linear(8 * 64, 3)
    )


def checkpointed():
    base = bert()
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    base.enable_input_require_grads()
    return base


def images(own=True):
    return torch.randn(3, 2, 3, 8, 8).double() if own else dnnsuite.stack(torch.randn(2, 3, 8, 8).double(), B=3)


def ids():
    return tokens(3)[0]


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn = torch.nn.Embedding(30, 6), torch.nn.LSTM(6, 5, 2, batch_first=True)
        self.fc = torch.nn.Linear(5, 3)

    def forward(self, input_ids):
        return self.fc(self.rnn(self.words(input_ids))[0][..., -1, :])


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.fc = torch.nn.Embedding(30, 8), torch.nn.Linear(8, 3)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)

    def forward(self, input_ids):
        return self.fc(self.layers(self.words(input_ids)).mean(-2))


CASES = {
    "a frozen LSTM": lambda: (Recurrent, {"input_ids": ids}, [lora(r, ["words", "fc"]) for r in (2, 4, 3)], True),
    "torch's encoder": lambda: (
        Encoder, {"input_ids": ids}, [lora(r, ["linear1", "linear2"], modules_to_save=["fc"]) for r in (2, 4, 3)],
        True,
    ),
    "checkpoints over adapted embeddings": lambda: (
        checkpointed, {"input_ids": ids}, [lora(r, ["word_embeddings", "query"]) for r in (2, 4, 3)], True,
    ),
    "ViT": lambda: (vit, {"pixel_values": images}, [lora(r, ["q_proj", "fc1", "projection"]) for r in (2, 4, 3)], True),
    "T5": lambda: (
        t5, {"input_ids": ids, "decoder_input_ids": ids},
        [lora(r, ["q", "v", "wi"], task_type="SEQ_2_SEQ_LM") for r in (2, 4, 3)], True,
    ),
    "T5, IA3": lambda: (
        t5, {"input_ids": ids, "decoder_input_ids": ids},
        [peft.IA3Config(target_modules=["k", "v", "wo"], feedforward_modules=["wo"], task_type="SEQ_2_SEQ_LM")] * 3,
        True,
    ),
    "Whisper": lambda: (
        whisper, {"input_features": lambda: torch.randn(3, 2, 4, 16).double(), "decoder_input_ids": ids},
        [lora(r, ["q_proj", "v_proj"]) for r in (2, 4, 3)], True,
    ),
    "checkpoints of parts": lambda: (
        Checkpointed, {"input_ids": ids}, [lora(r, ["words", "0", "3"]) for r in (2, 4, 3)], True,
    ),
    "batch norms in training": lambda: (
        resnet, {"input": images}, [lora(r, ["conv1", "conv2"], modules_to_save=["3"]) for r in (2, 4, 3)], True,
    ),
    "batch norms in training, one batch": lambda: (
        resnet, {"input": lambda: images(False)}, [lora(r, ["1.conv2"], modules_to_save=["3"]) for r in (2, 4, 3)],
        True,
    ),
    "batch norms in eval": lambda: (resnet, {"input": images}, [lora(r, ["conv2", "3"]) for r in (2, 4, 3)], False),
    "checkpoints": lambda: (checkpointed, {"input_ids": ids}, [lora(r) for r in (2, 4, 3)], True),
    "a head that is the embedding": lambda: (
        gpt2, {"input_ids": ids}, [lora(r, ["c_attn", "wte"], modules_to_save=["lm_head"]) for r in (2, 4, 3)], True,
    ),
    "DoRA": lambda: (bert, {"input_ids": ids}, [lora(r, ["query", "dense"], use_dora=True) for r in (2, 4, 3)], True),
    "DoRA behind dropout that keeps all": lambda: (
        bert, {"input_ids": ids}, [lora(r, ["query"], use_dora=True, lora_dropout=1e-9) for r in (2, 4, 3)], True,
    ),
}  # fmt: skip


def loss_of(output, targets):
    logits = output if isinstance(output, torch.Tensor) else output.logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_pefts_models(case):
    make, inputs, configs, training = CASES[case]()
    torch.manual_seed(0)
    base = make().double().train(training)
    given = {name: draw() for name, draw in inputs.items()}
    models = [model.double().train(training) for model in one_by_one(base, configs)]
    array = dnnsuite.adapt(base, configs, seeds=SEEDS).double()
    opt = optim.AdamW(trained(array), lr=LRS, max_grad_norm=[0.5, 0.1, float("inf")])
    own = [torch.optim.AdamW(trained(model), lr=lr) for model, lr in zip(models, LRS, strict=True)]
    for _ in range(2):
        output = array(*given.values()) if "input" in given else array(**given)
        logits = output if isinstance(output, torch.Tensor) else output.logits
        targets = targets_like(logits)
        losses = dnnsuite.nn.functional.cross_entropy(logits.flatten(1, -2), targets.flatten(1))
        opt.zero_grad()
        losses.sum().backward()
        opt.step()
        for index, model in enumerate(models):
            mine = {name: value[index] for name, value in given.items()}
            loss = loss_of(model(*mine.values()) if "input" in mine else model(**mine), targets[index])
            own[index].zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained(model), (0.5, 0.1, float("inf"))[index])
            own[index].step()
            torch.testing.assert_close(losses[index], loss, rtol=1e-6, atol=1e-9)
    for index, model in enumerate(models):
        torch.testing.assert_close(array[index].state_dict(), model.state_dict(), rtol=1e-6, atol=1e-7)
    assert not [cover for cover in array.coverage() if cover.how == "per model"]


def test_an_adapter_on_torchs_attention_is_refused():
    assert "config 1 has an adapter on layers.layers.0.self_attn, a MultiheadAttention" in refused(
        Encoder(), [lora(2, ["linear1"]), lora(2, ["linear1", "self_attn"])]
    )


def test_a_base_in_bfloat16_under_convolutions_and_embeddings():
    torch.manual_seed(0)
    for make, config, x in [
        (resnet, [lora(r, ["conv1"]) for r in (2, 3)], images()[:2].bfloat16()),
        (lambda: gpt2().transformer, [lora(r, ["wte"]) for r in (2, 3)], ids()[:2]),
    ]:
        base = make().bfloat16().eval()
        array, models = dnnsuite.adapt(base, config, seeds=SEEDS[:2]), one_by_one(base, config)
        assert {p.dtype for p in trained(array)} == {torch.float32}
        for index, model in enumerate(models):
            found, expected = array(x), model(x[index])
            if not isinstance(found, torch.Tensor):
                found, expected = found.last_hidden_state, expected.last_hidden_state
            torch.testing.assert_close(found[index], expected, rtol=0.03, atol=0.03)


def refused(base, configs):
    with pytest.raises(InvalidArgument) as error:
        dnnsuite.adapt(base, configs)
    assert "\n" not in str(error.value)
    return str(error.value)


class PackedWeight(torch.Tensor):
    """A weight of floating point to those who ask, as torchao's are, which is none."""


@pytest.mark.parametrize("kind", ["torchao", "hqq"])
def test_a_base_that_another_library_quantized_is_refused(kind):
    base = bert()
    if kind == "torchao":
        base.classifier.weight = torch.nn.Parameter(torch.zeros(2, 16).as_subclass(PackedWeight), requires_grad=False)
    else:
        base.classifier.register_parameter("W_q", torch.nn.Parameter(torch.zeros(8, dtype=torch.uint8), False))
    said = refused(base, [lora(2)])
    assert "quantized at classifier, a Linear" in said
    assert "load it by bitsandbytes" in said


def test_a_quantized_base_is_refused():
    base = bert()
    base.classifier.weight = torch.nn.Parameter(torch.zeros(2, 16, dtype=torch.int8), requires_grad=False)
    assert "quantized at classifier, a Linear" in refused(base, [lora(2)])
    base = torch.nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(2, 2))
    assert "quantized at 0" in refused(base, [lora(2, ["0"])])


class Writes(torch.nn.Module):
    """Changes its base in a forward."""

    def __init__(self, buffer):
        super().__init__()
        self.fc, self.buffer = torch.nn.Linear(4, 4), buffer
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        h = self.fc(x)
        with torch.no_grad():
            (self.mean if self.buffer else self.fc.bias).mul_(0.5).add_(h.mean(0))
        return h + self.mean


class Sets(torch.nn.Module):
    """Sets one number of its base in a forward."""

    def __init__(self):
        super().__init__()
        self.fc, self.scale = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        with torch.no_grad():
            self.scale[0] = 3.0
        return self.fc(x * self.scale)


class SetsByBatch(Sets):
    """Does so for a batch of its own only, with which the models run one by one."""

    def forward(self, x):
        if x.sum() > 0:
            with torch.no_grad():
                self.scale.mul_(3.0)
        return self.fc(x * self.scale)


def test_a_base_that_one_of_its_models_writes_into():
    array = dnnsuite.adapt(SetsByBatch(), [lora(2, ["fc"])] * 2)
    with pytest.raises(InvalidArgument, match=r"scale, which all models share"):
        array(torch.stack([-torch.ones(3, 4), torch.ones(3, 4)]))


def test_a_base_that_its_models_write_into():
    torch.manual_seed(0)
    base, x, config = Writes(True), torch.randn(2, 3, 4), lora(2, ["fc"])
    before = copy.deepcopy(base.state_dict())
    array = dnnsuite.adapt(base, [config] * 2, seeds=SEEDS[:2])
    for index, model in enumerate(one_by_one(base, [config] * 2)):
        model(x[index])
        if index == 0:
            array(x)
        torch.testing.assert_close(array[index].state_dict(), model.state_dict())
    assert torch.equal(base.mean, before["mean"])
    array = dnnsuite.adapt(Writes(False), [config] * 2)
    with pytest.raises(InvalidArgument, match=r"fc\.base_layer\.bias"):
        array(x)
    base = Sets()
    array = dnnsuite.adapt(base, [config] * 2)
    with pytest.raises(InvalidArgument, match=r"model\.scale, which all models share"):
        array(x)
    assert base.scale.tolist() == [1.0] * 4
