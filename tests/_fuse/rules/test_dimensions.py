# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F

import dnnsuite
from function_cases import check, run

INDEX = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 1]])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(0) + F.log_softmax(x, dim=-1) + torch.softmax(x, 1),
        lambda x: x.sum() + x.mean() + x.std() + x.norm() + x.prod() + x.logsumexp(0).sum(),
        lambda x: x.sum(0) + x.mean(dim=-3) + x.var(0, unbiased=False) + x.amax(0),
        lambda x: x.sum(dim=(0, 1), keepdim=True) + x.mean((0, 2)).sum(),
        lambda x: x.sum(keepdim=True, dim=None) if False else x.mean(-1, keepdim=True),
        lambda x: (x.max(), x.min(), x.max(dim=1), x.min(0, keepdim=True).values),
        lambda x: (x.argmax(), x.argmax(-1), x.argmin(0)),
        lambda x: (x.median(), x.median(0).values, (x > 0).all(), (x > 0).any(1)),
        lambda x: (
            x.prod(1),
            x.prod(-2, keepdim=True),
            x.prod(2, True),
            x[:2].prod(0),
            x.prod(dim=0, dtype=torch.float64),
        ),
        lambda x: torch.max(x, x.flip(0)),
        lambda x: x.cumsum(0) + x.sort(descending=True).values,
        lambda x: x.topk(2, dim=0).values,
        lambda x: x.chunk(2, 0)[0] + x.chunk(2)[1],
        lambda x: [part * 2 for part in x.split([1, 3])],
        lambda x: x.unbind()[1] + x.unbind(1)[0].sum(),
        lambda x: x.narrow(0, 1, 2) + x.select(1, 0).unsqueeze(1)[1:3],
        lambda x: x.flatten() + x.flatten(0, 1).flatten(),
        lambda x: x.flatten(1).unflatten(1, (3, 4)),
        lambda x: x.transpose(0, 1) + x.permute(1, 0, 2) + x.movedim(0, 1) + x.swapaxes(-2, -3),
        lambda x: x.unsqueeze(0).squeeze(0) + x.unsqueeze(-1).squeeze(-1) + x.squeeze(),
        lambda x: torch.cat([x, x * 2], 0).sum(0) + torch.cat((x, x), dim=-1)[..., :4].sum(0),
        lambda x: torch.cat([x, torch.zeros(1, 3, 4)]),
        lambda x: torch.stack([x, x + 1], dim=-1).sum(-1) + torch.stack((x, x))[0],
        lambda x: x.flip(0) + x.flip(-1, 0),
        lambda x: x.roll(1, 0) + torch.roll(x, shifts=(-1, 2), dims=(0, -1)) + x.roll(5) + x.mT.roll((2,)).mT,
        lambda x: x[0].gather(0, INDEX) + x[1].scatter(0, INDEX, 5.0)[:2],
        lambda x: x.index_select(1, torch.tensor([0, 2])),
        lambda x: F.normalize(x) + F.normalize(x, dim=-1),
        lambda x: torch.std_mean(x, dim=0),
        lambda x: (
            torch._is_all_true(x > -9),
            torch._is_all_true(x > 0),
            torch._is_any_true(x[0, 0] > 0),
            torch._is_all_true(x.sum() > 0),
        ),
        lambda x: (x.round().mode().values, x.round().mode(0).values, x.diff(), x.diff(2), torch.diff(x, n=2, dim=0)),
        lambda x: x.t() if x.dim() == 2 else x[0].t(),
        lambda x: torch.linalg.vector_norm(x.norm(dim=1), dim=0) if False else x.norm(dim=1),
        lambda x: x.sum(0).squeeze(),
        lambda x: torch.empty(0).new_zeros(0) if False else torch.cat([torch.zeros(0), x], dim=-1),
    ],
)
def test_dimension_0_is_the_models_own(function):
    check(function, torch.randn(3, 4, 3, 4))


