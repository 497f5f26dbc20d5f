# SPDX-License-Identifier: MIT
import torch

from dnnsuite import jobs
from dnnsuite.suites._method import environment, hashes


def test_hashes_tell_experiments_apart_and_not_copies() -> None:
    Job = jobs.get("toy_reg")
    one = hashes(Job, {"batch_size": 4, "seed": 100, "jr_id": 0, "vcd": "0"})
    same = hashes(Job, {"batch_size": 4, "seed": 200, "jr_id": 1, "vcd": "1"})
    other = hashes(Job, {"batch_size": 8, "seed": 100, "jr_id": 0, "vcd": "0"})
    assert one == same
    assert one["source"] == other["source"]
    assert one["job"] != other["job"]


def test_the_environment_says_what_it_ran_on() -> None:
    job = jobs.get("toy_reg")(jobs.JobConfig(batch_size=4))
    about = environment(job, [])
    assert (about["device"], about["threads"], about["precision"]) == ("cpu", torch.get_num_threads(), "fp32")
    assert about["versions"]["torch"] == str(torch.__version__)
