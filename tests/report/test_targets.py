# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.report import targets
from dnnsuite.report._entries import ReportEntry


def test_published_ones_cover_the_suite():
    for model in targets.MODELS:
        found = targets.load(model)
        assert len(found) == 20
        assert found["scaling"] == targets.Target(1.0, 0.85, 0.02)
    assert targets.load("RTX")["loader"] == targets.Target(1200.0, 0.5, 0.10)
    assert targets.WEIGHTS.keys() == found.keys() - {"scaling"}


def test_a_machine_becomes_the_target(tmp_path):
    entries = [
        ReportEntry(job="atari", run=str(i), device="0", rate=128 * rate, seed_rate=rate)
        for i, rate in enumerate((4.0, 6.0))
    ]
    path = tmp_path / "mine.csv"
    assert targets.save(path, entries) == targets.load(str(path)) == {"atari": targets.Target(5.0, 0.5, 0.05)}
    with pytest.raises(InvalidArgument, match="nothing measured"):
        targets.save(tmp_path / "none.csv", [])
    assert [file.name for file in tmp_path.iterdir()] == ["mine.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bench,price\nvae,3\n", "no column 'target'"),
        ("bench,target\nvae,fast\n", "line 2: target 'fast' of vae must be a positive number"),
        ("bench,target\nvae,3\nreso,-1\n", "line 3: target '-1' of reso"),
        ("bench,target,perf_target\nvae,3,nan\n", "line 2: perf_target 'nan'"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=message) as caught:
        targets.load(str(path))
    assert str(path) in str(caught.value)


def test_an_unknown_model_is_answered_with_the_known_ones():
    with pytest.raises(InvalidArgument, match="'A100' is neither one of V100, MI50, RTX nor a CSV file"):
        targets.load("A100")


def test_weights_of_the_user(tmp_path):
    path = tmp_path / "weights.csv"
    path.write_text("bench,weight,base\nvae,2,100\n")
    assert targets.weights(path) == {"vae": (2.0, 100.0)}
    assert targets.weights() == targets.WEIGHTS
