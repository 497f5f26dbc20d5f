# SPDX-License-Identifier: MIT
import torch

from dnnsuite import models


def test_it_predicts_each_next_value_from_those_before():
    model = models.SineLSTM(width=6)
    layers = torch.nn.ModuleList([torch.nn.LSTM(1, 6, batch_first=True), torch.nn.LSTM(6, 6, batch_first=True)])
    for layer, cell in zip(layers, (model.first, model.second), strict=True):
        layer.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    x = torch.randn(3, 7)
    expected = model.linear(layers[1](layers[0](x[..., None])[0])[0])[..., 0]
    torch.testing.assert_close(model(x), expected)


def test_its_parameters():
    cell = 4 * 51 * (1 + 51 + 2), 4 * 51 * (51 + 51 + 2)
    assert sum(p.numel() for p in models.SineLSTM().parameters()) == sum(cell) + 51 + 1 == 32284
