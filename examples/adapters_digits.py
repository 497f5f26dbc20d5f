# SPDX-License-Identifier: MIT
"""Eight LoRA adapters teach a classifier to read rotated digits. `python examples/adapters_digits.py`."""

import warnings

import torch
from sklearn.datasets import load_digits
from torch.nn import Linear, ReLU, Sequential

import dnnsuite
from dnnsuite import nn, optim

warnings.filterwarnings("ignore", module="peft")
digits = load_digits()
images, y = torch.tensor(digits.images).float() / 16, torch.tensor(digits.target)
upright, lying = images.flatten(1), torch.rot90(images, 1, (1, 2)).flatten(1)

torch.manual_seed(0)
base = Sequential(Linear(64, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, 10))
train = torch.optim.Adam(base.parameters(), lr=1e-3)
for _ in range(100):
    train.zero_grad()
    torch.nn.functional.cross_entropy(base(upright[:1437]), y[:1437]).backward()
    train.step()


@torch.no_grad()
def accuracy(logits):
    return (logits.argmax(-1) == y[1437:]).float().mean(-1)


print(f"base: {accuracy(base(upright[1437:])):.3f} upright, {accuracy(base(lying[1437:])):.3f} lying")
# Plain `import peft` fails if a CPU build of torch is installed with a CUDA build of torchvision.
peft = dnnsuite.adapters.import_peft()
runs = [(rank, lr) for rank in (1, 2, 4, 8) for lr in (3e-3, 1e-2)]
configs = [peft.LoraConfig(r=rank, lora_alpha=16, target_modules=["0", "2"]) for rank, _ in runs]
array = dnnsuite.adapt(base, configs, seeds=range(len(runs)))
opt = optim.AdamW([p for p in array.parameters() if p.requires_grad], lr=[lr for _, lr in runs])


def losses(array, batch):
    return nn.functional.cross_entropy(array(batch[0]), batch[1])


with dnnsuite.StepRunner(array, opt, losses, threads=1) as runner:
    for _ in range(300):
        rows = torch.randint(1437, (len(runs), 64))  # each model its own batch
        runner.step((lying[rows], y[rows]))
found = accuracy(array(dnnsuite.stack(lying[1437:], B=len(runs))))
for (rank, lr), value in zip(runs, found, strict=True):
    print(f"rank {rank}, lr {lr:g}: {value:.3f} lying")
best = int(found.argmax())
array[best].save_pretrained("best_adapter")  # PEFT can load it
print(f"rank {runs[best][0]} with lr {runs[best][1]:g} is the best; its adapter is in best_adapter/")
