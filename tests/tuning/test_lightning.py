# SPDX-License-Identifier: MIT
"""What of a LightningModule a sweep does not carry out is refused or named; lightning itself is not needed."""

import warnings

import pytest
import torch

import dnnsuite


class Module(torch.nn.Linear):
    """A module with the methods of a LightningModule."""

    automatic_optimization = True

    def __init__(self, lr):
        super().__init__(4, 3)
        self.lr = lr

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Manual(Module):
    automatic_optimization = False


class Step(Module):
    def on_after_backward(self):
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)


class Hook(Module):
    def on_train_epoch_end(self):
        raise AssertionError("a sweep does not call it")


def _swept(kind):
    torch.manual_seed(0)
    data = (torch.randn(64, 4), torch.randint(3, (64,)))
    return dnnsuite.sweep(
        lambda config: kind(**config), {"lr": [0.01, 0.1]}, data, evaluate=data, epochs=2, metric="val_loss",
        batch_size=16, quiet=True,
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "named"), [(Manual, "automatic_optimization=False"), (Step, "on_after_backward")])
def test_a_module_that_takes_the_step_itself_is_refused(kind, named):
    with pytest.raises(dnnsuite.errors.Error, match=f"{kind.__name__} has {named}.*train it with its Trainer"):
        _swept(kind)


def test_a_hook_that_only_a_trainer_calls_is_named():
    with pytest.warns(UserWarning, match="Hook has on_train_epoch_end, which a sweep does not call"):
        found = _swept(Hook)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = _swept(Module)
    assert found.table["val_loss"].equals(plain.table["val_loss"])
