# SPDX-License-Identifier: MIT
"""LoRA on convolutions of models with ranks and places of their own, against PEFT's models in float64."""

import functools

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from tiny_adapters import LRS, SEEDS, ConvNet, lora, one_by_one, peft, trained

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


class Net(torch.nn.Module):
    """Convolutions along lines, over images and volumes."""

    def __init__(self):
        super().__init__()
        self.image = torch.nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.line = torch.nn.Conv1d(4, 6, 3, padding="same", bias=False)
        self.volume = torch.nn.Conv3d(1, 2, (2, 1, 3))

    def forward(self, x):
        h = torch.tanh(self.image(x))
        h = torch.tanh(self.line(h.flatten(2)))
        return self.volume(h.unflatten(2, (-1, 4))[:, None]).mean((2, 3, 4))


@functools.cache
def configs():
    return [
        lora(2, ["image", "line", "volume"], lora_bias=True),
        lora(2, ["image", "volume"], lora_bias=True, use_rslora=True),
        lora(5, ["image", "line"], lora_bias=True),
    ]


def train(array, x, steps, lrs):
    opt = optim.AdamW(trained(array), lr=lrs)
    for _ in range(steps):
        losses = array(x).square().mean((1, 2))
        opt.zero_grad()
        losses.sum().backward()
        opt.step()
    return losses.detach()


def test_steps_are_those_of_pefts_models(tmp_path):
    torch.manual_seed(0)
    base, x = Net().double(), torch.randn(3, 2, 2, 6, 8).double()
    models = [model.double() for model in one_by_one(base, configs())]
    array = dnnsuite.adapt(base, configs(), seeds=SEEDS).double()
    losses = train(array, x, 10, LRS)
    for index, model in enumerate(models):
        own = torch.optim.AdamW(trained(model), lr=LRS[index])
        for _ in range(10):
            loss = model(x[index]).square().mean()
            own.zero_grad()
            loss.backward()
            own.step()
        torch.testing.assert_close(losses[index], loss, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(array[index].state_dict(), model.state_dict(), rtol=1e-7, atol=1e-8)
    folders = array.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(base, folders[2]).double()
    with torch.no_grad():
        torch.testing.assert_close(array(x)[2], loaded(x[2]), rtol=1e-5, atol=1e-7)


def test_a_model_has_the_same_bits_in_any_company():
    torch.manual_seed(0)
    base, x = Net(), torch.randn(3, 2, 2, 6, 8)
    together = dnnsuite.adapt(base, configs(), seeds=SEEDS)
    losses = train(together, x, 3, LRS)
    for index, config in enumerate(configs()):
        alone = dnnsuite.adapt(base, [config], seeds=SEEDS[index : index + 1])
        assert torch.equal(train(alone, x[index : index + 1], 3, LRS[index : index + 1])[0], losses[index])
        for name, value in alone[0].state_dict().items():
            assert torch.equal(value, together[index].state_dict()[name])


def test_another_rank_in_a_slot_is_another_step():
    torch.manual_seed(0)
    base, x = Net(), torch.randn(3, 2, 2, 6, 8)
    array, other = (dnnsuite.adapt(base, configs(), seeds=SEEDS) for _ in range(2))
    opts = [optim.SGD(trained(one), lr=0.1) for one in (array, other)]

    def loss(part, x):
        return part(x).square().mean((1, 2))

    with dnnsuite.StepRunner(array, opts[0], loss, threads=1, width=1) as runner:
        for turn in range(2):
            for _ in range(3):
                opts[1].zero_grad()
                losses = loss(other, x)
                losses.sum().backward()
                opts[1].step()
                # The base's filters convolve another number of images at once, and oneDNN rounds by that.
                torch.testing.assert_close(runner.step(x).losses(), losses.detach(), rtol=1e-5, atol=0)
            if turn == 0:
                (new,) = one_by_one(base, [lora(4, ["image", "line"], lora_bias=True)], [9])
                for one, opt in zip((array, other), opts, strict=True):
                    one.replace(0, new, opt, lr=0.2)


def test_layers_and_what_has_none():
    base = ConvNet()
    array = dnnsuite.adapt(base, [lora(2, ["conv"]), lora(3, ["fc"])])
    layer = array.get_submodule("base_model.model.conv")
    assert type(layer).__name__ == "LoraConv2d"
    assert (layer.ranks, layer.most) == ([2, 0], 2)
    x = torch.randn(2, 5, 1, 6, 6)
    with array.eval().disable_adapter():
        torch.testing.assert_close(array(x)[1], base.eval()(x[1]))


def test_a_convolution_in_groups_takes_one_rank():
    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, groups=2))
    configs = [lora(2, ["0"]), lora(2, ["0"])]
    array, models = dnnsuite.adapt(base, configs, seeds=SEEDS[:2]), one_by_one(base, configs)
    x = torch.randn(2, 3, 4, 5, 5)
    torch.testing.assert_close(array(x)[1], models[1](x[1]))
    torch.testing.assert_close(array[1].state_dict(), models[1].state_dict())
    with pytest.raises(InvalidArgument, match="differ"):
        dnnsuite.adapt(base, [lora(2, ["0"]), lora(4, ["0"])])
