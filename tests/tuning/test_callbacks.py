# SPDX-License-Identifier: MIT
"""Callbacks hear of each epoch and end, once."""

import importlib.util

import pytest
import torch

import dnnsuite
from dnnsuite.errors import Unavailable
from dnnsuite.tuning import MLflow, TensorBoard, WandB


def swept(*callbacks):
    x = torch.randn(8, 4)
    dnnsuite.sweep(
        lambda c: torch.nn.Linear(4, 2), {"lr": [0.1, 0.2]}, (x, x[:, :2]), batch_size=4, epochs=2, out=False,
        quiet=True, callbacks=callbacks,
    )  # fmt: skip


def test_a_function_hears_of_all():
    heard = []
    swept(heard.append)
    kinds = [event.kind for event in heard]
    assert sorted(kinds) == ["end"] * 2 + ["epoch"] * 4 + ["finished"]
    assert heard[0].config == {"lr": 0.1}
    assert set(heard[0].metrics) == {"train_loss"}


def test_tensorboard(tmp_path):
    swept(TensorBoard(tmp_path))
    assert len(list(tmp_path.glob("trial-0000[01]/events*"))) == 2


@pytest.mark.parametrize(("kind", "module"), [(WandB, "wandb"), (MLflow, "mlflow")])
def test_what_is_not_installed_is_said(kind, module):
    if importlib.util.find_spec(module):
        pytest.skip(f"{module} is installed")
    with pytest.raises(Unavailable, match=f"pip install {module}"):
        kind()
