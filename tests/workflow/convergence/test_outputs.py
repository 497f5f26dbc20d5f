# SPDX-License-Identifier: MIT
import json

import pandas as pd
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.plots import Request
from dnnsuite.workflow.convergence.verdict import draw, table_of


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


def test_the_figure_is_drawn_anew(finished, tmp_path):
    drawn = draw(Request((finished.root,), save=tmp_path / "again"))
    assert [path.name for path in drawn.files] == ["again.csv", "again.png"]
    assert drawn.files[0].read_bytes() == (finished.root / "convergence.csv").read_bytes()
    with pytest.raises(InvalidArgument, match="no comparison of convergence here"):
        draw(Request((tmp_path,)))
    with pytest.raises(InvalidArgument, match="draws one comparison"):
        draw(Request((finished.root, finished.root)))
