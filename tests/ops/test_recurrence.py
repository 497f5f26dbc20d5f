# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument


def test_refuses():
    gates, weight = torch.randn(2, 5, 3, 16), torch.randn(2, 16, 4)
    with pytest.raises(InvalidArgument, match="kind must be one of lstm, gru"):
        ops.recurrence(gates, weight, kind="rnn")
    with pytest.raises(InvalidArgument, match=r"gates must be \[B, T, N, 16\]"):
        ops.recurrence(gates[..., :4], weight, kind="lstm")
    with pytest.raises(InvalidArgument, match="one or more steps"):
        ops.recurrence(gates[:, :0], weight, kind="lstm")
