# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite._shown import shown


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.5, 0.5], "0.5"),
        ([0.1 + 0.2, 1e-8], "[0.3, 1e-08]"),
        (list(range(6)), "[0, 1, 2, 3, 4, 5]"),
        (list(range(64)), "[0, 1, 2, ..., 63]"),
        ([None, (2, 3)], "[None, (2, 3)]"),
        ([], "[]"),
    ],
)
def test_many_values_fit_a_line(values: list[object], text: str) -> None:
    assert shown(values) == text


def test_objects_of_many_models_print_in_a_few_lines() -> None:
    models = [torch.nn.Sequential(torch.nn.Dropout(0.01 * i), torch.nn.Linear(2, 1)) for i in range(32)]
    array = dnnsuite.fuse(models)
    optimizer = optim.Adam(array.parameters(), lr=[0.1 * i for i in range(32)])
    with dnnsuite.StepRunner(array, optimizer, lambda array, x: array(x).mean((1, 2)), threads=1) as runner:
        step = runner.step(dnnsuite.stack(torch.ones(4, 2), B=32))
        step.losses()
        texts = [repr(array), repr(optimizer), repr(runner), repr(step), repr(optim.GradScaler("cpu", B=32))]
    assert "p=[0, 0.01, 0.02, ..., 0.31]" in texts[0]
    assert "lr: [0, 0.1, 0.2, ..., 3.1]" in texts[1]
    assert texts[2].startswith("StepRunner(32 x Sequential, Adam, threads=1")
    assert texts[3] == "SubmittedStep(done)"
    assert texts[4] == "GradScaler(B=32, scale=65536, enabled=True)"
    assert max(len(line) for text in texts for line in text.splitlines()) < 120


def test_hyper_parameters_of_one_value_are_written_once() -> None:
    assert repr(nn.Dropout([0.25] * 9, B=9)) == "Dropout(p=0.25, inplace=False, B=9)"
