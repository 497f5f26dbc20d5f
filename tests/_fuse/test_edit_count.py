# SPDX-License-Identifier: MIT
"""Edits in place are counted, others are not."""

import torch

import dnnsuite
from dnnsuite._fuse import EditsInPlace


def test_only_edits_in_place_are_counted():
    array = dnnsuite.fuse([torch.nn.Linear(3, 2) for _ in range(3)])
    before = EditsInPlace.count
    array.replace(1, torch.nn.Linear(3, 2))
    assert EditsInPlace.count == before + 1
    array.clone(0, into=2)
    assert EditsInPlace.count == before + 2
    array.drop(0)
    array.append(torch.nn.Linear(3, 2))
    assert EditsInPlace.count == before + 2


def test_a_model_that_differs_in_more_than_tensors_is_not_written_in_place():
    array = dnnsuite.fuse([torch.nn.BatchNorm1d(2, momentum=0.2) for _ in range(2)])
    before = EditsInPlace.count
    array.replace(1, torch.nn.BatchNorm1d(2, momentum=0.5))
    assert EditsInPlace.count == before
    array.replace(1, torch.nn.BatchNorm1d(2, momentum=0.5))
    assert EditsInPlace.count == before + 1


def test_another_rate_of_dropout_is_written_in_place_and_used():
    array = dnnsuite.fuse([torch.nn.Dropout(0.0) for _ in range(2)])
    before, x = EditsInPlace.count, torch.ones(2, 1000)
    assert torch.equal(array(x), x)
    array.replace(1, torch.nn.Dropout(0.5))
    assert EditsInPlace.count == before + 1
    assert array[1].p == 0.5
    kept = array(x).count_nonzero(1)
    assert kept[0] == 1000
    assert 400 < kept[1] < 600
