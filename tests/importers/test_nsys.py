# SPDX-License-Identifier: MIT
import math

import pytest

from dnnsuite import _C
from dnnsuite.importers import BadFile, nsys
from dnnsuite.profiler.activity import analyse, attribute, with_launches
from dnnsuite.profiler.activity.tables import TABLES, tables_of
from importer_samples import OTHER_PID, TID, new_schema, old_schema, sqlite


@pytest.fixture
def tables(tmp_path):
    return nsys.read(sqlite(tmp_path / "report.sqlite", new_schema()))


def test_tables_and_columns_are_those_of_the_instrument(tables):
    decoded = _C.decode_activity(b"")
    own = tables_of(decoded["tables"], decoded["strings"], lambda domain, number: "")
    assert tuple(tables) == TABLES
    assert {name: list(table.columns) for name, table in tables.items()} == {
        name: list(table.columns) for name, table in own.items()
    }
    assert all(set(table.attrs["definitions"]) == set(table.columns) for table in tables.values())


def test_kernels_copies_and_calls(tables):
    kernels = tables["kernels"]
    assert kernels["name"].tolist() == ["ncclDevKernel_AllReduce_Sum_f32_RING_LL", "sm90_xmma_gemm_f32_f32"]
    assert kernels["class"].tolist() == ["communication", "gemm"]
    assert kernels[["t0_ns", "t1_ns", "grid_x", "block_x", "dynamic_shared_bytes"]].iloc[1].tolist() == [
        2000,
        3000,
        4,
        32,
        1024,
    ]
    copies = tables["memops"]
    assert copies["operation"].tolist() == ["HtoD", "memset"]
    assert copies[["source_memory", "target_memory"]].values.tolist() == [["pinned", "device"], ["unknown", "device"]]
    assert tables["api"][["domain", "function", "thread"]].values.tolist() == [
        ["runtime", "cudaLaunchKernel", TID],
        ["driver", "cuLaunchKernel", 5],
        ["runtime", "cudaLaunchKernel", TID],
    ]
    assert tables["syncs"]["kind"].tolist() == ["stream synchronize"]
    assert tables["overhead"]["kind"].tolist() == ["CUDA profiling overhead"]
    assert tables["graphs"]["graph_id"].tolist() == [6]


def test_ranges_marks_domains_and_payloads(tables):
    found = tables["markers"]
    assert found["name"].tolist() == ["step", "a text", "mark"]  # a range that never ended is none
    assert found[["t0_ns", "t1_ns"]].values.tolist() == [[300, 3200], [350, 360], [370, 370]]
    assert found["domain"].iloc[0] == "dnnsuite"
    assert found["domain"].isna().tolist() == [False, True, True]
    assert found["payload"].iloc[0] == 3
    assert math.isnan(found["payload"].iloc[1])


def test_equal_correlations_of_two_processes_are_told_apart(tables):
    launched = with_launches(tables["kernels"], tables["api"])
    assert launched["launch_t0_ns"].tolist() == [700, 1600]
    assert launched["launch_thread"].tolist() == [5, TID]
    assert OTHER_PID != TID


def test_the_analyses_work_on_an_imported_trace(tables):
    windows = [tuple(window) for window in tables["kernels"].attrs["windows"]]
    assert windows == [(100, 5000)]
    found = analyse(tables, windows)
    assert found["gpu"]["kernel_ns"].tolist() == [2000, 500]  # a graph counts as one piece of work
    assert found["gpu"]["overhead_ns"].tolist() == [100, 100]
    spans = tables["markers"].assign(step=0)
    assert attribute(tables["kernels"], tables["api"], spans)["span"].tolist() == ["step", "step"]


def test_an_early_schema(tmp_path):
    tables = nsys.read(sqlite(tmp_path / "old.sqlite", old_schema()))
    assert tables["kernels"]["name"].tolist() == ["volta_sgemm"]
    assert tables["api"]["domain"].tolist() == ["runtime"]
    assert tables["memops"]["target_memory"].tolist() == ["device"]
    assert tables["markers"]["name"].tolist() == ["train"]
    assert not len(tables["graphs"])


def test_a_table_alone(tmp_path):
    for name in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        tables = nsys.read(sqlite(tmp_path / "x.sqlite", {name: new_schema()[name]}))
        assert sum(len(table) for table in tables.values()) in (2, 3)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"other": ("a", [(1,)])}, "no table of CUDA or NVTX"),
        ({"CUPTI_ACTIVITY_KIND_KERNEL": ("begin stop", [(1, 2)])}, "no columns start and end"),
    ],
)
def test_schemas_that_are_not_known(tmp_path, tables, message):
    with pytest.raises(BadFile, match=f"x.sqlite: .*{message}"):
        nsys.read(sqlite(tmp_path / "x.sqlite", tables))


def test_a_file_that_is_cut_or_no_database(tmp_path):
    path = sqlite(tmp_path / "x.sqlite", new_schema())
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(BadFile, match=r"x\.sqlite"):
        nsys.read(path)
    path.write_bytes(b"no database, but long enough for a header of one" * 10)
    with pytest.raises(BadFile, match="no SQLite file"):
        nsys.read(path)
    with pytest.raises(BadFile, match="No such file"):
        nsys.read(tmp_path / "gone.sqlite")


def test_the_file_is_only_read(tmp_path):
    path = sqlite(tmp_path / "x.sqlite", new_schema())
    before = path.read_bytes()
    path.chmod(0o444)
    nsys.read(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["x.sqlite"]


def test_pages_of_unified_memory_that_migrate(tmp_path):
    tables = new_schema()
    columns, (row,) = tables["CUPTI_ACTIVITY_KIND_MEMCPY"]
    place = columns.split().index("copyKind")
    rows = [(*row[:place], kind, *row[place + 1 :]) for kind in (11, 12, 13)]
    tables["CUPTI_ACTIVITY_KIND_MEMCPY"] = (columns, rows)
    memops = nsys.read(sqlite(tmp_path / "x.sqlite", tables))["memops"]
    assert {"unified HtoD", "unified DtoH", "unified DtoD"} <= {*memops["operation"]}
