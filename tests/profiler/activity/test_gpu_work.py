# SPDX-License-Identifier: MIT
"""The instrument, up to the edge of the hardware; beyond it a double of the session, which needs a GPU."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from dnnsuite import _C, host
from dnnsuite.errors import Error, InvalidArgument, Unavailable
from dnnsuite.profiler import Instrument
from dnnsuite.profiler.activity import (
    ActivityInstrument,
    load_records,
    nvtx_environment,
    utilization,
    variables_for_markers,
)
from dnnsuite.profiler.activity import _gpu_work as module


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def compiled():
    return isinstance(_C.ActivitySession, type)


class Session:
    """A double of _C.ActivitySession: each window gives the rows it was handed."""

    open_ones = 0
    last = None

    def __init__(self, tables):
        self.tables, self.rows, self.losses = tables, [], {"dropped_records": 0}
        self.window_ns, self.closed = (0, 0), False
        Session.open_ones += 1
        Session.last = self

    def start(self):
        self.window_ns = (1000, 1000)

    def stop(self):
        self.window_ns = (1000, 2000)

    def take(self):
        part = _C.decode_activity(b"")
        kernels = part["tables"]["kernels"]
        for column, values in kernels.items():
            kernels[column] = np.zeros(len(self.rows), values.dtype)
        kernels["t0_ns"] += np.array([t0 for t0, _ in self.rows], np.int64)
        kernels["t1_ns"] += np.array([t1 for _, t1 in self.rows], np.int64)
        part["strings"] = ["ampere_sgemm"]
        return part

    def close(self):
        Session.open_ones -= 1


@pytest.fixture
def instrument(monkeypatch):
    if not compiled():
        pytest.skip("dnnsuite was compiled without CUPTI's headers")
    monkeypatch.setattr(module._C, "ActivitySession", Session)
    made = ActivityInstrument()
    made.open()
    yield made
    made.close()
    assert Session.open_ones == 0


@pytest.mark.skipif(has_driver(), reason="this machine has NVIDIA's driver")
def test_without_a_driver_it_says_so_and_holds_nothing():
    instrument = ActivityInstrument()
    for _ in range(2):
        with pytest.raises(Unavailable, match="no NVIDIA driver" if compiled() else "CUPTI's headers") as caught:
            instrument.open()
        assert caught.value.remedy
    with pytest.raises(Error, match="not open"):
        instrument.start()
    instrument.close()
    instrument.close()


def test_kernels_of_graphs_that_name_another_call_are_told(instrument, monkeypatch):
    names = {_C.cupti_function_name(1, number): number for number in range(1, 900)}
    part = _C.decode_activity(b"")
    given = {
        "api": {"correlation": [5, 6], "callback": [names["cudaGraphLaunch"], names["cudaDeviceSynchronize"]]},
        "kernels": {"correlation": [5, 6, 6], "graph_id": [2, 2, 0], "t0_ns": [1100] * 3, "t1_ns": [1200] * 3},
    }
    for table, rows in given.items():
        for name, values in part["tables"][table].items():
            part["tables"][table][name] = np.array(rows.get(name, [1] * len(rows["correlation"])), values.dtype)
    part["strings"] = ["", "ampere_sgemm"]
    monkeypatch.setattr(Session.last, "take", lambda: part)
    instrument.start()
    instrument.stop()
    (note,) = instrument.notes()
    assert note.startswith("1 kernels of CUDA graphs name a call that launched no graph")


@pytest.mark.skipif(has_driver(), reason="this machine has NVIDIA's driver")
def test_the_driver_is_asked_by_name():
    with pytest.raises(Unavailable, match="no NVIDIA driver"):
        _C.require_driver()


def test_a_table_that_there_is_not_is_refused():
    with pytest.raises(InvalidArgument, match="metrics"):
        ActivityInstrument(["kernels", "metrics"])
    with pytest.raises(InvalidArgument, match="kernels"):
        ActivityInstrument([])


def test_windows_become_tables(instrument, tmp_path):
    assert isinstance(instrument, Instrument)
    assert Session.last.tables == ["kernels", "memops", "api", "overhead", "markers", "syncs"]
    for rows in ([(1100, 1200)], [(1300, 1400), (1350, 1500)]):
        Session.last.rows = rows
        instrument.start()
        instrument.step(0)
        instrument.stop()
    tables = instrument.tables()
    assert tables["kernels"]["t0_ns"].tolist() == [1100, 1300, 1350]
    assert tables["kernels"]["class"].tolist() == ["gemm"] * 3
    assert tables["api"].attrs["windows"] == [[1000, 2000]] * 2
    assert utilization(tables["kernels"], instrument.windows)["kernel_ns"].tolist() == [300]
    assert instrument.notes() == []
    instrument.close()
    assert len(instrument.tables()["kernels"]) == 3  # they stay
    instrument.save(tmp_path / "records.npz")
    again = load_records(tmp_path / "records.npz")
    assert again.tables["kernels"].equals(tables["kernels"])
    assert again.windows == instrument.windows


def test_a_window_without_kernels_is_an_error(instrument):
    instrument.start()
    with pytest.raises(Error, match="no kernel was recorded"):
        instrument.stop()
    assert instrument.windows == [(1000, 2000)]


def test_only_what_was_asked_for_must_be_there(monkeypatch, instrument):
    instrument.close()
    graphs = ActivityInstrument(["graphs"])
    graphs.open()
    graphs.start()
    graphs.stop()
    graphs.close()


def test_losses_and_impossible_times_are_said(instrument):
    Session.last.rows = [(1100, 1200), (9_000_000, 9_000_001)]
    Session.last.losses = {"dropped_records": 12, "rejected_buffers": 1}
    instrument.start()
    instrument.stop()
    instrument.close()
    notes = "\n".join(instrument.notes())
    assert "12 records dropped" in notes
    assert "1 buffers refused" in notes
    assert "1 kernels lie outside" in notes


def test_before_a_window_the_tables_are_empty(instrument):
    assert {name: len(table) for name, table in instrument.tables().items()} == dict.fromkeys(
        ["kernels", "memops", "api", "overhead", "markers", "syncs", "graphs"], 0
    )


def test_where_markers_go():
    try:
        path = nvtx_environment()["NVTX_INJECTION64_PATH"]
    except Unavailable as error:
        assert "dnnsuite[counters]" in error.remedy  # noqa: PT017
    else:
        assert path.endswith("libcupti.so.13")


def test_markers_are_listened_to_where_there_is_a_gpu_and_no_other_listener(monkeypatch):
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    monkeypatch.setattr(host, "gpus", list)
    assert variables_for_markers() == {}
    monkeypatch.setattr(host, "gpus", lambda: ["a GPU"])
    try:
        expected = nvtx_environment()
    except Unavailable:
        expected = {}
    assert variables_for_markers() == expected
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/mine.so")
    assert variables_for_markers() == {}


def test_real_buffers_are_walked_by_the_real_library():
    if not compiled():
        pytest.skip("dnnsuite was compiled without CUPTI's headers")
    try:
        name = _C.cupti_function_name(1, 211)
    except Unavailable as error:
        pytest.skip(str(error))
    assert name == "cudaLaunchKernel"
    call = np.zeros(10, np.uint32)  # CUpti_ActivityAPI: kind, cbid, start, end, process, thread, correlation, value
    call[[0, 1, 2, 4, 7, 8]] = 5, 211, 1000, 2000, 77, 3
    found = _C.decode_activity(np.tile(call, 3).tobytes())
    assert found["counts"] == {"records": 3, "incomplete": 0, "unknown": 0, "damaged": 0}
    api = found["tables"]["api"]
    del found
    assert api["t1_ns"].base is not None  # a view of the decoder's memory, which it keeps
    assert api["t1_ns"].tolist() == [2000] * 3
    assert api["thread"].tolist() == [77] * 3
    assert _C.decode_activity(call.tobytes()[:-1])["counts"]["records"] == 0
    call[0] = 0
    assert _C.decode_activity(call.tobytes())["counts"]["damaged"] == 1


def test_importing_it_is_cheap():
    program = "import sys, dnnsuite.profiler.activity as a; print([m for m in ('torch', 'pandas') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


@pytest.mark.gpu
def test_a_window_of_a_real_gpu():
    import torch

    x = torch.randn(512, 512, device="cuda")
    instrument = ActivityInstrument()
    instrument.open()
    try:
        with pytest.raises(Error, match="open in this process"):
            ActivityInstrument().open()
        instrument.start()
        for _ in range(10):
            x = (x @ x).softmax(-1)
        instrument.stop()
    finally:
        instrument.close()
    tables = instrument.tables()
    assert {"gemm", "softmax"} <= {*tables["kernels"]["class"]}
    # At least one a product: a product that is cut along its inner dimension has a second that adds the parts.
    assert (tables["kernels"]["class"] == "gemm").sum() in range(10, 31, 10)
    assert {*tables["kernels"]["correlation"]} <= {*tables["api"]["correlation"]}
    row = utilization(tables["kernels"], instrument.windows, overhead=tables["overhead"]).iloc[0]
    assert 0 < row["raw_pct"] <= 100
    assert instrument.notes() == []
