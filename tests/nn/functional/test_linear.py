# SPDX-License-Identifier: MIT
import torch

from dnnsuite.nn import functional


def test_linear_and_its_activation():
    x, weight, bias = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5)
    for model in range(2):
        plain = torch.nn.functional.linear(x[model], weight[model], bias[model])
        torch.testing.assert_close(functional.linear(x, weight, bias)[model], plain)
        torch.testing.assert_close(functional.linear(x, weight, bias, activation="relu")[model], plain.relu())


def test_class_probabilities_and_weights():
    x, weight, classes = torch.randn(2, 9, 4), torch.randn(2, 5, 4), torch.rand(2, 5)
    logits = functional.linear(x, weight)
    for target in (torch.randint(5, (2, 9)), torch.rand(2, 9, 5).softmax(-1)):
        got = functional.linear_cross_entropy(x, weight, target, weight=classes)
        torch.testing.assert_close(got, functional.cross_entropy(logits, target, classes))
