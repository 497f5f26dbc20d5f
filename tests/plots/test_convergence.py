# SPDX-License-Identifier: MIT
import pandas as pd
import pytest
from matplotlib.figure import Figure

from dnnsuite import plots
from dnnsuite.errors import InvalidArgument


def test_losses_of_models_alone_and_of_the_array():
    losses = pd.DataFrame({"serial:0.1": [4.0, 2.0, 1.0], "hfta:0.1": [4.0, 2.0, 1.2], "control:0.1": [0.0] * 3})
    ax = plots.convergence(losses, 2, Figure().subplots())
    alone, fused = ax.lines
    assert [line.get_label() for line in ax.lines] == ["alone, lr 0.1", "in the array, lr 0.1"]
    assert alone.get_color() == fused.get_color()
    assert alone.get_linewidth() > fused.get_linewidth()  # seen on both sides of the other where they agree
    assert fused.get_xdata().tolist() == [0, 2]
    assert fused.get_ydata().tolist() == [3.0, 1.2]
    with pytest.raises(InvalidArgument, match="nothing to draw"):
        plots.convergence(losses[["control:0.1"]], 1, Figure().subplots())
