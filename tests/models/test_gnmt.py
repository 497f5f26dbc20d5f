# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.models.recurrent import GNMT, BahdanauAttention, label_smoothing_loss


def test_attention_by_hand():
    torch.manual_seed(0)
    attention = BahdanauAttention(4)
    with torch.no_grad():
        attention.bias.normal_()
    queries, keys, lengths = torch.randn(3, 2, 4), torch.randn(5, 2, 4), torch.tensor([5, 2])
    found = attention(queries, keys, lengths)
    direction = attention.vector / attention.vector.norm()
    for n in range(2):
        for t in range(3):
            scores = []
            for s in range(int(lengths[n])):
                inner = attention.query(queries[t, n]) + attention.key(keys[s, n]) + attention.bias
                scores.append(attention.scale[0] * (direction @ torch.tanh(inner)))
            weights = torch.stack(scores).softmax(0)
            torch.testing.assert_close(found[t, n], weights @ keys[: int(lengths[n]), n])


def test_layers_by_hand():
    torch.manual_seed(0)
    model = GNMT(13, hidden=6, layers=4).eval()
    source, lengths, target = torch.randint(1, 13, (5, 2)), torch.tensor([5, 5]), torch.randint(1, 13, (4, 2))
    x = model.encoder[0](model.embedding(source))[0]
    x = model.encoder[1](x)[0]
    x = model.encoder[2](x)[0] + x
    context = model.encoder[3](x)[0] + x
    y = model.first(model.embedding(target))[0]
    found = model.attention(y, context, lengths)
    y = model.decoder[0](torch.cat([y, found], 2))[0]
    y = model.decoder[1](torch.cat([y, found], 2))[0] + y
    y = model.decoder[2](torch.cat([y, found], 2))[0] + y
    torch.testing.assert_close(model(source, lengths, target), model.classifier(y))


def test_padding_changes_nothing():
    torch.manual_seed(0)
    model = GNMT(13, hidden=6).eval()
    source, target = torch.randint(1, 13, (5, 2)), torch.randint(1, 13, (4, 2))
    source[3:, 1] = 0
    both = model(source, torch.tensor([5, 3]), target)
    alone = model(source[:3, 1:], torch.tensor([3]), target[:, 1:])
    torch.testing.assert_close(both[:, 1:], alone)
    assert not model.embedding.weight[0].any()


def test_dropout_is_before_all_layers_but_the_first():
    model = GNMT(13, hidden=8, dropout=0.5)
    calls = []
    model.dropout.register_forward_hook(lambda *_: calls.append(1))
    model(torch.ones(3, 2, dtype=torch.int64), torch.tensor([3, 3]), torch.ones(3, 2, dtype=torch.int64))
    assert len(calls) == 6


def test_label_smoothing_by_hand():
    torch.manual_seed(0)
    logits, target = torch.randn(6, 9), torch.tensor([1, 5, 0, 8, 0, 2])
    expected = torch.zeros(())
    for row, label in zip(logits, target.tolist(), strict=True):
        if label != 0:
            log_probability = (row.exp() / row.exp().sum()).log()
            expected = expected - 0.9 * log_probability[label] - 0.1 * log_probability.mean()
    torch.testing.assert_close(label_smoothing_loss(logits, target, 0.1), expected)


def test_one_layer_is_refused():
    with pytest.raises(InvalidArgument, match="layers must be 2 or more, got 1"):
        GNMT(13, layers=1)
