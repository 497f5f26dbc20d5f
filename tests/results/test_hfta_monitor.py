# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite.errors import Error
from dnnsuite.results.monitor import DCGM_FIELDS, HOST_FIELDS, dcgm_rows, rows_of_dcgm
from result_tables import write_dcgm


@pytest.mark.parametrize(("n", "kept"), [(1, slice(0, 1)), (5, slice(0, 4)), (10, slice(1, 9)), (25, slice(2, 22))])
def test_from_ten_to_ninety_percent_of_the_samples(tmp_path: Path, n: int, kept: slice) -> None:
    values = [float(i * i) for i in range(n)]
    (row,) = [row for row in dcgm_rows(write_dcgm(tmp_path, values)) if row.metric == "gpu_util"]
    cut = values[kept]
    assert (row.mean, row.peak, row.total, row.samples) == (sum(cut) / len(cut), cut[-1], sum(cut), len(cut))


def test_units_are_ours(tmp_path: Path) -> None:
    path = write_dcgm(
        tmp_path, [50.0] * 3, DCGM_FI_PROF_SM_ACTIVE=[0.5] * 3, host_mem_available=[3.0, 1.0, 5.0],
        DCGM_FI_PROF_PCIE_RX_BYTES=[7.0, float("nan"), 8.0],
    )  # fmt: skip
    found = {(row.of, row.metric): row for row in dcgm_rows(path)}
    assert found["gpu0", "gpm_sm"].mean == 50.0
    assert found["gpu0", "memory_used"].peak == 1 << 30
    assert found["gpu0", "gpm_pcie_rx"].total == 15.0
    assert found["machine", "memory_used"].peak == 8.0 - 1.0
    assert len({(each.of, each.metric) for each in (*DCGM_FIELDS, *HOST_FIELDS)}) == 15


def test_a_damaged_file_is_named_and_left_out(tmp_path: Path) -> None:
    root = tmp_path / "bert" / "cuda" / "v100" / "fp32"
    write_dcgm(root / "serial", [1.0])
    bad = write_dcgm(root / "hfta" / "B2", [1.0])
    bad.write_text("cpu_percent\n3\n")
    rows, (problem,) = rows_of_dcgm(tmp_path)
    assert {(row.mode, row.B, row.job) for row in rows} == {("serial", 1, "bert")}
    assert problem.startswith(f"skipped: {bad}: no column 'host_mem_total'")
    with pytest.raises(Error, match="No such file"):
        dcgm_rows(tmp_path / "dcgm_metrics.csv")
