# SPDX-License-Identifier: MIT
"""HFTA's `dcgm_metrics.csv`: read as the load of the machine, and the fields that its parser reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from .._files import regular
from ..errors import Error, reason
from .hfta import places
from .monitor import MonitorRow

if TYPE_CHECKING:
    import pandas as pd

DCGM_FILE = "dcgm_metrics.csv"
_MIB, _GIB = 1 << 20, 1 << 30


class DcgmField(NamedTuple):
    """A field of HFTA's parser.

    Attributes:
        of, metric: our name of it; of `gpu`, every whole GPU of the run.
        scale: our unit divided by DCGM's.
        kept: figure of a run that is reported.
        label: HFTA's label of the axis.
        plot_scale: DCGM's unit in that of the label.
    """

    name: str
    of: str
    metric: str
    unit: str
    scale: float
    kept: Literal["mean", "peak", "total"]
    label: str
    plot_scale: float = 1.0


DCGM_FIELDS = (
    DcgmField("DCGM_FI_DEV_GPU_UTIL", "gpu", "gpu_util", "%", 1, "mean", "GPU Utilization"),
    DcgmField("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gpu", "gpm_tensor", "%", 100, "mean",
              "Tensor (HMMA) pipe active (ratio of cycles)"),
    DcgmField("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gpu", "gpm_fp16", "%", 100, "mean",
              "FP16 pipe active (ratio of cycles; exclude HMMA)"),
    DcgmField("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gpu", "gpm_fp32", "%", 100, "mean",
              "FP32 pipe active (ratio of cycles)"),
    DcgmField("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "gpu", "gpm_fp64", "%", 100, "mean",
              "FP64 pipe active (ratio of cycles)"),
    DcgmField("DCGM_FI_PROF_SM_OCCUPANCY", "gpu", "gpm_occupancy", "%", 100, "mean",
              "Warps resident on an SM (ratio of the possible)"),
    DcgmField("DCGM_FI_PROF_SM_ACTIVE", "gpu", "gpm_sm", "%", 100, "mean",
              "An SM has at least 1 warp assigned (ratio of cycles)"),
    DcgmField("DCGM_FI_DEV_FB_USED", "gpu", "memory_used", "bytes", _MIB, "peak",
              "Used frame buffer (global memory; in GB)", 1 / 1024),
    DcgmField("DCGM_FI_PROF_PCIE_RX_BYTES", "gpu", "gpm_pcie_rx", "bytes/s", 1, "total",
              "GB of active PCIe read data", 1 / _GIB),
    DcgmField("DCGM_FI_PROF_PCIE_TX_BYTES", "gpu", "gpm_pcie_tx", "bytes/s", 1, "total",
              "GB of active PCIe transmit data", 1 / _GIB),
    DcgmField("DCGM_FI_DEV_MEM_COPY_UTIL", "gpu", "memory_util", "%", 1, "mean", "Memory Utilization"),
    DcgmField("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu", "gpm_graphics", "%", 100, "mean",
              "Graphics engine active (ratio of time)"),
    DcgmField("DCGM_FI_PROF_DRAM_ACTIVE", "gpu", "gpm_dram", "%", 100, "mean",
              "Device memory interface active (ratio of cycles)"),
)  # fmt: skip
HOST_FIELDS = (
    DcgmField("cpu_percent", "machine", "busy", "%", 1, "mean", "CPU Utilization"),
    DcgmField("host_mem_usage", "machine", "memory_used", "bytes", 1, "peak", "Host Memory Usage (GB)", 1 / _GIB),
)
PIPE_MODELS = ("v100", "a100")  # GPUs of which HFTA reads more than utilisation and memory


def rows_of_dcgm(root: Path) -> tuple[list[MonitorRow], list[str]]:
    """Return (rows, a sentence for each damaged file) of every run in a tree; see :func:`dcgm_rows`."""
    rows: list[MonitorRow] = []
    problems: list[str] = []
    for place, path in places(root, DCGM_FILE):
        try:
            of_file = dcgm_rows(path)
        except Error as error:
            problems.append(f"skipped: {error}")
            continue
        rows += [
            replace(
                row, job=place.job(root), device=place.device, mode=place.mode, precision=place.precision, B=place.B,
                plan_id=place.plan_id(root), repeat=place.repeat,
            )
            for row in of_file
        ]  # fmt: skip
    return rows, problems


def dcgm_rows(path: Path) -> list[MonitorRow]:
    """Return the quantities in one file, of the samples from 10 to 90 % of it, as HFTA has it; of no job yet.

    `total` of PCIe traffic is HFTA's sum of samples, which is no number of bytes.

    Raises:
        Error: it is missing or damaged; the message names it.
    """
    import pandas as pd

    try:
        table = pd.read_csv(regular(path))
        table = table.iloc[round(0.1 * len(table)) : round(0.9 * len(table))]
        table = table.assign(host_mem_usage=table["host_mem_total"].max() - table["host_mem_available"])
        return [
            _row(path, table[field.name].astype("float64"), field)
            for field in (*DCGM_FIELDS, *HOST_FIELDS)
            if field.name in table
        ]
    except KeyError as error:
        raise Error(f"{path}: no column {error}") from error
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise Error(f"{path}: {reason(error)}") from error


def _row(path: Path, values: pd.Series[float], field: DcgmField) -> MonitorRow:
    ours = values.dropna() * field.scale
    return MonitorRow(
        job="", kind="hfta", path=str(path.parent), of="gpu0" if field.of == "gpu" else field.of, metric=field.metric,
        unit=field.unit, mean=ours.mean(), peak=ours.max(), total=ours.sum(), samples=len(ours),
    )  # fmt: skip
