# SPDX-License-Identifier: MIT
"""The example of a user's workload, through the command."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from dnnsuite import jobs
from dnnsuite.cli.app import main

ROOT = Path(__file__).parents[3]


def test_a_users_workload_runs_whole(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT / "examples")
    with pytest.raises(SystemExit) as ended:
        main([
            "workflow", "spirals", "--plugin", "spirals", "--device", "cpu", "--plan", "2", "--epochs", "2",
            "--iters-per-epoch", "4", "--repeats", "1", "--option", "width=16",
            "--modes", "serial,hfta", "--out", str(tmp_path / "out"), "--json",
        ])  # fmt: skip
    assert ended.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert said["settings"]["options"] == {"width": 16}
    assert said["equality"]["fp32"]["passed"]
    assert {(row["mode"], row.get("B")) for row in said["rows"]} >= {("serial", 1), ("hfta", 2)}
    records = [json.loads(path.read_text()) for path in (tmp_path / "out" / "runs").glob("*/run.json")]
    assert len(records) == 2
    for record in records:
        rates = {metric["name"]: metric["value"] for metric in record["metrics"] if metric["replica"] is None}
        assert rates["throughput"] > 0
        assert rates["throughput/data on device"] > 0


def test_the_example_is_short():
    assert len((ROOT / "examples/spirals.py").read_text().splitlines()) <= 50


def test_the_page_on_a_job_of_your_own_says_what_happens():
    """Its declaration is run, and what it prints is what it says: equality, and a sweep of three."""
    page = (ROOT / "docs/measure/own_job.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "docs/measure/own_job.md", "exec"), {"__name__": "my_module"})
    assert said.getvalue() == "True\n3\n"
    assert jobs.get("sums", swept=True).unit == "rows"


PLAIN_JOB = '''
import torch
from dnnsuite.jobs import Job, register


@register("my-line")
class Line(Job):
    """A line through points."""

    description, unit = "a line", "points"
    defaults = {"batch_size": 8, "repeat": 2, "number": 1}

    def setup(self):
        torch.manual_seed(self.config.seed)
        self.line = torch.nn.Linear(2, 1)

    def step(self):
        x = torch.randn(self.config.batch_size, 2)
        self.loss = (self.line(x) - x.sum(1, keepdim=True)).square().mean()
        self.line.zero_grad()
        self.loss.backward()
        for parameter in self.line.parameters():  # an optimizer of torch's would import its compiler
            parameter.data -= 0.1 * parameter.grad

    def losses(self):
        return [float(self.loss)]

    def weights(self):
        return list(self.line.parameters())

    def synchronize(self):
        pass

    def provenance(self):
        return {"data": "drawn"}
'''


def test_a_plain_job_of_a_file_in_the_working_directory_runs_as_a_suite(monkeypatch, tmp_path, capsys):
    (tmp_path / "my_line.py").write_text(PLAIN_JOB)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["run", "my-line", "--plugin", "my_line", "--device", "cpu", "--repeat", "1", "--out", "out", "--quiet"])
    assert ended.value.code == 0, capsys.readouterr()
    records = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("**/run.json")]
    assert records
    assert {(record["job"], record["verdict"]["failure"], record["data"]) for record in records} == {
        ("my-line", None, "drawn")
    }
    assert all(metric["value"] > 0 for record in records for metric in record["metrics"]
               if metric["name"] == "throughput")  # fmt: skip
