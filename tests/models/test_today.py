# SPDX-License-Identifier: MIT
"""Models of the jobs of today against what defines them."""

import pytest
import torch

from dnnsuite import models
from dnnsuite.models.decoder import StateSpace

DECODER = {"vocab": 11, "layers": 2, "width": 16, "heads": 2, "kv_heads": 1, "ff": 16}
PICTURES = {"layers": 1, "width": 16, "heads": 2, "patch": 4, "size": 8, "channels": 1, "classes": 3}


def test_a_state_space_is_its_recurrence() -> None:
    torch.manual_seed(0)
    space = StateSpace(width=8, head=4, state=3, chunk=4).double()
    u = torch.randn(2, 12, 8, dtype=torch.float64)
    gate, x, dt = space.enter(u).split([16, 22, 4], -1)
    x = torch.nn.functional.silu(space.local(x.transpose(1, 2))[..., :12].transpose(1, 2))
    x, enters, leaves = x.split([16, 3, 3], -1)
    x, dt = x.view(2, 12, 4, 4), torch.nn.functional.softplus(dt + space.step)
    state, out = torch.zeros(2, 4, 3, 4, dtype=torch.float64), []
    for t in range(12):
        decay = (-dt[:, t] * space.decay.exp()).exp()[..., None, None]
        state = state * decay + enters[:, t, None, :, None] * (x[:, t] * dt[:, t, :, None])[:, :, None]
        out.append((leaves[:, t, None, None] @ state).squeeze(2) + x[:, t] * space.skip[:, None])
    by_steps = torch.stack(out, 1).reshape(2, 12, 16)
    expected = space.leave(space.norm(by_steps * torch.nn.functional.silu(gate)))
    torch.testing.assert_close(space(u), expected)


@pytest.mark.parametrize("again", [0, 1])
def test_a_decoder_sees_nothing_of_what_follows(again: int) -> None:
    torch.manual_seed(0)
    decoder = models.Decoder({**DECODER, "again": again})
    tokens = torch.randint(11, (2, 9))
    changed = tokens.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 11
    one, other = decoder(tokens), decoder(changed)
    assert torch.equal(one[:, :6], other[:, :6])
    assert not torch.equal(one[:, 6:], other[:, 6:])


def test_adapters_begin_as_the_base_and_alone_are_trained() -> None:
    torch.manual_seed(0)
    decoder, tokens = models.Decoder(DECODER), torch.randint(11, (2, 9))
    before = decoder(tokens)
    adapted = models.adapt(decoder, rank=2, scale=2.0)
    torch.testing.assert_close(adapted(tokens), before)
    assert {name.rpartition(".")[2] for name, p in adapted.named_parameters() if p.requires_grad} == {"down", "up"}
    assert sum(isinstance(part, models.Adapted) for part in adapted.modules()) == 2 * 6


def test_an_agent_gives_chances_and_a_value() -> None:
    chances, value = models.Agent(8)(torch.randn(3, 5, 4))
    torch.testing.assert_close(chances.exp().sum(-1), torch.ones(3, 5))
    assert value.shape == (3, 5)


def test_crosses_are_those_of_their_paper() -> None:
    torch.manual_seed(0)
    net = models.Crosses([5, 7], [3, 4], [6], rank=2)
    numbers, values = torch.randn(2, 3), (torch.randint(5, (2, 1)), torch.randint(7, (2, 3)))
    first = x = torch.cat(
        [net.bottom(numbers), *(table.weight[v].sum(1) for table, v in zip(net.tables, values, strict=True))], 1
    )
    for low, high in zip(net.low, net.high, strict=True):
        x = first * (x @ low.weight.t() @ high.weight.t() + high.bias) + x
    torch.testing.assert_close(net(numbers, *values), net.top(x)[:, 0])


def test_a_diffusion_transformer_begins_at_zero_and_its_blocks_at_the_identity() -> None:
    net = models.DiffusionTransformer(PICTURES)
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(net(x, torch.rand(2), torch.tensor([0, 2])), torch.zeros_like(x))
    h = torch.randn(2, 4, 16)
    assert torch.equal(net.layers[0](h, torch.randn(2, 1, 16)), h)


def test_an_encoder_takes_pictures_of_other_sizes_and_an_average_answers_in_evaluation() -> None:
    encoder = models.Encoder(PICTURES)
    assert encoder(torch.randn(2, 1, 8, 8)).shape == encoder(torch.randn(2, 1, 16, 16)).shape == (2, 16)
    net = models.Averaged(torch.nn.Linear(2, 2), 0.9)
    with torch.no_grad():
        net.live.weight.zero_()
    x = torch.ones(1, 2)
    assert torch.equal(net(x), net.live(x))
    assert torch.equal(net.eval()(x), net.average(x))
    assert not torch.equal(net.average(x), net.live(x))
