# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

import dnnsuite
from dnnsuite import fuse, nn, unfuse
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional


def seeded(rates, seeds):
    layer = nn.Dropout(rates, B=len(seeds))
    nn.seed(layer, seeds)
    return layer


def test_a_models_mask_depends_on_neither_width_slot_nor_neighbours():
    x = torch.randn(1, 40, 50)
    alone = seeded([0.3], [7])
    first, second = alone(x), alone(x)
    array = seeded([0.5, 0.3, 0.1], [1, 7, 2])
    assert torch.equal(array(x.expand(3, -1, -1))[1], first[0])
    assert torch.equal(array(x.expand(3, -1, -1))[1], second[0])
    assert not torch.equal(first, second)


def test_each_model_drops_at_its_own_rate():
    y = seeded([0.0, 0.2, 0.9], [1, 2, 3])(torch.ones(3, 100_000))
    dropped = (y == 0).double().mean(1)
    assert dropped[0] == 0
    # Five standard deviations of a binomial share with n = 100 000.
    for share, rate in zip(dropped[1:], (0.2, 0.9), strict=True):
        assert abs(share - rate) < 5 * (rate * (1 - rate) / 100_000) ** 0.5
    assert torch.allclose(y.mean(1), torch.ones(3), atol=0.05)


def test_backward_uses_the_forward_mask():
    x = torch.ones(2, 1000, requires_grad=True)
    y = seeded([0.4, 0.6], [1, 2])(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_eval_and_rate_zero_change_nothing_and_draw_nothing():
    layer = seeded([0.4], [1]).eval()
    x = torch.randn(1, 9)
    assert layer(x) is x
    assert layer.rng[0, 1] == 0
    assert seeded([0.0], [1])(x) is x


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_cast_of_the_layer_leaves_rates_alone(dtype):
    layer = nn.Dropout([0.1, 0.3], B=2).to(dtype)
    assert layer.rates == [0.1, 0.3]
    dropped = (layer(torch.ones(2, 4000, dtype=dtype)) == 0).double().mean(1)
    torch.testing.assert_close(dropped, torch.tensor([0.1, 0.3]).double(), rtol=0, atol=0.03)
    assert layer.float().rates == [0.1, 0.3]


def test_places_in_one_model_draw_apart():
    array = fuse([torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.5)) for _ in range(2)], seeds=[3, 4])
    x = torch.ones(2, 400)
    assert not torch.equal(array[0](x), array[1](x))


def test_way_back_keeps_each_rate():
    array = fuse([torch.nn.Dropout(0.25), torch.nn.Dropout(0.75)])
    assert [model.p for model in unfuse(array)] == [0.25, 0.75]


def test_a_copy_goes_on_with_the_same_masks():
    layer = seeded([0.5], [1])
    x = torch.ones(1, 100)
    layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Dropout1d, (2, 4, 50, 6)),
        (nn.Dropout1d, (2, 50, 6)),
        (nn.Dropout2d, (2, 4, 50, 3, 5)),
        (nn.Dropout2d, (2, 4, 50, 3)),
        (nn.Dropout3d, (2, 4, 50, 2, 3, 5)),
        (nn.Dropout3d, (2, 50, 2, 3, 5)),
    ],
)
def test_whole_channels_drop(layer, shape):
    array = layer([0.25, 0.75], B=2)
    nn.seed(array, [1, 2])
    x = torch.ones(shape, requires_grad=True)
    y = array(x)
    y.sum().backward()
    assert torch.equal(x.grad, y)
    channels = y.flatten(-(len(shape) - shape.index(50) - 1)).detach()
    assert torch.equal(channels.amin(-1), channels.amax(-1))
    for index, rate in enumerate((0.25, 0.75)):
        kept = channels[index, ..., 0].unique().tolist()
        assert kept == pytest.approx([0.0, 1 / (1 - rate)], rel=1e-3)
    assert [model.p for model in unfuse(fuse([layer(0.25), layer(0.75)]))] == [0.25, 0.75]


