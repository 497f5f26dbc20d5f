# SPDX-License-Identifier: MIT
"""A job that has the machine trains in several processes, which torchrun starts; one of them tells."""

import pytest
import torch


def separately(seed, processes=2, steps=8, batch=4):
    """The sum of the weights after training on the batches of all processes at once."""
    torch.manual_seed(seed)
    line = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(line.parameters(), 0.1)
    generators = [torch.Generator().manual_seed(rank) for rank in range(processes)]
    for _ in range(steps):
        x = torch.cat([torch.randn(batch, 2, generator=generator) for generator in generators])
        optimizer.zero_grad()
        (line(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    return float(line.weight.detach().sum())


def test_two_processes_train_one_model(run_toy, tmp_path):
    finished = run_toy("toy-team", tmp_path / "out", copies="2")
    (run,) = finished.runs
    assert run.ok, (tmp_path / "out/runs/toy-team-r0-d0/stderr.txt").read_text()
    assert run.details["job_metrics"]["processes"] == 2
    assert run.details["provenance"] == {"rank": 0}
    assert run.items_per_step == 8
    assert run.details["job_metrics"]["weight"] == pytest.approx(separately(run.seed), abs=1e-5)
    stdout = (tmp_path / "out/runs/toy-team-r0-d0/stdout.txt").read_text()
    assert stdout.count("Batch Loss") == 4  # told once, not twice


def test_what_goes_wrong_first_is_the_failure(run_toy, tmp_path):
    (run,) = run_toy("toy-team-nan", tmp_path / "out", copies="2").runs
    assert (run.verdict.status, run.verdict.failure) == ("failed", "nan")
    assert not list((tmp_path / "out/runs/toy-team-nan-r0-d0").glob("result*"))


def test_alone_it_is_one_process_whose_place_is_not_that_of_whoever_starts_the_suite(run_toy, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    (run,) = run_toy("toy-team", tmp_path / "out", copies="all").runs
    assert run.details["job_metrics"]["processes"] == 1
    assert run.items_per_step == 4
