# SPDX-License-Identifier: MIT
import math

import pytest

from dnnsuite.importers import BadFile, nvprof
from importer_samples import FIXTURES


def test_full_details_of_nvvp():
    tables = nvprof.read(FIXTURES / "nvvp_full.csv")
    assert tables["launches"]["duration_ns"].tolist() == [4000, 1000, 3000, 500, 2000]
    assert tables["launches"]["calls"].tolist() == [1] * 5
    values = tables["metrics"]["value"].tolist()
    assert values[:3] == [10, 1, 0]  # Max (10) is ten, not its last digit
    assert math.isnan(values[3])
    assert values[4] == 7
    assert tables["metrics"]["text"].iloc[0] == "Max (10)"


def test_the_summary_of_nvvp_has_means_and_calls():
    launches = nvprof.read(FIXTURES / "nvvp_summary.csv")["launches"]
    assert launches["calls"].tolist() == [2, 1, 1]
    assert launches["duration_ns"].tolist() == [3000, 1000, 3000]


def test_a_trace_of_nvprof_with_banners_and_a_row_of_units():
    tables = nvprof.read(FIXTURES / "nvprof_trace.csv")
    assert tables["launches"]["duration_ns"].tolist() == [1500, 20_000]
    assert tables["launches"]["name"].tolist() == ["[CUDA memcpy HtoD]", "relu(float*, int) [112]"]
    assert not len(tables["metrics"])


def test_metrics_of_nvprof_are_means_with_their_units():
    tables = nvprof.read(FIXTURES / "nvprof_metrics.csv")
    metrics = tables["metrics"]
    assert metrics["value"].tolist() == [3, 9 * 2**30, 0.2]  # nvprof's GB is 2**30
    assert metrics["unit"].tolist() == ["level", "byte/s", ""]
    assert tables["launches"]["calls"].tolist() == [3, 3, 3]


def test_the_summary_of_nvprof(tmp_path):
    path = tmp_path / "summary.csv"
    path.write_text(
        '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n'
        '"GPU activities",60.0,0.4,2,200,100,300,"relu"\n==1== done\n',
        encoding="utf-8",
    )
    launches = nvprof.read(path)["launches"]
    assert launches[["name", "calls", "duration_ns"]].iloc[0].tolist() == ["relu", 2, 200_000]


def test_pages_of_several_processes_are_joined(tmp_path):
    path = tmp_path / "both.csv"
    text = (FIXTURES / "nvprof_trace.csv").read_text()
    path.write_text(text + text, encoding="utf-8")
    assert nvprof.read(path)["launches"]["kernel_id"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"4,000"', '"soon"', r"x.csv:2: 'soon' where a number must stand"),
        ("Duration(ns)", "Duration", r"x.csv:1: 'Duration' is in no unit"),
        ('"1000",', "", r"x.csv:3: 6 fields where the header has 7"),
        ('"High (7)","V100"\n', '"High (7)","V1', r"x.csv:6: a quote is left open"),
        ('"Device"\n', '"Name"\n', r"x.csv:1: column 'Name' occurs twice"),
        ('"Name"', '"Label"', r"x.csv: no header of nvprof"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path, old, new, message):
    path = tmp_path / "x.csv"
    text = (FIXTURES / "nvvp_full.csv").read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadFile, match=message):
        nvprof.read(path)