@pytest.mark.parametrize("layer", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(layer):
    """It sets what it drops to SELU's lowest value; one rate of one drops all, to zero as in torch."""
    array = layer([0.2, 0.5, 1.0], B=3)
    nn.seed(array, [1, 2, 3])
    torch.manual_seed(0)
    y = array(torch.randn(3, 400, 400, 1))
    for index in range(2):
        assert abs(float(y[index].mean())) < 0.03
        assert abs(float(y[index].var()) - 1) < 0.03
        dropped = y[index] == y[index].flatten().mode().values
        assert dropped.double().mean() == pytest.approx([0.2, 0.5][index], abs=0.02)
    assert not y[2].any()
    torch.manual_seed(0)
    theirs = layer(0.5)(torch.randn(300, 300, 1)).flatten().mode().values
    assert theirs == pytest.approx(float(y[1].flatten().mode().values), rel=1e-4)


def test_functions_take_a_stream_and_write_in_place():
    x, rng = torch.ones(2, 500), torch.tensor([[1, 0], [2, 0]])
    y = functional.dropout(x, [0.5, 0.0], rng=rng)
    assert torch.equal(functional.dropout(x, 0.5, rng=rng)[0], y[0])
    assert torch.equal(y[1], x[1])
    assert functional.dropout(x, 0.5, training=False) is x
    assert functional.alpha_dropout(x) is x
    assert not torch.equal(functional.dropout(x), functional.dropout(x))
    own = x.clone()
    functional.dropout(own, 0.5, inplace=True, rng=rng)
    assert torch.equal(own[0], y[0])
    half = functional.dropout1d(x.view(2, 5, 100).bfloat16(), torch.tensor([0.5, 0.5]))
    assert half.dtype == torch.bfloat16
    for name in ("dropout2d", "dropout3d", "feature_alpha_dropout"):
        assert getattr(functional, name)(x.view(2, 5, 10, 10), 0.5, training=True).shape == (2, 5, 10, 10)
    with pytest.raises(InvalidArgument, match="3 values for 2 models"):
        functional.dropout(x, [0.1, 0.2, 0.3])
    with pytest.raises(InvalidArgument, match="channels"):
        functional.feature_alpha_dropout(x, training=True)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_refuses_a_rate_outside_zero_to_one(rate):
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        nn.Dropout(rate, B=2)


def test_refuses_the_wrong_number_of_rates_and_seeds():
    with pytest.raises(InvalidArgument, match="3 values for 2 models"):
        nn.Dropout([0.1, 0.2, 0.3], B=2)
    with pytest.raises(InvalidArgument, match="one per model"):
        nn.seed(nn.Dropout(B=2), [1])


@pytest.mark.parametrize("kind", ["Dropout", "Dropout1d", "AlphaDropout", "FeatureAlphaDropout"])
@pytest.mark.parametrize("value", [0.5, [0.0, 0.5, 0.25], torch.tensor([0.25, 0.5, 0.0])])
def test_rates_may_be_set_at_any_time(kind, value):
    layer = getattr(nn, kind)(0.0, B=3)
    x = torch.randn(3, 2, 40, 50)
    assert torch.equal(layer(x), x)
    layer.p = value
    other = getattr(nn, kind)(value, B=3)
    for one in (layer, other):
        nn.set_rng_state(one, {"rng": torch.arange(6).view(3, 2)})
    assert torch.equal(layer(x), other(x))
    assert repr(layer) == repr(other)
    assert [layer.to_model(i).p for i in range(3)] == torch.as_tensor(value).expand(3).tolist()


def test_rates_may_be_written_in_place():
    layer, x = nn.Dropout([0.0, 0.5], B=2), torch.ones(2, 1000)
    layer.p.fill_(0.9)
    assert ((layer(x) == 0).sum(1) > 800).all()
    assert "0.9" in repr(layer)
    layer.p[1] = 0.0
    assert torch.equal(layer(x)[1], x[1])
    layer.p.fill_(1.5)
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        layer(x)


@pytest.mark.parametrize("value", [-0.1, 2, [0.1], "much", None])
def test_a_rate_that_is_none_is_refused_and_leaves_the_old(value):
    layer = nn.Dropout([0.25, 0.5], B=2)
    with pytest.raises(InvalidArgument):
        layer.p = value
    assert layer.rates == layer.p.tolist() == [0.25, 0.5]


def test_a_models_masks_do_not_depend_on_when_its_neighbours_begin_to_drop():
    x = torch.ones(2, 1, 50)
    pair, alone = seeded([0.5, 0.0], [1, 2]), seeded([0.0], [2])
    pair(x), alone(x[:1])
    pair.p, alone.p = 0.5, 0.5
    assert torch.equal(pair(x)[1], alone(x[:1])[0])


@pytest.mark.parametrize(
    ("make", "inner"),
    [
        (lambda p: nn.LSTM(4, 4, 2, dropout=p, B=2), "layer_dropout"),
        (lambda p: nn.MultiheadAttention(4, 2, p, B=2), "attention_dropout"),
    ],
)
def test_layers_that_drop_inside_take_a_rate_as_torchs_do(make, inner):
    layer = make(0.0)
    assert layer.dropout == 0.0
    layer.dropout = [0.25, 0.5]
    assert getattr(layer, inner).rates == layer.dropout == [0.25, 0.5]
    assert [layer.to_model(i).dropout for i in range(2)] == [0.25, 0.5]


@pytest.mark.parametrize(("threads", "width"), [(1, 1), (1, 3), (2, 2)])
def test_a_rate_that_is_raised_later_counts_in_a_captured_step(threads, width):
    def train(runs, width, capture):
        torch.manual_seed(0)
        array = fuse(
            [torch.nn.Sequential(torch.nn.Linear(4, 40), torch.nn.Dropout(0.0)) for _ in range(3)], seeds=[1, 2, 3]
        )
        optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
        x, losses = torch.ones(3, 5, 4), []
        changes = {4: lambda p: p.fill_(0.5), 6: lambda p: setattr(array.get_submodule("1"), "p", [0.1, 0.0, 0.9])}
        with dnnsuite.StepRunner(array, optimizer, loss, threads=runs, width=width, capture=capture) as runner:
            for step in range(8):
                if step in changes:
                    changes[step](array.get_buffer("1.p"))
                losses.append(runner.step(x).losses().clone())
        return torch.stack(losses)

    def loss(array, x):
        return array(x).square().mean((1, 2))

    torch.testing.assert_close(train(threads, width, True), train(1, 3, False))
