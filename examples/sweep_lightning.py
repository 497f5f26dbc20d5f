# SPDX-License-Identifier: MIT
"""An unmodified LightningModule: its training step, optimizer and logged values. Needs `lightning`; 10 seconds."""

import torch
from sklearn.datasets import load_digits

import dnnsuite
from dnnsuite.tuning import Hyperband, LogUniform

dnnsuite.data.import_torchvision()  # lightning imports it, which may fail with a CPU build of torch
import lightning  # noqa: E402


class Classifier(lightning.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return torch.nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", torch.nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


digits = load_digits()
x, y = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
sweep = dnnsuite.sweep(lambda config: Classifier(**config), {"lr": LogUniform(1e-4, 1e-1)}, (x[:1437], y[:1437]),
                       batch_size=64, evaluate=(x[1437:], y[1437:]), epochs=9, metric="val_loss",
                       algorithm=Hyperband())  # fmt: skip
print(sweep)
