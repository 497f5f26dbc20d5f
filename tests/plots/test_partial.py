# SPDX-License-Identifier: MIT
import pandas as pd
from matplotlib.figure import Figure

from dnnsuite import plots


def test_partly_fused_over_the_units_left_unfused():
    table = pd.DataFrame(
        {f"{mode}:fp32{end}": [1.0, 2.0] for mode in ("serial", "hfta") for end in ("", ":low", ":high")},
        index=pd.Index([0, 10], name="serial num"),
    )
    ax = plots.partially_fused(table, Figure().subplots())
    assert [line.get_label() for line in ax.lines] == ["serial fp32", "hfta fp32"]
    assert ax.get_xlabel() == "units left unfused"
