# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.importers import BadFile, dcgm, sniff
from importer_samples import FIXTURES


def values(table, device, name):
    return table[(table["device"] == device) & (table["name"] == name)]["value"].tolist()


def test_dmon_of_two_gpus_with_repeated_headers():
    table = dcgm.read(FIXTURES / "dmon.txt", interval_s=0.5)
    assert list(table.columns) == ["t_ns", "source", "device", "name", "value", "unit"]
    assert values(table, "gpu1", "gpm_sm") == pytest.approx([40, 50, 60])
    assert values(table, "gpu0", "memory_used") == [1024 * 2**20] * 3
    assert table["value"].isna().sum() == 1
    assert table["t_ns"].unique().tolist() == [0, 500_000_000, 1_000_000_000]
    assert set(table["source"]) == {"dcgm"}
    assert set(table.columns) | set(table["name"]) <= set(table.attrs["definitions"])


def test_the_old_header_and_fields_that_are_not_known():
    table = dcgm.read(FIXTURES / "dmon_old.txt")
    assert values(table, "gpu0", "gpu_util") == [97, 98]
    assert values(table, "gpu0", "XYZZY") == [12, 13]


@pytest.mark.parametrize("written", ["1004", "TENSO", "tenso", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"])
def test_fields_by_number_and_by_name(tmp_path, written):
    path = tmp_path / "x.txt"
    path.write_text(f"#Entity {written}\nID\nGPU 3  0.25\n", encoding="utf-8")
    assert values(dcgm.read(path), "gpu3", "gpm_tensor") == [25]


def test_the_exporters_text():
    table = dcgm.read(FIXTURES / "exporter.txt")
    assert values(table, "gpu0", "gpu_util") == [97, 95]
    assert values(table, "gpu0/2", "gpm_graphics") == [50]  # a MIG instance
    assert table["t_ns"].iloc[-1] == 10**9


def test_a_table_with_times():
    table = dcgm.read(FIXTURES / "dcgm.csv")
    assert table["t_ns"].diff().max() == 10**9
    assert table["t_ns"].iloc[0] == 1704067200 * 10**9
    assert values(table, "gpu0", "power_average")[0] == 100.5


def test_a_tall_table(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("timestamp_ms,gpu,metric,value\n5,0,DCGM_FI_DEV_SM_CLOCK,1980\n", encoding="utf-8")
    table = dcgm.read(path)
    assert table[["t_ns", "name", "value", "unit"]].iloc[0].tolist() == [5_000_000, "sm_clock", 1.98e9, "Hz"]


def test_hftas_file_of_one_gpu_and_the_machine(tmp_path):
    path = tmp_path / "dcgm_metrics.csv"
    header = ",DCGM_FI_PROF_SM_ACTIVE,timestamp,cpu_percent,host_mem_total,host_mem_available"
    path.write_text(f"{header}\n0,0.5,1000.25,40.0,8,3\n1,nan,1015.25,60.0,8,2\n", encoding="utf-8")
    assert sniff(path) == "dcgm"
    table = dcgm.read(path)
    assert [*table[["t_ns", "device", "name", "value"]].itertuples(index=False, name=None)][:4] == [
        (1_000_250_000_000, "gpu0", "gpm_sm", 50.0),
        (1_000_250_000_000, "machine", "busy", 40.0),
        (1_000_250_000_000, "machine", "memory_total", 8.0),
        (1_000_250_000_000, "machine", "memory_available", 3.0),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("#Entity GRACT SMACT\nID\nGPU 0  0.5\n", r"x:3: 1 values where the header has 2"),
        ("#Entity GRACT\nID\nGPU 0  0.5 0.5\n", r"x:3: 2 values"),
        ("#Entity GRACT\nID\nGPU 0\n", r"x:3: a GPU without values"),
        ("#Entity GRACT\nID\nGPU 0 0.5x\n", r"x:3: '0.5x' is not a number"),
        ("#Entity\n", r"x:1: a header without fields"),
        ("#Entity GRACT\nID\n", r"x: a header and no sample"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1\nDCGM_FI_DEV_GPU_UTIL{gpu="0', r"x:2: not `NAME"),
        ("timestamp,gpu,DCGM_FI_DEV_GPU_UTIL\nnoon,0,1\n", r"x:2: 'noon' is not a time"),
        ("timestamp,gpu,DCGM_FI_DEV_GPU_UTIL\n1,0\n", r"x:2: 2 fields"),
        ("timestamp,gpu,heat\n1,0,2\n", r"x:1: none of the columns"),
        ("nothing of this\n", r"x: no header"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path, content, message):
    path = tmp_path / "x"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadFile, match=message):
        dcgm.read(path)


def test_a_clock_that_stands_is_refused():
    with pytest.raises(InvalidArgument, match="interval_s=0"):
        dcgm.read(FIXTURES / "dmon.txt", interval_s=0)


def test_times_before_lines_values_that_were_too_wide_and_dcgms_words_for_nothing():
    table = dcgm.read(FIXTURES / "dmon_stamped.txt")
    assert table["t_ns"].unique().tolist() == [(1714564800 + s) * 10**9 for s in (1, 3)]
    assert values(table, "gpu0", "gpm_sm") == pytest.approx([50, 25])
    assert table[table["name"] == "memory_used"]["value"].isna().tolist() == [True, True, False]


def test_a_blank_of_the_exporter_is_no_number(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text(
        'DCGM_FI_DEV_MEMORY_TEMP{gpu="0", UUID="GPU-1",pod=""} 9223372036854775794\n'
        'DCGM_FI_DEV_SM_CLOCK{gpu="0", UUID="GPU-1",pod=""} 1500\n',
        encoding="utf-8",
    )
    assert dcgm.read(path)["value"].isna().tolist() == [True, False]
