# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.training import Settings, array_of, data_of, varied
from dnnsuite.training.array import vary_of

LR, SEED = "lr=0.05,0.1", "seed=3,4"


def names(*texts, B=None):
    return [name for name, _ in varied(Settings(), vary_of(texts), B)]


def test_combinations_or_one_value_per_model():
    assert names(LR) == ["lr=0.05", "lr=0.1"]
    every = ["lr=0.05, seed=3", "lr=0.05, seed=4", "lr=0.1, seed=3", "lr=0.1, seed=4"]
    assert names(LR, SEED) == names(LR, SEED, B=4) == every
    assert names(LR, SEED, B=2) == ["lr=0.05, seed=3", "lr=0.1, seed=4"]
    assert names("momentum=0.5", SEED, B=2) == ["momentum=0.5, seed=3", "momentum=0.5, seed=4"]
    assert [own.lr for _, own in varied(Settings(), {"lr": [0.3, 0.125]})] == [0.3, 0.125]


@pytest.mark.parametrize(
    ("texts", "B", "words"),
    [
        ([], 4, "B=4 equal models: let a key vary"),
        ([LR, SEED], 3, "B=3, and --vary has 2 of lr, 2 of seed: give 3 of each, .* for all 4 combinations"),
        ([LR], 0, "B is 0"),
        (["batch_size=8,16"], None, "batch_size cannot vary within an array"),
        (["sede=1,2"], None, r"sede cannot vary .*did you mean 'seed'"),
        (["lr=fast,1"], None, "lr is 'fast': not a number"),
        (["lr=1,1.0"], None, "2 models have lr=1: they would be alike"),
        (["lr"], None, "'lr' is not key=value,value"),
        (["lr=1,,2"], None, "is not key=value,value"),
        ([LR, "lr=2"], None, "lr is given twice"),
    ],
)
def test_what_makes_no_array(texts, B, words):
    with pytest.raises(InvalidArgument, match=words):
        names(*texts, B=B)


def test_pictures_lie_in_memory_once():
    few = Settings().changed({"max_train_samples": 20, "max_valid_samples": 8, "batch_size": 4, "width": 1})
    variants = varied(few, {"seed": [0, 1], "rnd_rotation_angle": [0, 45]})
    data = data_of(variants)
    assert len({id(each.valid) for each in data}) == 1
    first = data[0].train.batch(range(8), 0)[0]
    assert all((each.train.batch(range(8), 0)[0] != first).any() for each in data[1:])
    made = array_of("x", variants, data, "cpu")
    assert made.names == ("seed=0, rnd_rotation_angle=0", "seed=0, rnd_rotation_angle=45",
                          "seed=1, rnd_rotation_angle=0", "seed=1, rnd_rotation_angle=45")  # fmt: skip
    assert [each.seed for each in made.experiments] == [0, 0, 1, 1]
