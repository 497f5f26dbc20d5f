# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.report import targets
from dnnsuite.report._entries import ReportEntry


def test_published_ones_cover_the_suite():
    for model in targets.MODELS:
        found = targets.load(model)
        assert len(found) == 20
        assert found["scaling"] == targets.Target(1.0, 0.85, 0.02, published=True)
    loader = targets.load("RTX")["loader"]
    assert (loader.rate, loader.perf, loader.sd) == (1200.0, 0.5, 0.10)
    assert loader.conditions == {"batches from": "loader"}
    assert set(targets.JOBS) == found.keys() - {"scaling"}


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


def test_the_score_of_the_last_version_has_targets_of_its_own():
    """Figures of mila-iqia/training's target_*.csv of December 2019."""
    found = {model: targets.load(model, last=True) for model in targets.MODELS}
    assert [found[model]["ssd"].rate for model in targets.MODELS] == [70.0, 58.58, 50.0]
    assert [found[model]["dcgan_all"].rate for model in targets.MODELS] == [154.86, 261.60, 139.29]
    assert found["V100"]["wlmfp16"].rate == 5000.0
    assert found["MI50"] == targets.load("MI50")


def entry(**more):
    conditions = {"preset": "the job's own", "settings": "the job's own", **more.pop("conditions", {})}
    return ReportEntry("convnet", "0", "0", 9.0, 9.0, conditions=conditions, **{"seed_feed": "loader", **more})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"conditions": {"preset": "smoke"}}, "preset smoke is small and short: run it with --preset default"),
        ({"conditions": {"preset": "quick"}}, "preset quick is small and short: run it with --preset default"),
        ({"conditions": {"settings": "arch=resnet18"}}, "settings that are not the original's (arch=resnet18)"),
        ({"seed_feed": "memory"}, "batches from memory, not loader"),
        ({"conditions": {"skipped steps": "many"}}, "many steps were skipped"),
    ],
)
def test_what_was_not_measured_as_the_target_was_is_not_compared(changes, reason):
    published = targets.load("V100")
    assert targets.uncompared([entry()], published) == {}
    (found,) = targets.uncompared([entry(**changes)], published)["convnet"]
    assert reason in found


def test_a_target_of_ones_own_keeps_its_conditions(tmp_path):
    path = tmp_path / "mine.csv"
    targets.save(path, [entry(conditions={"device": "cpu"})])
    mine = targets.load(str(path))
    assert targets.uncompared([entry(conditions={"device": "cpu"})], mine) == {}
    found = targets.uncompared([entry(conditions={"device": "cuda"}, seed_feed="memory")], mine)
    assert found == {"convnet": ["device cuda, not cpu", "batches from memory, not loader"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bench,price\nvae,3\n", "no column 'target'"),
        ("bench,target\nvae,fast\n", "line 2: target 'fast' of vae must be a positive number"),
        ("bench,target\nvae,3\nreso,-1\n", "line 3: target '-1' of reso"),
        ("bench,target,perf_target\nvae,3,nan\n", "line 2: perf_target 'nan'"),
        ("bench,target\nvae,3\nreso,1\nvae,4\n", "line 4: vae is already in line 2"),
        pytest.param("bench,target\nvae," + "9" * 200_000 + "\n", "line 2: field larger than field limit", id="long"),
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


def test_data_that_were_made_to_try_a_reader_reach_no_published_target():
    entry = ReportEntry(job="ssd", run="0", device="0", rate=1.0, seed_rate=1.0, conditions={"data": "fake: COCO 2017"})
    (reason,) = targets.Target(1.0, 0.5, 0.05, published=True).reasons(entry)
    assert "run it with the real ones" in reason
