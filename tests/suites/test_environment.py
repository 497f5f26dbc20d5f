# SPDX-License-Identifier: MIT
import torch

from dnnsuite import jobs
from dnnsuite.suites._environment import Pressure, hashes, process


def test_hashes_tell_experiments_apart_and_not_copies() -> None:
    Job = jobs.get("toy_reg")
    one = hashes(Job, {"batch_size": 4, "seed": 100, "jr_id": 0, "vcd": "0"})
    same = hashes(Job, {"batch_size": 4, "seed": 200, "jr_id": 1, "vcd": "1"})
    other = hashes(Job, {"batch_size": 8, "seed": 100, "jr_id": 0, "vcd": "0"})
    assert one == same
    assert one["source"] == other["source"]
    assert one["job"] != other["job"]


def test_the_process_says_what_it_ran_on() -> None:
    job = jobs.get("toy_reg")(jobs.JobConfig(batch_size=4))
    spec = {"device_uuids": [], "config": {"precision": "fp32"}, "memory_limit_bytes": None}
    about = process(spec, job)
    assert (about["device"], about["threads"], about["precision"]) == ("cpu", torch.get_num_threads(), "fp32")
    assert about["peak_rss_bytes"] > 1 << 20


def test_pressure_is_counted_from_its_making(monkeypatch) -> None:
    pressure = Pressure()
    calm = iter(
        [
            (
                pressure._before[0] + 10.0,
                pressure._before[1] + 50,
                1,
                pressure._before[3],
                pressure._before[4] + 100,
            )
        ]
    )
    monkeypatch.setattr(pressure, "_now", lambda: next(calm))
    found = pressure.read()
    assert found["flags"] == []
    assert found["involuntary_switches_per_thread_s"] == 5.0
    rough = iter(
        [
            (
                pressure._before[0] + 1.0,
                pressure._before[1] + 500,
                1,
                pressure._before[3] + 30,
                pressure._before[4] + 100,
            )
        ]
    )
    monkeypatch.setattr(pressure, "_now", lambda: next(rough))
    found = pressure.read()
    assert found["stolen_pct"] == 30.0
    assert [flag.split(":")[0] for flag in found["flags"]] == ["contaminated", "contaminated"]