def test_a_header_alone(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text((FIXTURES / "nvvp_full.csv").read_text().split("\n")[0], encoding="utf-8")
    with pytest.raises(BadFile, match="no row below it"):
        nvprof.read(path)


@pytest.mark.parametrize("name", ["nvprof_unified.csv", "nvprof_text.txt"])
def test_calls_of_the_host_and_pages_that_migrated_are_tables_of_their_own(name):
    tables = nvprof.read(FIXTURES / name)
    assert tables["launches"]["name"].tolist()[0] == "saxpy(int, float, float*, float*)"
    assert len(tables["launches"]) == 2
    assert tables["api"]["name"].iloc[0] == "cudaMallocManaged"
    unified = tables["unified"]
    assert unified["device"].unique().tolist() == ["Some GPU (0)"]
    sizes = {"nvprof_unified.csv": 2 * 2**20, "nvprof_text.txt": 64 * 2**10}  # its KB is 1024 bytes
    assert unified["bytes"].iloc[0] == sizes[name]
    assert math.isnan(unified["bytes"].iloc[1])
    assert unified["duration_ns"].iloc[1] in (250_000, 200_000)


def test_a_trace_of_calls_and_one_of_both(tmp_path):
    path = tmp_path / "api.csv"
    path.write_text('"Start","Duration","Name","Correlation_ID"\nms,us,,\n1.5,20,"cudaMalloc",7\n', encoding="utf-8")
    tables = nvprof.read(path)
    assert tables["api"][["name", "duration_ns"]].values.tolist() == [["cudaMalloc", 20_000]]
    assert not len(tables["launches"])
    path.write_text(
        '"Start","Duration","Grid X","Device","Context","Stream","Name"\nms,us,,,,,\n'
        '1,5,,,,,"cudaLaunch"\n2,7,4,"Some GPU (0)","1","7","relu(float*, int)"\n',
        encoding="utf-8",
    )
    tables = nvprof.read(path)
    assert tables["api"]["name"].tolist() == ["cudaLaunch"]
    assert tables["launches"]["duration_ns"].tolist() == [7000]


def test_names_with_commas_that_an_old_version_did_not_quote(tmp_path):
    path = tmp_path / "old.csv"
    path.write_text("Time(%),Time,Calls,Avg,Min,Max,Name\n60.0%,3.0ms,2,1.5ms,1ms,2ms,f(float*, int, int)\n", "utf-8")
    launches = nvprof.read(path)["launches"]
    assert launches[["name", "duration_ns"]].values.tolist() == [["f(float*, int, int)", 1_500_000]]


UNIFIED_CSV = """==9== NVPROF is profiling process 9, command: ./a.out
==9== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,ms,
"GPU activities",100.000000,1.500000,3,500.000000,400.000000,0.600000,"saxpy(int, float, float*)"
"API calls",100.000000,2.000000,4,500.000000,1.000000,1.900000,"cudaDeviceSynchronize"

==9== Unified Memory profiling result:
"Device","Count","Avg Size","Min Size","Max Size","Total Size","Total Time",TITLE
"GPU (0)",2,64.000000KB,4.000000KB,124.000000KB,128.000000KB,0.000000,"Host To Device"
"GPU (0)",3,64.000000KB,4.000000KB,124.000000KB,192.000000KB,21.500000us,"Device To Host"
"GPU (0)",,,,,3B,0.000000,"Gpu page fault groups"
Total CPU Page faults: 2
"""


@pytest.mark.parametrize("title", ['""', '"Name"'])
def test_pages_of_unified_memory_in_csv(tmp_path, title):
    """nvprof gives the column of names no title, a time that it did not take no unit, and faults no count."""
    path = tmp_path / "um.csv"
    path.write_text(UNIFIED_CSV.replace("TITLE", title))
    tables = nvprof.read(path)
    found = tables["unified"].set_index("name")
    assert found["count"].tolist() == [2, 3, 3]
    assert found["bytes"].fillna(-1).tolist() == [128 * 1024, 192 * 1024, -1]
    assert found["duration_ns"].fillna(-1).tolist() == [-1, 21500, -1]
    assert tables["launches"]["name"].tolist() == ["saxpy(int, float, float*)"]
    assert tables["api"]["duration_ns"].tolist() == [500_000]


def test_page_faults_of_a_trace_are_neither_kernels_nor_calls(tmp_path):
    (tmp_path / "trace.csv").write_text(
        '"Start","Duration","Device","Context","Stream","Unified Memory","Name"\n'
        "ms,us,,,,,\n"
        '1.0,,"Unified Memory",,,"PC 0x40","[Unified Memory CPU page faults]"\n'
        '2.0,30.0,"GPU (0)",1,7,,"saxpy(int) [112]"\n'
        '3.0,5.0,"GPU (0)",,,4096B,"[Unified Memory Memcpy HtoD]"\n'
    )
    tables = nvprof.read(tmp_path / "trace.csv")
    assert tables["launches"]["name"].tolist() == ["saxpy(int) [112]"]
    assert len(tables["api"]) == 0
    pages = tables["unified"]
    assert pages["name"].tolist() == ["[Unified Memory CPU page faults]", "[Unified Memory Memcpy HtoD]"]
    assert pages["duration_ns"].fillna(-1).tolist() == [-1, 5000]
    assert pages["bytes"].fillna(-1).tolist() == [-1, 4096]
