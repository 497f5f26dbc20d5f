# SPDX-License-Identifier: MIT
"""All analyses of one set of tables at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..._lazy import pandas as pd
from ..instrument import define, definitions
from ._attribution import attribute, defined_as
from ._gaps import host_bound, idle_gaps
from ._kernels import by_class, by_kernel, by_span
from ._utilization import exposed_communication, utilization

_MOST_GAPS = 1000


def analyse(
    tables: Mapping[str, pd.DataFrame],
    windows: Iterable[tuple[int, int]],
    spans: pd.DataFrame | None = None,
    label: str = "name",
) -> dict[str, pd.DataFrame]:
    """Derive tables from those of :class:`ActivityInstrument`; none if no kernel and no graph ran.

    Args:
        tables: `kernels` and `api`, and optionally `memops`, `overhead` and `graphs`.
        windows: (begin, end) in ns; percentages are of their length.
        spans, label: phases to attribute kernels to; see :func:`attribute`.

    Returns:
        `gpu`: utilisation, communication and waiting for the host, for each GPU; `kernels_by_name`,
        `kernels_by_class`, and with spans `kernels_by_span`; `idle_gaps`: the longest 1000.

    Raises:
        InvalidArgument: no window has a length, or `spans` lacks a column.
    """
    kernels, api = tables["kernels"], tables["api"]
    memops, overhead, graphs = (tables.get(name) for name in ("memops", "overhead", "graphs"))
    if not len(kernels) and (graphs is None or not len(graphs)):
        return {}
    windows = [*windows]
    gaps = idle_gaps(kernels, api, windows, memops=memops, graphs=graphs, spans=spans, label=label)
    busy = utilization(kernels, windows, memops=memops, overhead=overhead, graphs=graphs)
    more = [exposed_communication(kernels, windows), host_bound(gaps, windows).drop(columns=["idle_ns", "unknown_ns"])]
    gpu, meanings = busy, definitions(busy)
    for table in more:
        gpu = gpu.merge(table, on="device", how="left")
        meanings |= {column: text for column, text in definitions(table).items() if column in table}
    found = {
        "gpu": define(gpu, meanings),
        "kernels_by_name": by_kernel(kernels),
        "kernels_by_class": by_class(kernels),
        "idle_gaps": defined_as(gaps, gaps.head(_MOST_GAPS), {}),
    }
    if spans is not None:
        found["kernels_by_span"] = by_span(attribute(kernels, api, spans, label))
    return found
