# SPDX-License-Identifier: MIT
"""nvprof's tables for people become the CSV that it would have written."""

import pytest

from dnnsuite.importers import BadFile, load, nvprof
from dnnsuite.importers._nvprof_text import as_csv, is_text_header
from dnnsuite.importers.traces import by_name


def test_metrics_as_they_are_printed_for_people(tmp_path):
    path = tmp_path / "metrics.txt"
    path.write_text(
        "==1== Metric result:\n"
        "Invocations                   Metric Name            Metric Description         Min         Max         Avg\n"
        'Device "Some GPU (0)"\n'
        "    Kernel: void reduce<unsigned int=1024>(float*, int)\n"
        "          4     dram_read_throughput    Device Memory Read Throughput  1.0000GB/s  3.0000GB/s  2.0000GB/s\n"
        "          4   single_precision_fu_utilization   Single-Precision FU Utilization  Low (1)  Mid (5)  Low (2)\n",
        encoding="utf-8",
    )
    tables = nvprof.read(path)
    assert tables["metrics"]["value"].tolist() == [2 * 2**30, 2]
    assert tables["launches"]["name"].unique().tolist() == ["void reduce<unsigned int=1024>(float*, int)"]


def test_a_trace_as_it_is_printed_for_people(tmp_path):
    path = tmp_path / "trace.txt"
    path.write_text(
        "======== Profiling result:\n"
        "   Start  Duration            Grid Size      Block Size     Regs*    SSMem*      Size  Throughput    Device"
        "   Context    Stream  Name\n"
        "     0ns  1.5000us                    -               -         -         -  8.0000MB  60.641GB/s  Some GPU"
        "         1        14  [CUDA memcpy HtoD]\n"
        "271.55us  2.0000us           (4097 1 1)       (512 1 1)        16        0B         -           -  Some GPU"
        "         1        14  add(float const *, int) [332]\n"
        "1.27155s  4.0000us           (4097 1 1)       (512 1 1)        16        0B         -           -  Some GPU"
        "         1        14  add(float const *, int) [341]\n"
        "\n"
        "Regs: Number of registers used per CUDA thread. This number includes registers used internally.\n"
        "======== Profiling result:\n"
        "   Start  Duration  Name\n"
        "     0ns  4.1870us  cuDeviceGetCount\n"
        "271.00us  9.0000us  cudaLaunchKernel (add(float const *, int) [332])\n",
        encoding="utf-8",
    )
    found = load(path)
    launches, calls = found.tables["launches"], found.tables["api"]
    assert found.kind == "nvprof"
    assert launches["duration_ns"].tolist() == [1500, 2000, 4000]
    assert launches["device"].unique().tolist() == ["Some GPU"]
    assert calls["duration_ns"].tolist() == [4187, 9000]
    sums = by_name(found)
    kernels = sums["kernels_by_name"].set_index("name")
    assert kernels.loc["add(float const *, int)", ["calls", "total_ns"]].tolist() == [2, 6000]
    assert sums["calls_by_name"]["name"].tolist() == ["cudaLaunchKernel", "cuDeviceGetCount"]
    cut = path.read_text().splitlines()
    cut[3] = "271.55us  2.0000us           (4097 1 1)"
    path.write_text("\n".join(cut), encoding="utf-8")
    with pytest.raises(BadFile, match=r":4: 3 fields where the header has 12"):
        load(path)


def test_lines_keep_their_numbers_and_others_stay():
    lines = [
        "loss 0.5",
        "Time(%)      Time     Calls       Avg       Min       Max  Name",
        " 50.0%  1ms  2  1ms  1ms  1ms  f(a, b)",
        "x",
    ]
    made = as_csv(lines)
    assert is_text_header(lines[1])
    assert (made[0], made[3]) == ("loss 0.5", "x")
    assert made[2] == '"GPU activities","50.0%","1ms","2","1ms","1ms","1ms","f(a, b)"'
