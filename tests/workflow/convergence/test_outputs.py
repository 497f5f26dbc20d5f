# SPDX-License-Identifier: MIT
import json

import pandas as pd
import pytest

from dnnsuite.workflow.convergence.outputs import table_of


def test_columns_and_rows():
    read = {way: {"losses": [[1.0, 2.0], [0.5, None]]} for way in ("control", "hfta", "serial")}
    table = table_of([0.002, 1e-5], read)
    names = [f"{way}:{lr}" for way in ("serial", "hfta", "control") for lr in ("0.002", "1e-05")]
    assert list(table.columns) == names
    assert table["serial:0.002"].tolist() == [1.0, 0.5]
    assert pd.isna(table["hfta:1e-05"].iloc[1])


def test_files(finished):
    table = pd.read_csv(finished.root / "convergence.csv", index_col="iteration")
    assert table.shape == (10, 9)
    assert table["hfta:0.1"].tolist() == pytest.approx(table["serial:0.1"].tolist(), rel=1e-4)
    assert (finished.root / "convergence.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((finished.root / "verdict.json").read_text())["verdict"] == "same"
