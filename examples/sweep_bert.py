# SPDX-License-Identifier: MIT
"""Fine-tune a tiny Hugging Face BERT with padding masks at 8 learning rates. Needs `dnnsuite[jobs]`; a minute."""

import torch

import dnnsuite

dnnsuite.data.import_torchvision()  # transformers imports it, which may fail with a CPU build of torch
from transformers import BertConfig, BertForSequenceClassification  # noqa: E402


def bert(config):
    sizes = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    return BertForSequenceClassification(sizes)


def batches(count, seed):
    """Sentences of 4 to 12 tokens, padded; the label says if token 7 is in them."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        tokens = torch.randint(1, 100, (16, 12), generator=generator)
        labels = torch.randint(0, 2, (16,), generator=generator)
        tokens[tokens == 7] = 8
        tokens[labels == 1, 2] = 7
        mask = torch.arange(12) < torch.randint(4, 13, (16, 1), generator=generator)
        yield {"input_ids": tokens * mask, "attention_mask": mask.long(), "labels": labels}


def loader(count, seed):
    return torch.utils.data.DataLoader(list(batches(count, seed)), batch_size=None)


rates = [1e-2, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5]
sweep = dnnsuite.sweep(bert, {"lr": rates}, loader(20, 0), evaluate=loader(4, 1), epochs=2, metric="acc")
print(sweep)
