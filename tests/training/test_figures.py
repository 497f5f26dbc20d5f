# SPDX-License-Identifier: MIT
import json

import pandas as pd
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.plots import Request
from dnnsuite.training import ExperimentArray, run
from dnnsuite.training.figures import REFERENCE, curves, drawn
from dnnsuite.training.history import read_metrics, save_metrics
from tiny_training import experiment


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run named as one of SC20's, and one under way."""
    root = tmp_path_factory.mktemp("runs")
    run(experiment(name="bs128-opt"), root / "done", quiet=True)
    rows = [{"epoch": e, "minutes": 2.0 * e, "acc1/valid": 0.1 * e, "loss/valid": 1.0} for e in (1, 2, 3)]
    (root / "going").mkdir()
    save_metrics(root / "going", rows)
    return root


def test_a_line_for_each_run_and_the_originals_beside_it(runs):
    ax = curves([runs / "done", runs / "going"], "minutes", reference=True)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines) == ["bs128-opt (points)", "bs128-opt (SC20, CIFAR-100 on V100s)", "going (under way)"]
    assert lines["going (under way)"].get_xdata().tolist() == [2, 4, 6]
    original = lines["bs128-opt (SC20, CIFAR-100 on V100s)"]
    assert original.get_xdata()[-1] == pytest.approx(100 * 24.17 / 60)
    assert max(original.get_ydata()) == pytest.approx(0.7587, abs=1e-4)
    assert len(curves([runs / "done"]).get_lines()) == 1  # other data than the original's


def test_the_originals_curves():
    found = json.loads(REFERENCE.read_text())
    best = {name: max(each["acc1/valid"]) for name, each in found.items()}
    assert best == pytest.approx(
        {
            "bs128-opt": 0.7587,
            "bs512-opt": 0.7403,
            "bs1024-opt": 0.7378,
            "bs2048-opt": 0.7117,
            "bs1024-warmup-opt": 0.7653,
            "bs2048-warmup-opt": 0.7548,
        },
        abs=1e-4,
    )
    assert next(i for i, value in enumerate(found["bs2048-warmup-opt"]["acc1/valid"], 1) if value >= 0.75) == 77


def test_files_of_the_plot_command(runs, tmp_path):
    found = drawn(Request((runs,), tmp_path / "acc"))
    assert [path.name for path in found.files] == ["acc-epoch.png", "acc-minutes.png", "acc.csv"]
    table = pd.read_csv(tmp_path / "acc.csv")
    assert table["run"].tolist() == ["bs128-opt"] * 2 + ["going"] * 3
    assert table["acc1"].tolist()[:2] == [row["acc1/valid"] for row in read_metrics(runs / "done")]


@pytest.mark.parametrize(
    ("metric", "place", "words"),
    [
        ("acc7", "done", "has no metric 'acc7' .did you mean 'acc5'..; it has loss, acc1, acc5"),
        (None, "done/nothing", "no metrics.csv"),
    ],
)
def test_what_cannot_be_drawn(runs, metric, place, words):
    with pytest.raises(InvalidArgument, match=words):
        drawn(Request((runs / place,), None, metric))


def test_an_array_has_a_line_for_each_model_and_the_original_once(tmp_path):
    from tiny_arrays import members

    run(ExperimentArray(members(name="bs128-opt", epochs=1), ["a", "b", "c"]), tmp_path / "array", quiet=True)
    labels = [line.get_label() for line in curves([tmp_path / "array"], reference=True).get_lines()]
    original = "bs128-opt (SC20, CIFAR-100 on V100s)"
    assert labels == ["bs128-opt, a (points)", original, "bs128-opt, b (points)", "bs128-opt, c (points)"]
    drawn(Request((tmp_path / "array",), tmp_path / "acc"))
    assert pd.read_csv(tmp_path / "acc.csv")["run"].tolist() == [f"bs128-opt, {name}" for name in "abc"]
