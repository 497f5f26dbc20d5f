# SPDX-License-Identifier: MIT
import pandas as pd

from dnnsuite import results


def texts(table: pd.DataFrame, **options: bool) -> list[list[str]]:
    lines = results.styled(table, **options).to_string(delimiter="|").strip().splitlines()
    return [line.split("|") for line in lines[1:]]


def test_columns_have_the_digits_of_reports() -> None:
    table = pd.DataFrame(
        {
            "mode": ["hfta", "serial"],
            "B": [4, 1],
            "rate": [12345.678, 0.0123456],
            "normalized": [2.6649, float("nan")],
            "low": [1.88444, float("nan")],
            "change_pct": [12.345, -0.04],
        }
    )
    assert texts(table) == [
        ["0", "hfta", "4", "12,346", "2.66", "1.88", "12.3 %"],
        ["1", "serial", "1", "0.01235", "", "", "-0.0 %"],
    ]
    assert texts(table, index=False)[0][0] == "hfta"
    assert table["rate"][0] == 12345.678, "the values stay as they are"


def test_ends_of_an_interval_of_rates_are_rates() -> None:
    assert texts(pd.DataFrame({"value": [104.26], "low": [101.234], "high": [107.5]})) == [
        ["0", "104.3", "101.2", "107.5"]
    ]
