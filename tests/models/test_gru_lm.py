# SPDX-License-Identifier: MIT
import torch

from dnnsuite.models.recurrent import GRULanguageModel


def test_forward_is_embedding_gru_and_projection():
    torch.manual_seed(0)
    model = GRULanguageModel(11, width=4, hidden=6, layers=2, dropout=0.5).eval()
    tokens = torch.randint(11, (5, 3))
    x, state = model.gru(model.embedding.weight[tokens], torch.zeros(2, 3, 6))
    logits, ours = model(tokens, model.first_state(3))
    torch.testing.assert_close(logits, x @ model.head.weight.T + model.head.bias)
    assert torch.equal(ours, state)
    # One segment of five is two of which the second goes on from the first's state.
    first, state = model(tokens[:2], model.first_state(3))
    second, _ = model(tokens[2:], state)
    torch.testing.assert_close(torch.cat([first, second]), logits)


def test_dropout_is_on_both_sides():
    torch.manual_seed(0)
    model = GRULanguageModel(11, width=64, hidden=64, layers=1)
    seen = []
    model.dropout.register_forward_hook(lambda _module, _inputs, out: seen.append((out == 0).float().mean()))
    model(torch.randint(11, (20, 30)), model.first_state(30))
    assert len(seen) == 2
    assert all(0.4 < float(share) < 0.6 for share in seen)


def test_initial_values():
    model = GRULanguageModel(1000, 32, 32)
    for weight in (model.embedding.weight, model.head.weight):
        assert 0.099 < float(weight.detach().abs().max()) <= 0.1
    assert not model.head.bias.any()
