"""Small bases, of one layer unless a test is about several, and PEFT's own models trained one by one: what an array of
adapters is compared with."""

import copy
import warnings

import torch

import dnnsuite
from dnnsuite._lazy import Late
from dnnsuite.data import import_torchvision


class _AfterTorchvision(Late):
    """A package that imports torchvision where it is there; four seconds that only processes take which need it."""

    def __getattr__(self, name):
        if name.startswith("_"):  # pytest asks each name of a module for its own marks
            raise AttributeError(name)
        import_torchvision()
        return super().__getattr__(name)


peft, transformers, bitsandbytes = map(_AfterTorchvision, ("peft", "transformers", "bitsandbytes"))
SEEDS = [5, 6, 7]
LRS = [1e-2, 1e-3, 5e-3]
LENGTHS = [[5], [7, 3, 3], [4, 6]]


def bert(dropout=0.0, layers=1, **options):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=layers, num_attention_heads=2, vocab_size=30,
        max_position_embeddings=16, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        **options,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=30, n_positions=16, resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama(layers=1):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=layers, num_attention_heads=2, vocab_size=30,
        max_position_embeddings=16,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


class ConvNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = (torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 3))

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def lora(rank, targets=("query", "value"), **options):
    return peft.LoraConfig(r=rank, target_modules=list(targets), **{"lora_alpha": rank + 3, **options})


def one_by_one(base, configs, seeds=SEEDS):
    """PEFT's models, each with a base of its own."""
    models = []
    for seed, config in zip(seeds, configs, strict=False):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models.append(peft.get_peft_model(copy.deepcopy(base), copy.deepcopy(config)))
    return models


def trained(module):
    return [p for p in module.parameters() if p.requires_grad]


def tokens(models, steps=1):
    """`[steps, models, 2, 6]`."""
    return torch.randint(30, (steps, models, 2, 6), generator=torch.Generator().manual_seed(1))


def targets_like(logits):
    """Classes for logits `[..., C]`."""
    return torch.randint(2, logits.shape[:-1], generator=torch.Generator().manual_seed(2))


def sequences(lengths=LENGTHS, prompt=0):
    """Sequences of each model, whose first `prompt` tokens are no targets."""
    generator = torch.Generator().manual_seed(3)
    own = [[torch.randint(30, (n,), generator=generator) for n in row] for row in lengths]
    return [[{"input_ids": ids, "labels": ids.masked_fill(torch.arange(len(ids)) < prompt, -100)} for ids in row]
            for row in own]  # fmt: skip


def prepared(base, configs):
    """An array in float64 and PEFT's models, with factors that are not zero."""
    base = base.double()
    models = one_by_one(base, configs)
    for model in models:
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "ia3" in name:
                torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(len(name)))
    array = dnnsuite.adapt(base, configs)
    array.replace(range(len(models)), models)
    return array, models
