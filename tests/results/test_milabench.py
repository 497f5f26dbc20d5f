# SPDX-License-Identifier: MIT
"""Event streams of milabench as rows."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dnnsuite import results

RATES = (55.0, 100.0, 102.0, 104.0, 900.0)  # the first has the warm-up in it, the last came too soon after another


def stream(name: str = "bert-fp16", device: int | None = 0, **more: Any) -> list[dict[str, Any]]:
    """Events of one process, as milabench writes them."""
    config = {
        "name": name, "run_name": "kolo.2025", "tag": [name, f"D{device}"], "plan": {"method": "per_gpu"},
        "system": {"arch": "cuda"}, "device": device,
    }  # fmt: skip
    if device is None:
        config |= {"plan": {"method": "njobs", "n": 1}, "tag": [name, "0"]}
    meta = {
        "cpu": {"count": 48, "brand": "Xeon"},
        "os": {"nodename": "node1"},
        "accelerators": {"gpus": {"0": {"product": "L40S"}}, "system": {"DRIVER_VERSION": "560"}},
        "milabench": {"commit": "51a09937fe147d"},
        "pytorch": {"torch": "2.6.0+cu126"},
    }
    rates = [{"task": "train", "rate": rate, "units": "items/s"} for rate in more.get("rates", RATES)]
    losses = [{"task": "train", "loss": loss} for loss in more.get("losses", (1.0,))]
    end = {"time": 1060.5, "return_code": more.get("status", 0)}
    return [
        {"event": "config", "data": config, "pipe": None},
        {"event": "meta", "data": meta, "pipe": "data"},
        {"event": "start", "data": {"time": 1000.0, "command": ["voir", "--batch-size", "32"]}, "pipe": None},
        {"event": "line", "data": "hello\n", "pipe": "stdout"},
        *({"event": "data", "data": data, "pipe": "data"} for data in [*losses, *rates]),
        *more.get("extra", ()),
        {"event": "end", "data": end, "pipe": None},
    ]


def write(path: Path, events: list[dict[str, Any]], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(event) for event in events) + end)


def only_row(folder: Path) -> Any:
    loaded = results.load(folder)
    assert len(loaded) == 1
    return loaded.iloc[0]


def test_a_process_is_a_row_with_the_rate_that_milabench_reports(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "kolo.2025" / "bert-fp16.D0.data", stream())
    row = only_row(tmp_path)
    assert (row["job"], row["value"], row["unit"], row["kind"]) == ("bert-fp16", 102.0, "items/s", "milabench")
    assert (row["share"], row["batch_size"], row["hostname"], row["gpus"]) == ("0", 32, "node1", "L40S")
    assert (row["driver"], row["torch"], row["job_version"]) == ("560", "2.6.0+cu126", "51a09937fe14")
    assert (row["started"], row["seconds"]) == ("1970-01-01T00:16:40+00:00", 60.5)
    assert row["status"] == "ok"


def test_processes_of_a_job_are_copies_and_a_job_of_all_devices_has_the_machine(tmp_path: Path) -> None:
    for device in (0, 1):
        write(tmp_path / f"bert-fp16.D{device}.data", stream(device=device))
    write(tmp_path / "ddp.0.data", stream("ddp", None))
    loaded = results.load(tmp_path).set_index(["job", "share"])
    assert loaded["copies"].to_dict() == {("bert-fp16", "0"): 2, ("bert-fp16", "1"): 2, ("ddp", "all"): 1}
    assert {*loaded["run"]} == {"kolo.2025"}


@pytest.mark.parametrize(
    ("more", "failure", "said"),
    [
        ({"losses": (1.0, math.nan)}, "nan", "not a number"),
        ({"status": 1}, "crash", "status 1"),
        ({"rates": ()}, "crash", "no rate"),
        (
            {
                "rates": (),
                "extra": [{"event": "error", "data": {"type": "RuntimeError", "message": "CUDA out of memory"}}],
            },
            "oom",
            "CUDA out of memory",
        ),
        (
            {"rates": (), "extra": [{"event": "error", "data": {"type": "ModuleNotFoundError", "message": "No x"}}]},
            "unavailable",
            "No x",
        ),
    ],
)
def test_failures_have_a_class(tmp_path: Path, more: dict[str, Any], failure: str, said: str) -> None:
    write(tmp_path / "x.D0.data", stream(**more))
    row = only_row(tmp_path)
    assert (row["status"], row["failure"]) == ("failed", failure)
    assert said in row["message"]
    assert math.isnan(row["value"])


def test_a_run_that_was_stopped_early_counts_and_one_that_was_killed_does_not(tmp_path: Path) -> None:
    write(tmp_path / "a.D0.data", stream("a", status=-15, extra=[{"event": "stop", "data": None}]))
    write(tmp_path / "b.D0.data", stream("b")[:-1], end='\n{"event": "da')
    write(tmp_path / "c.data", [{"event": "message", "data": {"message": "Skip c"}, "pipe": None}])
    loaded = results.load(tmp_path).set_index("job")
    assert loaded["failure"].to_dict() == {"a": None, "b": "crash"}
    assert loaded.loc["b", "message"] == "it did not end"


@pytest.mark.parametrize(
    "event",
    [
        {"event": "data", "data": {"task": "train", "rate": -5.0}},
        {"event": "data", "data": {"task": "train", "rate": 1e308}},
        {"event": "data", "data": {"task": "train", "rate": [1]}},
        {"event": "start", "data": {"time": "soon"}},
        {"event": "config", "data": {"run_name": "x"}},
        {"no": "event"},
    ],
)
def test_a_damaged_stream_is_named_and_the_others_are_read(tmp_path: Path, event: dict[str, Any]) -> None:
    write(tmp_path / "good.D0.data", stream())
    write(tmp_path / "damaged.D0.data", [*stream(), event])
    loaded = results.load(tmp_path)
    assert len(loaded) == 1
    assert "damaged.D0.data" in loaded.attrs["problems"][0]


def test_files_of_others_with_that_name_are_passed_by(tmp_path: Path) -> None:
    write(tmp_path / "good.D0.data", stream())
    (tmp_path / "cifar.data").write_bytes(b"\x00\xff" * 99)
    assert results.load(tmp_path).attrs["problems"] == []