class Boxes(torch.nn.Module):
    """The area of boxes, one of whose sides may be zero."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x):
        corners = self.layer(x)
        return (corners[:, 2:] - corners[:, :2]).clamp(min=0).prod(-1).mean()


def test_a_step_with_a_product_of_two_is_captured():
    models = [Boxes().double() for _ in range(3)]
    array = dnnsuite.fuse(models)
    alone = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    with dnnsuite.StepRunner(array, optimizer, lambda array, x: array(x), threads=1) as runner:
        for _ in range(6):
            batch = torch.randn(3, 8, 3, dtype=torch.float64)
            losses = runner.step(batch).losses()
            for index, (model, one) in enumerate(zip(models, alone, strict=True)):
                one.zero_grad()
                loss = model(batch[index])
                loss.backward()
                one.step()
                torch.testing.assert_close(losses[index], loss.detach())
        assert runner.mode == "captured"


def test_a_norm_is_not_taken_over_the_models():
    check(lambda x: x.renorm(2, 0, 1.0) + torch.renorm(x, 1, -1, 0.5), torch.randn(3, 4, 5))
    check(lambda x: x.clone().renorm_(2, 0, 1.0), torch.randn(3, 4, 5))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.vector_norm(x) + torch.linalg.vector_norm(x, 1, dim=(0, -1)).sum(),
        lambda x: torch.linalg.vector_norm(x, ord=3, dim=-1, keepdim=True) * x,
        lambda x: torch.linalg.vector_norm(x, dim=0, dtype=torch.float64),
        lambda x: torch.linalg.norm(x) + torch.linalg.norm(x, dim=1).sum() + torch.linalg.norm(x, 1, 2).sum(),
        lambda x: torch.linalg.norm(x[0, 0], 3) + torch.linalg.norm(x[0, 0], ord=float("inf")),
        lambda x: torch.linalg.norm(x, dim=(0, 1), keepdim=True) * x,
    ],
)
def test_a_norm_of_vectors_is_each_models_own(function):
    check(function, torch.randn(3, 4, 3, 4))


def test_a_norm_of_matrices_is_mapped():
    check(lambda x: torch.linalg.norm(x, "nuc", (0, 1)), torch.randn(3, 4, 5), mapped=True)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_rows_get_lengths_of_their_own_in_each_model(dim):
    shape = [4 if place == dim else 1 for place in range(3)]
    check(lambda v, g: torch._weight_norm(v, g, dim), torch.randn(3, 4, 4, 4), torch.rand(3, *shape) + 0.5)


def test_a_dimension_out_of_range_is_torchs_error():
    with pytest.raises(IndexError, match="expected to be in range"):
        run(lambda x: x.sum(2), torch.randn(2, 3, 4))


def test_in_place_twins_change_their_tensor():
    def change(x):
        a, b, c = x.clone(), x[:1].clone(), x[0].clone()
        a.unsqueeze_(0)
        b.squeeze_(0)
        c.t_()
        return a, b, c

    check(change, torch.randn(3, 4, 5, 2))


def test_a_scalar_of_each_model():
    check(lambda x: x.sum().unsqueeze(0) + x.sum().sum() + x.mean().max(), torch.randn(2, 3))


def test_what_has_no_rule_is_mapped():
    check(lambda x: torch.cdist(x, x + 1), torch.randn(2, 3, 4), mapped=True)
    check(lambda x: torch.vstack([x, x]), torch.randn(2, 3, 4), mapped=True)


class _Dense(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(4, 5, 3, padding=1)

    def forward(self, x):
        h = self.first(x)
        return torch.cat([h, self.second(h)], 1)


def test_maps_with_channels_last_are_joined_in_that_order():
    models = [_Dense() for _ in range(3)]
    x = torch.randn(2, 3, 6, 7)
    joined = dnnsuite.fuse(models)(dnnsuite.stack(x, B=3))
    assert joined.stride(2) == 1
    for model, found in zip(models, joined, strict=True):
        torch.testing.assert_close(found, model(x))


def test_a_view_of_joined_maps_shows_what_is_written_into_it():
    class Written(_Dense):
        def forward(self, x):
            joined = super().forward(x)
            joined.view(2, -1).mul_(2.0)
            return joined

    models = [Written() for _ in range(3)]
    x = torch.randn(2, 3, 6, 7)
    for model, found in zip(models, dnnsuite.fuse(models)(dnnsuite.stack(x, B=3)), strict=True):
        torch.testing.assert_close(found, model(x))


def _images(*shape):
    return torch.randn(*shape[:2], *shape[3:], shape[2]).movedim(-1, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([x, x * 2], 1) * torch.cat((x, x), dim=-3),
        lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
        lambda x: [part.sigmoid() for part in x.split([1, 3], dim=1)],
        lambda x: torch.split(x, 2, -1)[1] + torch.split(x, split_size_or_sections=2, dim=3)[0],
        lambda x: torch.tensor_split(x, torch.tensor([1, 2]), dim=1)[1] + x.tensor_split(4, 1)[0],
        lambda x: x.split_with_sizes([2, 2], 1)[0] * x.split_with_sizes(split_sizes=[2, 2], dim=1)[1],
        lambda x: x * x.mean((2, 3), keepdim=True).sigmoid() + x.mean(dim=1, keepdim=True) + x.mean(-1, True),
    ],
)
def test_images_with_the_channels_last(function):
    check(function, _images(3, 2, 4, 5, 6))
