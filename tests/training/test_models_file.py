# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import Error
from dnnsuite.training.history import read_models, save_models
from tiny_arrays import array


def rows(*scores):
    return [
        {"model": model, "epoch": epoch, "loss/valid": 1.0, "acc1/valid": score, "seconds/valid": 9.0}
        for epoch, of_epoch in enumerate(scores, 1)
        for model, score in enumerate(of_epoch)
        if score is not None
    ]


def test_a_row_for_each_model_also_for_one_that_ended(tmp_path):
    save_models(tmp_path, array(), rows((0.5, 0.25, 0.75), (0.25, None, 0.8)), {1: "NaN, alas"})
    first, second, third = read_models(tmp_path)
    assert first == {
        "model": 0,
        "name": "lr=0.05",
        "seed": 0,
        "lr": 0.05,
        "epochs": 2,
        "loss/valid": 1.0,
        "acc1/valid": 0.25,
        "acc1/valid/best": 0.5,
        "status": "ok",
    }
    assert (second["epochs"], second["acc1/valid"], second["status"]) == (1, 0.25, "NaN, alas")
    assert third["seed"] == 1


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "models.csv").write_text(text)
    with pytest.raises(Error, match=r"models\.csv"):
        read_models(tmp_path)
