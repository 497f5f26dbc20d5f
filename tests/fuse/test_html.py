# SPDX-License-Identifier: MIT
"""Tables of arrays and their coverage in a notebook."""

import torch

import dnnsuite
from dnnsuite._fuse.coverage import Cover, Coverage


def test_a_notebook_shows_the_array_and_the_way_each_part_runs():
    array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()) for _ in range(4)])
    shown = array._repr_html_()
    assert "array of 4 models Sequential: 8 parameters each, 0.0 MB in all on cpu" in shown
    assert "<p>1 fused, 1 elementwise</p>" in shown
    assert "<td>0</td><td>Linear</td><td>fused</td>" in shown
    assert array.coverage()._repr_html_() in shown


def test_reasons_are_escaped():
    rows = Coverage([Cover("net.0", "Odd", "per model", "rows < columns", 0.0012)])
    assert "<td>per model</td><td>rows &lt; columns</td><td>1.2</td>" in rows._repr_html_()


def test_a_long_table_ends():
    array = dnnsuite.fuse([torch.nn.Sequential(*[torch.nn.ReLU() for _ in range(70)]) for _ in range(2)])
    assert "and 10 more" in array._repr_html_()
    assert array._repr_html_().count("<tr>") == 61
