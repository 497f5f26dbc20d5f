# SPDX-License-Identifier: MIT
"""Commands, code and numbers of the pages about training runs."""

import json
import re
import shlex
from pathlib import Path

import pytest

from command_line import status
from dnnsuite.training import SHIPPED, configurations
from dnnsuite.training.figures import REFERENCE

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = {name: (DOCS / name).read_text() for name in ("measure/training.md", "reproduce/sc20.md")}


def commands():
    for text in PAGES.values():
        for found in re.findall(r"dnnsuite train[^`\n#]*", text):
            words = shlex.split(found.replace("...", ""))[2:]
            if not {"my.yaml", "FILE.yaml", "FILE", "my_job"} & {*words}:  # which a reader writes
                yield words


@pytest.mark.parametrize("words", [*commands()], ids=" ".join)
def test_commands_are_understood(words, capsys):
    for option in ("--cluster", "--nodes", "--gpus-per-node", "--dataroot", "--resume"):
        if option in words:  # looked at only when something is trained
            place = words.index(option)
            words = words[:place] + words[place + 2 :]
    assert status("train", *words, *([] if "--list" in words else ["--show"])) == 0, capsys.readouterr().err


def test_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGES["measure/training.md"], re.S)
    exec(compile(code, "training.md", "exec"), {})
    assert (tmp_path / "three/models/2/checkpoint.pt").is_file()


def test_worked_numbers_are_those_that_are_drawn():
    curves = json.loads(REFERENCE.read_text())
    rows = re.findall(r"^\| `(bs\S+)` \| \d+ \| (\d+) \| (\.\d+) \| ([\d.]+) \|", PAGES["reproduce/sc20.md"], re.M)
    assert {row[0] for row in rows} == curves.keys()
    for name, epochs, best, seconds in rows:
        assert len(curves[name]["acc1/valid"]) == int(epochs)
        assert max(curves[name]["acc1/valid"]) == pytest.approx(float(best), abs=1e-4)
        assert curves[name]["seconds_per_epoch"] == pytest.approx(float(seconds), abs=0.005)


def test_names_are_those_of_the_configurations():
    known = configurations(SHIPPED)
    for name in re.findall(r"--config[ =](bs[\w-]+)", " ".join(PAGES.values())):
        assert name in known
