# SPDX-License-Identifier: MIT
"""A small task that every test of sweeps trains on."""

from typing import Any, NamedTuple

import pytest
import torch


class Task(NamedTuple):
    """Points of two classes: training and held-out."""

    train: tuple[torch.Tensor, torch.Tensor]
    valid: tuple[torch.Tensor, torch.Tensor]

    def loader(self, batch_size: int = 16) -> Any:
        data = torch.utils.data.TensorDataset(*self.train)
        return torch.utils.data.DataLoader(data, batch_size, shuffle=True)


@pytest.fixture(scope="session")
def task() -> Task:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(96, 4, generator=generator)
    y = (x[:, 0] * x[:, 1] > 0).long()
    return Task((x[:56], y[:56]), (x[56:], y[56:]))


@pytest.fixture(autouse=True)
def one_thread():
    """One thread, so that tests do not wait for each other's."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
