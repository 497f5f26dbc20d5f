# SPDX-License-Identifier: MIT
"""From the decoder's columns to tables that can be read."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dnnsuite import _C
from dnnsuite.errors import Error, Unavailable
from dnnsuite.profiler import definitions
from dnnsuite.profiler.activity import TABLES, analyse, load_records
from dnnsuite.profiler.activity.tables import join_columns, save_records, tables_of


def decoded(**rows):
    """Columns as the decoder gives them, with `rows` of some tables: {table: {column: values}}; other columns are 0."""
    try:
        empty = _C.decode_activity(b"")
    except Unavailable as error:
        pytest.skip(str(error))
    for table, columns in rows.items():
        count = len(next(iter(columns.values())))
        arrays = empty["tables"][table]
        for column, old in arrays.items():
            arrays[column] = np.array(columns.get(column, [0] * count), old.dtype)
    return empty


def made(part):
    return tables_of(part["tables"], part["strings"], lambda domain, number: f"f{domain}.{number}")


def test_empty_tables_have_all_columns_each_defined():
    found = made(decoded())
    assert {*found} == {*TABLES}
    for table in found.values():
        assert len(table) == 0
        assert definitions(table).keys() == {*table.columns}
        assert {"t0_ns", "t1_ns"} <= {*table.columns}
        assert table["t0_ns"].dtype == np.int64


def test_names_classes_and_order():
    part = decoded(kernels={"t0_ns": [5, 3, 4], "t1_ns": [6, 4, 5], "name": [1, -1, 0]})
    part["strings"] = ["ampere_sgemm", "softmax"]
    kernels = made(part)["kernels"]
    assert kernels["t0_ns"].tolist() == [3, 4, 5]
    assert kernels["name"].astype(object).fillna("-").tolist() == ["-", "ampere_sgemm", "softmax"]
    assert kernels["class"].tolist() == ["other", "gemm", "softmax"]


def test_two_manglings_of_one_name_are_one():
    part = decoded(kernels={"t0_ns": [1, 2], "t1_ns": [2, 3], "name": [0, 1]})
    part["strings"] = ["same", "same"]
    assert made(part)["kernels"]["name"].nunique() == 1


def test_numbers_become_words_and_new_ones_stay_numbers():
    found = made(
        decoded(
            memops={"t0_ns": [1, 2, 3], "operation": [1, 255, 77], "source_memory": [2, 0, 0]},
            overhead={"t0_ns": [1], "kind": [5 << 16]},
            syncs={"t0_ns": [1], "kind": [3]},
            api={"t0_ns": [1, 2], "domain": [1, 0], "callback": [211, 307]},
        )
    )
    assert found["memops"]["operation"].tolist() == ["HtoD", "memset", "number 77"]
    assert found["memops"]["source_memory"].tolist() == ["pinned", "unknown", "unknown"]
    assert found["overhead"]["kind"].tolist() == ["lazy function loading"]
    assert found["syncs"]["kind"].tolist() == ["stream synchronize"]
    assert found["api"]["domain"].tolist() == ["runtime", "driver"]
    assert found["api"]["function"].tolist() == ["f1.211", "f0.307"]


def test_a_call_without_a_name_says_its_number():
    part = decoded(api={"t0_ns": [1], "domain": [1], "callback": [9999]})
    table = tables_of(part["tables"], part["strings"], lambda domain, number: "")["api"]
    assert table["function"].tolist() == ["runtime call 9999"]


def test_markers_become_ranges():
    part = decoded(
        markers={
            "t_ns": [10, 12, 15, 20, 30, 40],
            "event": [2, 2, 1, 4, 4, 2],  # begin 1, begin 2, a mark, end 2, end 1, a begin without an end
            "id": [1, 2, 3, 2, 1, 4],
            "thread": [8, 8, 9, 0, 0, 8],
            "name": [0, 1, 1, -1, -1, 0],
            "domain": [2, 2, 2, -1, -1, 2],
        },
        marker_data={"id": [2], "category": [4], "payload": [17.0]},
    )
    part["strings"] = ["step", "forward", "dnnsuite"]
    markers = made(part)["markers"]
    assert markers[["t0_ns", "t1_ns"]].to_numpy().tolist() == [[10, 30], [12, 20], [15, 15]]
    assert markers["name"].tolist() == ["step", "forward", "forward"]
    assert markers["domain"].tolist() == ["dnnsuite"] * 3
    assert markers["payload"].fillna(-1).tolist() == [-1, 17, -1]
    assert markers["thread"].tolist() == [8, 8, 9]


def test_several_windows_are_joined():
    first = decoded(kernels={"t0_ns": [1, 2], "t1_ns": [2, 3], "name": [0, -1]})
    first["strings"] = ["a"]
    second = decoded(kernels={"t0_ns": [9], "t1_ns": [10], "name": [0]})
    second["strings"] = ["b"]
    columns, strings = join_columns([first, second])
    kernels = tables_of(columns, strings, str)["kernels"]
    assert kernels["name"].astype(object).fillna("-").tolist() == ["a", "-", "b"]
    assert join_columns([first])[0] is first["tables"]


RECORDED = sorted(Path(__file__).parent.glob("recorded/*.npz"))  # made by benchmarks/gpu/record_activity.py


def part(begin):
    try:
        made = _C.decode_activity(b"")
    except Unavailable as error:
        pytest.skip(str(error))
    for table, values in (
        ("kernels", {"t0_ns": [begin, begin + 20], "t1_ns": [begin + 15, begin + 40], "name": [0, -1]}),
        ("api", {"t0_ns": [begin - 9], "t1_ns": [begin - 5], "domain": [1], "callback": [211], "thread": [3]}),
    ):
        arrays = made["tables"][table]
        rows = len(next(iter(values.values())))
        for column, old in arrays.items():
            arrays[column] = np.array(values.get(column, [0] * rows), old.dtype)
    made["strings"] = ["ampere_sgemm"]
    return made


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "records.npz"
    save_records(path, [part(100), part(1000)], [(0, 500), (900, 1500)], {(1, 211): "cudaLaunchKernel"})
    return path


def test_what_is_saved_is_loaded(file):
    tables, windows = load_records(file)
    assert tuple(tables) == TABLES
    assert windows == [(0, 500), (900, 1500)]
    assert tables["kernels"]["t0_ns"].tolist() == [100, 120, 1000, 1020]
    assert tables["kernels"]["class"].tolist() == ["gemm", "other", "gemm", "other"]
    assert tables["api"]["function"].tolist() == ["cudaLaunchKernel"] * 2
    assert analyse(tables, windows)["gpu"]["kernel_ns"].tolist() == [70]
    assert [path.name for path in file.parent.iterdir()] == ["records.npz"]


def test_a_file_that_is_cut_or_changed_is_refused_by_name(file):
    whole = file.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        file.write_bytes(whole[:length])
        with pytest.raises(Error, match=r"records\.npz"):
            load_records(file)
    random = np.random.default_rng(0)
    for _ in range(40):  # refused, or the byte meant nothing: never another exception
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] ^= 0xFF
        file.write_bytes(damaged)
        try:
            load_records(file)
        except Error as error:
            assert "records.npz" in str(error)  # noqa: PT017
    with pytest.raises(Error, match="absent"):
        load_records(file.with_name("absent.npz"))


def test_a_later_format_is_refused(file, tmp_path):
    with np.load(file) as old:
        arrays = {**old}
    arrays["about"] = np.array(str(arrays["about"]).replace('"format": 1', '"format": 9'))
    np.savez(tmp_path / "later.npz", **arrays)
    with pytest.raises(Error, match="format 9"):
        load_records(tmp_path / "later.npz")


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_a_gpu_recorded(path):
    tables, windows = load_records(path)
    kernels, api = tables["kernels"], tables["api"]
    assert {"conv", "gemm", "norm", "optimizer"} <= {*kernels["class"]}
    assert {*kernels["correlation"]} <= {*api["correlation"]}
    assert kernels["t0_ns"].between(windows[0][0], windows[-1][1]).all()
    gpu = analyse(tables, windows)["gpu"].iloc[0]
    assert 0 < gpu["kernel_ns"] <= gpu["kernel_sum_ns"]
    assert gpu["kernel_ns"] + gpu["idle_ns"] <= gpu["window_ns"]
    assert 0 <= gpu["host_ns"] <= gpu["idle_ns"]
    launched = kernels.merge(api[["correlation", "t0_ns"]], on="correlation", suffixes=("", "_call"))
    assert (launched["t0_ns"] >= launched["t0_ns_call"]).all()
    assert not pd.isna(gpu["compute_pct"])
