# SPDX-License-Identifier: MIT
"""What a loss, a model or held-out measures draw from the process's generators is of the trial and the epoch alone."""

import random

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy, dropout

from dnnsuite._seeds import watched
from small_sweep import run

DRAWS = {
    "python": random.random,
    "numpy": np.random.rand,
    "torch": lambda: float(torch.rand(())),
    "all": lambda: random.gauss(1.0, 0.1) * np.random.rand() * float(torch.rand(())),
}


class Stop(Exception):
    pass


def drawing(draw):
    def loss(model, x, y):
        return (0.5 + draw()) * cross_entropy(model(x), y)

    return loss


def test_a_sweep_that_draws_is_the_same_in_every_mode_and_resumed(tmp_path):
    left = [4]

    def stop(event):
        left[0] -= event.kind == "epoch"
        if not left[0]:
            raise Stop

    options = {"loss": drawing(DRAWS["all"]), "epochs": 2, "threads": 1}
    whole = run(False, "random", **options)
    np.random.rand()
    random.random()
    before = random.getstate()
    serial = run(False, "random", mode="serial", **options)
    pd.testing.assert_frame_equal(serial.history, whole.history, rtol=1e-6, atol=1e-6)  # torch rounds otherwise
    assert random.getstate() == before
    with pytest.raises(Stop):
        run(tmp_path / "out", "random", callbacks=stop, **options)
    torch.rand(3)
    assert run(tmp_path / "out", "random", resume=True, **options).history.equals(whole.history)


def test_an_evaluation_that_draws_is_of_the_trial(tmp_path):
    def evaluate(model):
        return {"loss": random.random() + float(torch.rand(()))}

    wide, narrow = (run(False, "random", evaluate=evaluate, epochs=2, width=width) for width in (3, 2))
    assert wide.history.equals(narrow.history)
    assert wide.history["loss"].nunique() == len(wide.history)


def test_masks_of_a_model_are_no_draws_of_its_loss():
    widths = []

    def loss(model, x, y):
        widths.append(x.ndim)
        return cross_entropy(dropout(model(x), 0.1), y)

    run(False, "random", loss=loss, epochs=1)
    assert len(widths) <= 4 * 5  # steps of an epoch by trials, in no array more


@pytest.mark.parametrize("draw", [None, *DRAWS.values()], ids=["none", *DRAWS])
def test_whether_a_block_drew(draw):
    with watched(3) as drawn:
        if draw is not None:
            draw()
    assert drawn.any == (draw is not None)
