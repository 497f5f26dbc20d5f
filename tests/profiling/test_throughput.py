# SPDX-License-Identifier: MIT
"""Throughput over batch sizes: a process each, a row each, also for what fails; what is there is not made again."""

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dnnsuite import jobs, results
from dnnsuite._runs.interrupts import Interrupted
from dnnsuite._runs.rates import Steps
from dnnsuite._runs.reading import read_runs
from dnnsuite._runs.record import Device, Machine, Moment, RunRecord, Verdict
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiling.throughput import log_lines, measure
from dnnsuite.profiling.throughput_request import Request

HUNGRY = """
from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs.first_workloads import *

@jobs.register("hungry_throughput")
class Hungry(jobs.get("toy_reg")):
    def step(self):
        if self.config.batch_size > 4:
            raise MemoryError("out of memory")
        if self.config.batch_size == 1:
            raise InvalidArgument("one sample has no two parts")
        super().step()
"""


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """What others do on the machine of the tests is not seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNNSUITE_NEIGHBOURS", "ignore")
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Request, Path, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("throughput")
    (folder / "hungry_throughput.py").write_text(HUNGRY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        request = Request(
            "hungry_throughput",
            (2, 4, 8),
            stop_iteration=30,
            start_iteration=10,
            plugins=("hungry_throughput",),
            threads=1,
        ).checked()
        return request, folder / "out", measure(request, folder / "out", quiet=True)


def test_each_size_is_a_row_and_one_without_memory_too(measured: tuple[Request, Path, pd.DataFrame]) -> None:
    _, out, table = measured
    assert table["batch_size"].tolist() == [2, 4, 8]
    assert table["status"].tolist() == ["ok", "ok", "oom"]
    assert table["message"].iloc[2] == "out of memory"
    assert table["rate_low"].iloc[:2].isna().all()  # two turns after warm-up are too few for an interval
    assert (table["peak_memory_bytes"].iloc[:2] > 50e6).all()
    assert pd.read_csv(out / "throughput.csv")["status"].tolist() == table["status"].tolist()
    assert not list(out.rglob(".tmp-*"))


def test_the_rate_is_items_over_the_time_of_the_iterations_that_count(
    measured: tuple[Request, Path, pd.DataFrame],
) -> None:
    _, out, table = measured
    samples = pd.read_csv(out / "runs" / "batch_4-r0" / "samples.csv")
    assert len(samples) == 30
    kept = samples[samples["phase"] == "train"]
    assert kept["i"].tolist() == list(range(10, 30))
    blocks = kept.groupby("epoch")  # others have their turns between them
    seconds = float((blocks["t_stop_ns"].last() - blocks["t_start_ns"].first()).sum()) * 1e-9
    assert table["rate"].iloc[1] == pytest.approx(4 * 20 / seconds)
    assert table["ms_per_step"].iloc[1] == pytest.approx(1e3 * seconds / 20)


def test_logs_have_the_lines_of_both_originals(measured: tuple[Request, Path, pd.DataFrame]) -> None:
    _, out, table = measured
    log = (out / "throughput_data" / "batch_4.log").read_text()
    history = re.findall(
        r"^TimeHistory: (\S+) seconds, (\S+) examples/second between steps (\d+) and (\d+)$", log, re.M
    )
    assert [int(first) for *_, first, _ in history] == list(range(0, 30, 3))
    assert history[-1][3] == "30"
    (last,) = re.findall(r"^Epoch: \[0\]\[30/30\]\tTime .*Batch throughput .*\((\S+)\) samples/s$", log, re.M)
    assert float(last) == pytest.approx(table["rate"].iloc[1], rel=0.02)  # between steps there is a loop
    assert (out / "throughput_data" / "batch_8.log").read_text() == "oom: out of memory\n"


def test_records_are_those_that_every_reader_takes(measured: tuple[Request, Path, pd.DataFrame]) -> None:
    request, out, _ = measured
    table = results.load(out)
    assert set(table["kind"]) == {"throughput"}
    assert set(table["batch_size"]) == {2, 4, 8}
    (run, *_) = read_runs(out / "runs")[0]
    assert run.record.asked == request.to_dict()
    assert run.record.plan_id == json.loads((out / "throughput.json").read_text())["id"]
    assert run.record.data != "unknown"


def test_what_is_there_is_not_made_again_and_a_size_that_cannot_run_is_tried_once(
    measured: tuple[Request, Path, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, made, table = measured
    monkeypatch.chdir(made.parent)
    out = tmp_path / "out"
    shutil.copytree(made, out)
    (out / "throughput_data" / "batch_2.log").unlink()  # as a kill between two files leaves it
    kept = (out / "runs" / "batch_4-r0" / "run.json").stat().st_mtime_ns
    more = dataclasses.replace(request, batch_sizes=(1, 4, 8), repeats=2)
    again = measure(more, out, resume=True, quiet=True)
    assert (out / "runs" / "batch_4-r0" / "run.json").stat().st_mtime_ns == kept
    assert (out / "throughput_data" / "batch_2.log").is_file()
    names = sorted(path.name for path in (out / "runs").iterdir())
    assert names == ["batch_1-r0", "batch_2-r0", "batch_4-r0", "batch_4-r1", "batch_8-r0"]
    assert tuple(again[["status", "message"]].iloc[0]) == ("refused", "one sample has no two parts")
    assert again["rate"].iloc[1] == table["rate"].iloc[0]
    four = again.set_index("batch_size").loc[4]
    assert four["runs"] == 2
    assert four["rate_low"] < four["rate"] < four["rate_high"]
    with pytest.raises(InvalidArgument, match=r"made with other settings: seed is 9, was 0"):
        measure(dataclasses.replace(request, seed=9), out, resume=True, quiet=True)
    with pytest.raises(InvalidArgument, match="is not empty"):
        measure(request, out, quiet=True)
    monkeypatch.setattr(jobs.get("hungry_throughput"), "step", lambda self: None)
    with pytest.raises(InvalidArgument, match="--allow-changed code"):
        measure(more, out, resume=True, quiet=True)
    assert len(measure(more, out, resume=True, quiet=True, allow_changed=["code"])) == 4
    assert "code" in json.loads((out / "throughput.json").read_text())["changed"]


def test_until_the_rate_is_known(tmp_path: Path) -> None:
    request = Request("toy_reg", (16,), preset="quick", target=0.5, budget_s=60.0, repeats=1, threads=1).checked()
    table = measure(request, tmp_path / "out", quiet=True)
    assert table["status"].tolist() == ["ok"]
    (run,) = read_runs(tmp_path / "out" / "runs")[0]
    assert run.record.preset == "quick"
    assert run.record.window["dropped"] == 0  # it had warmed up before
    assert run.record.window["kept"] >= 8


def test_ctrl_c_leaves_no_half_run(
    measured: tuple[Request, Path, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = measured
    (out.parent / "sleepy_throughput.py").write_text(
        HUNGRY.replace("hungry_throughput", "sleepy_throughput").replace(
            'raise MemoryError("out of memory")',
            "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(60)",
        )
    )
    monkeypatch.chdir(out.parent)
    asked = Request("sleepy_throughput", (8,), stop_iteration=4, plugins=("sleepy_throughput",), threads=1, seed=1)
    with pytest.raises(Interrupted):
        measure(asked.checked(), tmp_path / "out", quiet=True)
    assert not list((tmp_path / "out" / "runs").iterdir())
    state = json.loads((tmp_path / "out" / "throughput.json").read_text())
    assert state["status"].startswith("interrupted by")


def record(dropped: int) -> RunRecord:
    return RunRecord(
        "a" * 32, "throughput", "b" * 32, "throughput of toy", "toy", "serial", "fp32", 1, 0, Verdict.good(), Machine(),
        Device("cpu"), Moment.now(), "images", batch_size=32, items_per_step=32.0, window={"dropped": dropped},
    )  # fmt: skip


def steps(*seconds: float, number: int = 1) -> Steps:
    stops = np.cumsum([round(each * 1e9) for each in seconds])
    starts = np.concatenate([[0], stops[:-1]])
    return Steps(starts, stops, np.full(len(stops), 32 * number), np.zeros(len(stops), np.int64))


def test_the_mean_is_items_over_time_and_not_the_mean_of_rates() -> None:
    """Steps of .1 .1 .4 s at batch 32: 160 samples/s, where the original's mean of rates says 240."""
    (line,) = [line for line in log_lines(steps(0.1, 0.1, 0.4), record(0)) if line.startswith("Epoch")]
    assert line == "Epoch: [0][3/3]\tTime  0.400 ( 0.200)\tBatch throughput 80.000 (160.000) samples/s"


def test_warm_up_is_in_the_history_and_not_in_the_mean() -> None:
    lines = list(log_lines(steps(5.0, 0.1, 0.1), record(1)))
    assert lines[0] == "TimeHistory: 5.00 seconds, 6.40 examples/second between steps 0 and 1"
    assert "( 0.100)" in next(line for line in lines if line.startswith("Epoch"))


@pytest.mark.parametrize(("number", "count"), [(1, 1000), (10, 100), (7, 30)])
def test_windows_are_a_hundred_iterations_and_leave_none_out(number: int, count: int) -> None:
    lines = "\n".join(log_lines(steps(*[0.01] * count, number=number), record(0)))
    edges = [(int(a), int(b)) for a, b in re.findall(r"steps (\d+) and (\d+)", lines)]
    assert edges[0][0] == 0
    assert edges[-1][1] == number * count
    assert all(before[1] == after[0] for before, after in pairwise(edges))
    if number * count == 1000:
        assert edges == [(i, i + 100) for i in range(0, 1000, 100)]
        assert lines.count("Epoch: ") == 100
