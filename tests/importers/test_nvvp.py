# SPDX-License-Identifier: MIT
"""The database of nvprof and nvvp, which has CUPTI's names as nsys' has, and other columns."""

import pytest

from dnnsuite import importers
from dnnsuite.importers import BadFile, nvvp
from importer_samples import nvvp_schema, sqlite


def test_it_is_told_from_nsys_and_read(tmp_path):
    found = importers.load(sqlite(tmp_path / "prof.nvvp", nvvp_schema()))
    assert found.kind == "nvvp"
    kernel = found.tables["kernels"].iloc[0]
    assert kernel[["name", "class", "t0_ns", "grid_y", "block_x", "dynamic_shared_bytes"]].tolist() == [
        "volta_sgemm_128x64_nn", "gemm", 2000, 2, 32, 1024,
    ]  # fmt: skip
    memops = found.tables["memops"]
    assert memops[["operation", "source_memory", "target_memory", "bytes"]].values.tolist() == [
        ["HtoD", "pageable", "device", 4096],
        ["unified HtoD", "managed", "managed", 65536],
    ]
    assert found.tables["api"][["domain", "thread", "correlation"]].values.tolist() == [["runtime", 77, 11]]
    assert found.tables["markers"][["name", "t0_ns", "t1_ns"]].values.tolist() == [["step", 400, 3100]]
    assert found.tables["overhead"]["kind"].tolist() == ["CUPTI instrumentation"]
    assert found.windows == [(100, 3100)]
    assert importers.analyse_trace(found)["gpu"]["kernel_ns"].tolist() == [1000]


def test_values_of_metrics_alone_are_refused_with_the_way_out(tmp_path):
    tables = {name: nvvp_schema()[name] for name in ("StringTable", "Version")}
    tables["CUPTI_ACTIVITY_KIND_METRIC"] = ("_id_ id value correlationId flags", [(1, 2, b"12345678", 3, 0)])
    path = sqlite(tmp_path / "x.nvvp", tables)
    with pytest.raises(BadFile, match="nvprof -i FILE --csv"):
        nvvp.read(path)
    with pytest.raises(BadFile, match="nothing was profiled"):
        nvvp.read(sqlite(path, {name: nvvp_schema()[name] for name in ("StringTable", "Version")}))


@pytest.mark.parametrize("number", [-1, 2**32, 2**62])
def test_a_call_whose_number_is_none_is_named_so(number, tmp_path):
    tables = nvvp_schema()
    name, (columns, rows) = next(each for each in tables.items() if "cbid" in each[1][0].split())
    odd = list(rows[0])
    odd[columns.split().index("cbid")] = number
    path = sqlite(tmp_path / "prof.nvvp", tables | {name: (columns, [*rows, tuple(odd)])})
    calls = importers.load(path).tables["api"]
    assert any(str(function).endswith("call 4294967295") for function in calls["function"])
