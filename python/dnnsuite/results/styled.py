# SPDX-License-Identifier: MIT
"""Tables for a notebook, with the digits that commands and reports show."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._shown import number, percent, ratio

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

_RATIOS = ("normalized", "over_serial", "over_concurrent", "ratio", "slowdown", "times", "efficiency")


def styled(table: pd.DataFrame, index: bool = True) -> Styler:
    """Style a table for a notebook: rates with four significant digits, ratios with two decimals, percentages with one.

    Args:
        table: any table of this package; the names of its columns decide the format. Its values are not changed.
        index: False hides the index.

    >>> import pandas as pd
    >>> styled(pd.DataFrame({"rate": [12345.6], "share_pct": [1.25]})).to_string(delimiter="|").splitlines()[1]
    '0|12,346|1.2 %'
    """
    fractions = table.select_dtypes("float").columns
    of_ratios = any(str(name) in _RATIOS for name in table.columns)
    formats: dict[Any, Any] = {name: _format(str(name), of_ratios) for name in fractions}
    made = table.style.format(formats, na_rep="")
    return made if index else made.hide(axis="index")


def _format(name: str, of_ratios: bool) -> Callable[[float], str]:
    """Text of a column's values; `low` and `high` are those of the table's ratio where it has one."""
    if name.endswith(("pct", "%", "(%)")):
        return percent
    if name in _RATIOS or "times serial" in name or (of_ratios and name in ("low", "high")):
        return ratio
    return number
