# SPDX-License-Identifier: MIT
import torch

from dnnsuite.training.experiment import TopK


def test_counts_of_a_case_by_hand():
    outputs = torch.tensor([[3.0, 2, 1, 0], [0, 3, 2, 1], [1, 0, 2, 3]])
    labels = torch.tensor([0, 2, 1])
    assert TopK((1, 2, 3))(outputs, labels).tolist() == [1, 2, 2]


def test_fewer_classes_than_k_and_models_in_front():
    outputs = torch.randn(3, 7, 4)  # three models, seven samples
    labels = torch.randint(4, (7,))
    counts = TopK((1, 5))(outputs, labels)
    assert counts.shape == (2, 3)
    assert counts[1].tolist() == [7, 7, 7]
    assert counts[0].tolist() == [(each.argmax(1) == labels).sum().item() for each in outputs]
