# SPDX-License-Identifier: MIT
import pytest

from dnnsuite import importers
from dnnsuite.importers import BadFile, nsys_stats
from importer_samples import FIXTURES

REPORTS = FIXTURES / "nsys_stats.csv"


def test_several_reports_in_one_file():
    tables = nsys_stats.read(REPORTS)
    launches = tables["launches"]
    assert launches["name"].str[:12].tolist() == ["void gemm<(i", "relu(float *", "[CUDA memcpy"]
    assert launches["calls"].tolist() == [3, 5, 2]
    assert launches["duration_ns"].tolist() == [10_000, 2_000, 2_000]
    assert tables["api"]["name"].tolist() == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert tables["api"]["duration_ns"].tolist() == [5_000, 5_000]
    assert not len(tables["metrics"])


@pytest.mark.parametrize(
    "header",
    [
        "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name",  # 2020
        "Time(%),Total Time,Instances,Average,Minimum,Maximum,Name",
        "Time(%),Total Time (ns),Instances,Average (ns),Minimum (ns),Maximum (ns),Name",
        "Time (%),Total Time (ns),Instances,Avg (ns),Min (ns),Max (ns),Name",
    ],
)
def test_names_of_columns_through_the_versions(tmp_path, header):
    path = tmp_path / "x.csv"
    path.write_text(f'{header}\n100.0,600,3,200.0,100,300,"k<a, b>"\n', encoding="utf-8")
    (row,) = importers.load(path).tables["launches"].to_dict("records")
    assert (row["name"], row["calls"], row["duration_ns"]) == ("k<a, b>", 3, 200)


def test_the_trace_of_launches_and_of_calls(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
        "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
        "100,30,11,2,1,1,64,1,1,24,0.000,0.000,,,,,A GPU (0),1,,7,relu(float *)\n"
        "170,5,13,,,,,,,,,,0.004,800.0,Pageable,Device,A GPU (0),1,,7,[CUDA memcpy Host-to-Device]\n\n"
        "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
        "90,8,cudaLaunchKernel,0,11,1,1,20,python\n",
        encoding="utf-8",
    )
    found = importers.load(path)
    assert found.kind == "nsys-stats"
    assert found.tables["launches"]["duration_ns"].tolist() == [30, 5]
    assert found.tables["launches"]["device"].tolist() == ["A GPU (0)"] * 2
    assert found.tables["api"]["duration_ns"].tolist() == [8]
    assert not len(found.tables["metrics"])


def test_time_by_name_and_two_files_compared(tmp_path):
    found = importers.by_name(importers.load(REPORTS))
    kernels = found["kernels_by_name"]
    assert kernels["total_ns"].tolist() == [30_000, 10_000, 4_000]
    assert kernels["share_pct"].sum() == pytest.approx(100)
    assert found["calls_by_name"]["calls"].tolist() == [8, 2]
    slower = tmp_path / "slower.csv"
    slower.write_text(REPORTS.read_text().replace("10000.0,10000.0,9000", "20000.0,20000.0,9000"))
    change = importers.compare_traces(importers.load(REPORTS), importers.load(slower))
    assert change["change_ms"].tolist()[0] == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Time(%),Time,Calls,Avg,Min,Max,Name\n", "no report of kernels or calls"),
        ("Time (%),Total Time (ns),Instances,Avg (ns),Name\n", "nothing was profiled"),
        ("Time (%),Total Time (ns),Instances,Avg (ns),Name\n1,2,3,-4,k\n", r"x\.csv:2: a count or a time is negative"),
        ("Time (%),Total Time (ns),Instances,Avg (ns),Name\n1,2,3,k\n", r"x\.csv:2: 4 fields where the header has 5"),
    ],
)
def test_damaged_files_are_named_with_their_line(tmp_path, text, message):
    path = tmp_path / "x.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadFile, match=message):
        nsys_stats.read(path)
