# SPDX-License-Identifier: MIT
"""Lines of the log in the forms of the originals."""

import itertools
import re

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.training.lines import Log, accuracies
from dnnsuite.training.loop import Loop
from dnnsuite.training.processes import Processes
from tiny_training import experiment

METER = r"\s*([\d.]+) \(\s*([\d.]+)\)"
TRAIN = re.compile(
    rf"^Epoch: \[(\d)\]\[(\d)/6\]\tTime{METER}\tBatch throughput{METER} samples/s\tData{METER}"
    r"\tLoss ([\d.e+-]+) \(([\d.e+-]+)\)" + rf"\tAcc@1{METER}\tAcc@5{METER}$",
    re.M,
)
TEST = re.compile(
    rf"^Test: \[(\d)/3\]\tTime{METER}\tLoss ([\d.e+-]+) \(([\d.e+-]+)\)\tAcc@1{METER}\tAcc@5{METER}$", re.M
)


def run(folder, lines):
    loop = Loop(experiment(lines=lines), Processes("cpu"), folder, Log(folder))
    loop.run()
    return loop, (folder / "train.log").read_text()


def test_tbds_pytorch_version(tmp_path):
    loop, text = run(tmp_path, "tbd-pytorch")
    found = TRAIN.findall(text)
    assert [each[:2] for each in found] == [(e, i) for e in "01" for i in "0245"]
    for epoch in range(2):
        last, row = found[4 * epoch + 3], loop.at.history[epoch]
        assert float(last[9]) == pytest.approx(row["loss/train"], rel=1e-3)  # the epoch's, so far: of all batches
        assert float(last[11]) == pytest.approx(100 * row["acc1/train"], abs=0.01)
    assert [each[0] for each in TEST.findall(text)] == list("02") * 2
    ends = re.findall(r"^ \* Acc@1 ([\d.]+) Acc@5 ([\d.]+)$", text, re.M)
    assert [float(each[0]) for each in ends] == pytest.approx(
        [100 * row["acc1/valid"] for row in loop.at.history], abs=1e-3
    )


def test_tbds_tensorflow_version(tmp_path):
    _, text = run(tmp_path, "tbd-tf2")
    found = re.findall(
        r"^TimeHistory: [\d.]+ seconds, [\d.]+ examples/second between steps (\d+) and (\d+)$", text, re.M
    )
    ends = [0, 1, 3, 5, 6, 7, 9, 11, 12]
    assert [tuple(map(int, each)) for each in found] == list(itertools.pairwise(ends))


def test_what_is_no_form():
    with pytest.raises(InvalidArgument, match="lines 'plain'; accepted: job, sc20, tbd-pytorch, tbd-tf2"):
        experiment(lines="plain")


def test_without_accuracy_the_loss_is_told():
    assert accuracies({"loss": 0.25}) == " * Loss 2.5000e-01"
    assert accuracies({"loss": 0.25, "acc1": 0.7613, "acc5": 0.92862}) == " * Acc@1 76.130 Acc@5 92.862"
