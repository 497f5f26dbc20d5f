# SPDX-License-Identifier: MIT
import math

import pandas as pd

from dnnsuite import plots


def test_hftas_table_in_hftas_style() -> None:
    ends = {"avg": [1.0, 2.0], "min": [0.5, 1.0], "max": [2.0, 3.0]}
    table = pd.DataFrame({f"hfta:amp:{end}": values for end, values in ends.items()}, index=[1, 2])
    table = table.assign(**{f"serial:fp32:{end}": [values[0], math.nan] for end, values in ends.items()})
    ax = plots.hfta(table, "Normalized Throughput")
    assert ax.get_legend_handles_labels()[1] == ["hfta:amp", "serial:fp32"]
    assert ax.get_ylabel() == "Normalized Throughput"
