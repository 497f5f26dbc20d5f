# SPDX-License-Identifier: MIT
"""Records in a file; and what real GPUs have recorded, where such files are."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dnnsuite import _C
from dnnsuite.errors import Error, Unavailable
from dnnsuite.profiler.activity import TABLES, analyse, load_records
from dnnsuite.profiler.activity._recording import save_records

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
