# SPDX-License-Identifier: MIT
import numpy as np
import pandas as pd
import pytest

from dnnsuite import plots
from dnnsuite.errors import InvalidArgument


def _search(trials=90, goal="min"):
    """A metric that `lr` decides by its logarithm, `kind` shifts a little, and `noise` does not touch."""
    draw = np.random.default_rng(3)
    lr, kind, noise = 10 ** draw.uniform(-4, -1, trials), draw.choice(["a", "b"], trials), draw.uniform(0, 1, trials)
    value = (np.log10(lr) + 1) ** 2 + 0.3 * (kind == "a") + draw.normal(0, 0.05, trials)
    table = pd.DataFrame(
        {"lr": lr, "kind": kind, "noise": noise, "fixed": 7, "loss": value if goal == "min" else -value}
    )
    table = table.assign(best_epoch=2, epochs=2, status="done").rename_axis("trial")
    rows = [(trial, epoch, 2 * v / epoch) for trial, v in table["loss"].items() for epoch in (1, 2)]
    return table, pd.DataFrame(rows, columns=["trial", "epoch", "loss"])


def test_importance_is_what_a_parameter_explains_alone_and_chance_explains_nothing():
    table, _ = _search()
    found = plots.importance(table, "loss")
    assert set(found) == {"lr", "kind", "noise"}
    assert found["lr"] > 0.6
    assert found["kind"] < 0.3
    assert found["noise"] < 0.1
    reverse = plots.importance(table.assign(loss=-table["loss"]), "loss")
    assert reverse["lr"] == pytest.approx(found["lr"])
    shuffled = [plots.importance(_shuffled(table, seed), "loss")["lr"] for seed in range(20)]
    assert np.mean(shuffled) < 0.05


def _shuffled(table, seed):
    return table.assign(loss=table["loss"].sample(frac=1, random_state=seed).to_numpy())


@pytest.mark.parametrize("goal", ["min", "max"])
def test_a_figure_shows_each_trial_in_each_panel_and_names_the_best(goal):
    table, history = _search(goal=goal)
    figure = plots.sweep(table, history, "loss", goal)
    over_epochs, weights, parallel, *slices = figure.axes
    best = getattr(table["loss"], f"idx{goal}")()
    assert f"trial {best}," in figure.get_suptitle()
    assert len(over_epochs.lines) == len(table)
    assert np.allclose(
        max(over_epochs.lines, key=lambda line: line.get_linewidth()).get_ydata()[-1], table["loss"][best]
    )
    assert [text.get_text() for text in weights.get_yticklabels()][-1] == "lr"
    assert [text.get_text() for text in parallel.get_xticklabels()][-1] == "loss"
    assert {ax.get_xlabel(): ax.get_xscale() for ax in slices} == {"lr": "log", "kind": "linear", "noise": "linear"}
    assert len(slices[0].collections[0].get_offsets()) == len(table)


def test_what_cannot_be_drawn_is_refused_by_name():
    table, history = _search(8)
    with pytest.raises(InvalidArgument, match=r"'lrr' is not a hyper-parameter that varies \(did you mean 'lr'\?\)"):
        plots.sweep(table, history, "loss", "min", ["lrr"])
    with pytest.raises(InvalidArgument, match="no trial has a value of loss"):
        plots.sweep(table.assign(loss=float("nan")), history, "loss", "min")
    with pytest.raises(InvalidArgument, match="no hyper-parameter varies"):
        plots.sweep(table.iloc[:1], history, "loss", "min")


def test_trials_without_a_value_are_left_out():
    table, history = _search(8)
    table.loc[3, "loss"] = float("nan")
    figure = plots.sweep(table, history, "loss", "min", ["kind"])
    assert len(figure.axes[0].lines) == 7
    assert figure.get_suptitle().startswith("8 trials")
