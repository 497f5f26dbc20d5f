# SPDX-License-Identifier: MIT
"""The raw samples of a run, in the one form that files of every version are brought to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .._files import unchanged
from ..errors import Error, reason

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_COLUMNS = ("replica", "i", "epoch", "t_start_ns", "t_stop_ns", "items", "phase", "flag")
_MEASURED = ("i", "t_start_ns", "t_stop_ns", "items")


def steps(run: str | Path) -> pd.DataFrame:
    """Return the raw samples of one run directory, with the columns `SAMPLE_COLUMNS`; times are in nanoseconds.

    In a file of an earlier version some are missing: the epoch is 0, and the phase and flag are empty.

    Raises:
        Error: there are no samples, or a file is damaged; the message names it.
    """
    import pandas as pd

    files = sorted(Path(run).glob("samples.csv")) or sorted(
        Path(run).glob("idx*/samples.csv"), key=lambda path: int(path.parent.name.removeprefix("idx"))
    )
    if not files:
        raise Error(f"{run}: no samples.csv in it")
    return pd.concat([_read(file, i) for i, file in enumerate(files)], ignore_index=True)


def _read(file: Path, replica: int) -> pd.DataFrame:
    import pandas as pd

    try:
        table = pd.read_csv(unchanged(file), keep_default_na=False)
    except (OSError, ValueError) as error:
        raise Error(f"{file}: {reason(error)}") from error
    if absent := [name for name in _MEASURED if name not in table.columns]:
        raise Error(f"{file}: no column {absent[0]!r}")
    for name, unknown in (("epoch", 0), ("phase", ""), ("flag", "")):
        if name not in table.columns:
            table[name] = unknown
    return table.assign(replica=replica)[list(SAMPLE_COLUMNS)]
