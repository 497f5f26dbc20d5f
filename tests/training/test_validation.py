# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.training import BadCheckpoint, evaluate, run
from tiny_arrays import array, members
from tiny_training import experiment


def test_a_checkpoint_is_validated_as_its_run_did(tmp_path):
    trained = run(experiment(), tmp_path / "run", quiet=True)
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    found = evaluate(experiment(), tmp_path / "run" / "checkpoint.pt", quiet=True)
    assert found == {name: trained.history[-1][f"{name}/valid"] for name in ("loss", "acc1", "acc5")}
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before
    best = evaluate(lambda kind: experiment(), tmp_path / "run" / "best.pt", quiet=True)
    assert best["acc1"] == max(row["acc1/valid"] for row in trained.history)


def test_one_model_of_an_array(tmp_path):
    trained = run(array(epochs=1), tmp_path / "run", quiet=True)
    found = evaluate(members()[1], tmp_path / "run" / "models" / "1" / "checkpoint.pt", quiet=True)
    assert found["acc1"] == trained.history[1]["acc1/valid"]
    with pytest.raises(BadCheckpoint, match=r"of an array of 3 models: .* take one model's, .*models/0/checkpoint"):
        evaluate(members()[1], tmp_path / "run" / "checkpoint.pt", quiet=True)


def test_what_cannot_be_validated(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"gone\.pt cannot be read"):
        evaluate(experiment(), tmp_path / "gone.pt", quiet=True)
