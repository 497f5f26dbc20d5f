# SPDX-License-Identifier: MIT
"""Train torchvision's MobileNetV3 with three learning rates at once. Needs `dnnsuite[jobs]`; 15 seconds."""

import torch

import dnnsuite
from dnnsuite import nn, optim

torchvision = dnnsuite.data.import_torchvision()  # a plain import may fail with a CPU build of torch

rates = [0.1, 0.01, 0.001]
torch.manual_seed(0)
models = [torchvision.models.mobilenet_v3_small(num_classes=4) for _ in rates]
array = dnnsuite.fuse(models)
optimizer = optim.SGD(array.parameters(), lr=rates, momentum=0.9)

# Images of noise with one bright quarter, which is the class.
labels = torch.arange(32) % 4
images = torch.randn(32, 3, 64, 64)
for image, label in zip(images, labels.tolist(), strict=True):
    top, left = 32 * (label // 2), 32 * (label % 2)
    image[:, top : top + 32, left : left + 32] += 2


def loss(array, images, labels):  # one loss per model: [B]
    return nn.functional.cross_entropy(array(images), labels)


# All models see the same batch, without a copy.
x, y = dnnsuite.stack(images, B=3), dnnsuite.stack(labels, B=3)
with dnnsuite.StepRunner(array, optimizer, loss) as runner:
    for step in range(12):
        losses = runner.step(x, y).losses()
        if step % 4 == 3:
            print(f"step {step + 1:2}: " + "  ".join(f"lr {r:g}: {v:.3f}" for r, v in zip(rates, losses, strict=True)))

best = dnnsuite.unfuse(array)[int(losses.argmin())]  # an ordinary torchvision model again
print(f"{type(best).__name__} with lr {rates[int(losses.argmin())]:g} is the best")
