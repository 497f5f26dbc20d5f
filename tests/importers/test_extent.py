# SPDX-License-Identifier: MIT
import pandas as pd

from dnnsuite.importers._extent import with_windows


def test_the_extent_of_all_tables_or_the_windows_that_are_known():
    tables = {
        "a": pd.DataFrame({"t0_ns": [5, 7], "t1_ns": [6, 9]}),
        "b": pd.DataFrame({"t0_ns": [2], "t1_ns": [3]}),
    }
    assert with_windows(tables)["b"].attrs["windows"] == [[2, 9]]
    assert with_windows(tables, [(1, 4)])["a"].attrs["windows"] == [[1, 4]]
    assert with_windows({"a": tables["a"].head(0)})["a"].attrs["windows"] == []
