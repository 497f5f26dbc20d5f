# SPDX-License-Identifier: MIT
"""Small tables of activity, written by hand."""

import pandas as pd


def kernels(*rows, device=0):
    """Rows of (t0, t1, name, class, correlation)."""
    table = pd.DataFrame(rows, columns=["t0_ns", "t1_ns", "name", "class", "correlation"])
    table = table.assign(device=device, stream=7, **{"class": table["class"].astype("category")})
    table.attrs["definitions"] = dict.fromkeys(table, "by hand")
    return table


def api(*rows):
    """Rows of (t0, t1, function, correlation, thread)."""
    return pd.DataFrame(rows, columns=["t0_ns", "t1_ns", "function", "correlation", "thread"])


def intervals(*rows, **columns):
    """Rows of (t0, t1), and whole columns."""
    return pd.DataFrame(rows, columns=["t0_ns", "t1_ns"]).assign(**columns)
