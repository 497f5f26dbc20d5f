# SPDX-License-Identifier: MIT
"""An array of runs in a directory: each model as alone, resumed to the bit, one goes on alone, one that ends."""

import itertools
import math

import pytest
import torch

from dnnsuite import results
from dnnsuite._runs.failures import NotFinite
from dnnsuite.errors import InvalidArgument
from dnnsuite.training import BadCheckpoint, Data, ExperimentArray, load_model, read_metrics, run
from dnnsuite.training.saver import MODELS_FOLDER, read_checkpoint
from tiny_arrays import DATA, Spoiled, array, members, net

TIMED = ("seconds/train", "seconds/valid", "minutes", "images_per_s")


def untimed(rows):
    return [{key: value for key, value in row.items() if key not in TIMED} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An array of four epochs that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "array"
    run(array(), out, quiet=True)
    return out


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Its models, each run by itself."""
    root = tmp_path_factory.mktemp("alone")
    for number, each in enumerate(members()):
        run(each, root / str(number), quiet=True)
    return root


def close(ours, theirs):
    """Compare values of any structure, numbers but for rounding in float64."""
    if isinstance(ours, dict):
        assert list(ours) == list(theirs)
        for key in ours:
            if key not in TIMED and key not in ("seconds", "samples"):
                close(ours[key], theirs[key])
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            close(mine, other)
    elif isinstance(ours, (torch.Tensor, float)):
        torch.testing.assert_close(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", ["checkpoint.pt", "best.pt"])
@pytest.mark.parametrize("number", range(3))
def test_files_of_each_model_are_those_of_its_run_alone(whole, alone, number, name):
    ours, theirs = (read_checkpoint(each / name) for each in (whole / MODELS_FOLDER / str(number), alone / str(number)))
    for state in (ours, theirs):
        state.pop("random", None)  # nothing draws from it
    close(ours, theirs)


def test_metrics_have_a_row_for_each_model_and_epoch(whole, alone):
    rows = read_metrics(whole)
    assert [(row["epoch"], row["model"]) for row in rows] == list(itertools.product((1, 2, 3, 4), (0, 1, 2)))
    for number in range(3):
        mine = [{k: v for k, v in row.items() if k != "model"} for row in rows if row["model"] == number]
        close(untimed(mine), untimed(read_metrics(alone / str(number))))
    assert len({row["learning_rate"] for row in rows if row["model"] == 2}) > 1  # its plateau


def test_the_record_has_the_speedup_and_metrics_of_each_model(whole):
    table = results.load(whole)
    values = {(row["metric"], row["replica"]): row["value"] for row in table.to_dict("records")}
    assert set(table["B"]) == {3}
    assert set(table["mode"]) == {"hfta"}
    last = read_metrics(whole)[-1]
    assert values["acc1/valid", 2] == last["acc1/valid"]
    whole_run = {metric for (metric, replica) in values if not isinstance(replica, int)}
    assert whole_run == {"throughput", "speedup", "minutes"}


@pytest.mark.parametrize("changes", [{"checkpoint_every": 4}, {"precision": "fp16", "dropout": True}])
def test_resumed_is_as_if_never_stopped_to_the_bit(tmp_path, changes):
    from tiny_training import net as with_dropout

    changes = dict(changes)
    if changes.pop("dropout", False):
        from tiny_training import experiment

        changes |= {"model": with_dropout, "data": experiment().data}

    run(array(**changes), tmp_path / "whole", quiet=True)
    calls = itertools.count()

    def schedule(optimizer, steps):
        made = members()[0].schedule(optimizer, steps)
        begin = made.begin_step

        def begin_step(step):
            if next(calls) == 3 * 17:
                raise RuntimeError("the node died")
            begin(step)

        made.begin_step = begin_step
        return made

    with pytest.raises(RuntimeError, match="node died"):
        run(array(**changes, schedule=schedule), tmp_path / "cut", quiet=True)
    torch.manual_seed(99)
    run(array(**changes), tmp_path / "cut", resume="auto", quiet=True, allow_changed=["schedule"])
    first, second = (read_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("whole", "cut"))
    for name in first["model"]:
        assert torch.equal(first["model"][name], second["model"][name]), name
    assert untimed(read_metrics(tmp_path / "whole")) == untimed(read_metrics(tmp_path / "cut"))


def test_one_model_goes_on_alone(whole, alone, tmp_path):
    from dataclasses import replace

    checkpoint = whole / MODELS_FOLDER / "2" / "checkpoint.pt"
    assert load_model(checkpoint, net())[0].weight.shape == (16, 8)
    longer = replace(members()[2], epochs=6)
    ours = run(longer, tmp_path / "ours", resume=str(checkpoint), quiet=True)
    theirs = run(longer, tmp_path / "theirs", resume=str(alone / "2" / "checkpoint.pt"), quiet=True)
    close(untimed(ours.history), untimed(theirs.history))


@pytest.mark.parametrize(
    ("make", "file", "kind", "words"),
    [
        (lambda: members()[0], "checkpoint.pt", BadCheckpoint, r"is of an array of 3 models.*models/0/checkpoint\.pt"),
        (array, "models/1/checkpoint.pt", BadCheckpoint, "is of one model, not of an array of 3: leave out --vary"),
        (lambda: ExperimentArray(members()[:2]), "checkpoint.pt", BadCheckpoint, "of 3 models, and this one has 2"),
        (lambda: ExperimentArray(members()[::-1]), "checkpoint.pt", InvalidArgument, "of model 0: seed is 1, was 0"),
    ],
)
def test_what_cannot_be_resumed(whole, tmp_path, make, file, kind, words):
    with pytest.raises(kind, match=words):
        run(make(), tmp_path / "new", resume=str(whole / file), quiet=True)


def spoiled(count):
    """Experiments of which the first `count` meet NaN in the second epoch, and the step of it."""
    own = members()
    bad = Spoiled(50)
    order = own[0].order
    first = set(torch.cat(list(order.batches(0))).tolist())
    bad.bad, step = next(
        (index, i) for i, each in enumerate(order.batches(1)) for index in each.tolist() if index not in first
    )
    data = Data(bad, DATA.valid, 4, "points", {}, "points")
    from dataclasses import replace

    return [replace(each, data=data, seed=0) if i < count else each for i, each in enumerate(own)], 6 + step


def test_nan_ends_one_model_and_the_others_go_on(whole, tmp_path):
    own, step = spoiled(1)
    trained = run(ExperimentArray(own), tmp_path / "run", quiet=True)
    kept = tmp_path / "run" / MODELS_FOLDER / "0" / "checkpoint.pt"
    assert list(trained.ended) == [0]
    assert f"model 0 (model 0): the loss is NaN or infinite in step {step} (epoch 2" in trained.ended[0]
    assert f"the last good checkpoint is {kept}" in trained.ended[0]
    assert read_checkpoint(kept)["position"]["epoch"] == 1
    rows = [row for row in read_metrics(tmp_path / "run") if row["model"]]
    assert untimed(rows) == untimed([row for row in read_metrics(whole) if row["model"]])
    assert "it trains no more" in (tmp_path / "run" / "train.log").read_text()
    assert trained.record.ok
    more = run(
        ExperimentArray([type(e)(**{**vars(e), "epochs": 5}) for e in own]), tmp_path / "run", resume="auto", quiet=True
    )
    assert list(more.ended) == [0]
    assert [row["model"] for row in more.history[-2:]] == [1, 2]


def test_nan_in_every_model_ends_the_run(tmp_path):
    own, _ = spoiled(3)
    with pytest.raises(NotFinite, match=r"model 2 .*NaN or infinite"):
        run(ExperimentArray(own), tmp_path / "run", quiet=True)
    (failure,) = set(results.load(tmp_path / "run")["failure"])
    assert failure == "nan"
    assert all(math.isfinite(row["loss/valid"]) for row in read_metrics(tmp_path / "run"))
