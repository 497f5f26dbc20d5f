# SPDX-License-Identifier: MIT
import copy

import pytest
import torch
from PIL import Image

from dnnsuite.data import photographs
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs.photographs import style_image
from job_runs import losses, make, parameters

SMALL = {"data": "synthetic", "image_size": 16, "style_size": 16}


def test_the_loss_falls_in_half_precision():
    values = losses(make("fast_style", **SMALL, precision="bf16"), 12)
    assert sum(values[-3:]) < 0.8 * sum(values[:3])


def test_a_step_is_adam_on_content_and_style():
    job = make("fast_style", **SMALL)
    separate, x = copy.deepcopy(job.model.net), job.batch(0)[0]
    assert x.shape == (2, 3, 16, 16)
    assert 200 < x.max() <= 255
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]

    def seen(images):
        return job.model.features((images / 255 - mean) / deviation)

    def gram(y):
        return torch.einsum("nchw,ndhw->ncd", y, y) / y[0].numel()

    style = [gram(y).expand(2, -1, -1) for y in seen(style_image(job.options))]
    made = seen(separate(x))
    loss = 1e5 * (made[1] - seen(x)[1]).square().mean()
    loss = loss + 1e10 * sum((gram(y) - wanted).square().mean() for y, wanted in zip(made, style, strict=True))
    loss.backward()
    torch.optim.Adam(separate.parameters(), lr=1e-3).step()
    before = [p.clone() for p in job.model.features.parameters()]
    job.step()
    torch.testing.assert_close(job.last_loss, loss.detach(), rtol=1e-4, atol=0)
    # Of one bias before a normalization the gradient is nothing but rounding: all are compared together.
    ours, theirs = (torch.cat([p.grad.flatten() for p in model.parameters()]) for model in (job.model.net, separate))
    assert (ours - theirs).norm() < 1e-3 * theirs.norm()
    moved = [(p - q).abs().max() for p, q in zip(job.model.net.parameters(), separate.parameters(), strict=True)]
    assert max(moved) < 2.1e-3  # Adam's first step is the learning rate, one way or the other
    assert all(map(torch.equal, job.model.features.parameters(), before))


def test_same_seed_same_losses():
    first, again, other = (losses(make("fast_style", **SMALL, seed=seed), 2) for seed in (1, 1, 2))
    assert first == again != other


def test_the_pool_is_not_changed_by_training():
    job = make("fast_style", **SMALL)
    before = job.batch(0)[0].clone()
    losses(job, 3)
    assert torch.equal(job.batch(4)[0], before)  # it has four batches


def test_the_size_the_units_and_the_record():
    job = make("fast_style", **SMALL)
    assert parameters(job) == 1679235 + 7635264
    assert job.items_per_step == 2
    assert "fp16" not in job.precisions("cpu")


def test_a_style_image_and_weights_from_files(tmp_path):
    Image.fromarray(photographs.Noise(5).picture(30, 50)).save(tmp_path / "style.png")
    source = make("fast_style", **SMALL)
    state = {f"features.{name}": value for name, value in source.model.features.state_dict().items()}
    torch.save({**state, "classifier.0.weight": torch.ones(2)}, tmp_path / "vgg16.pth")
    files = {"weights": str(tmp_path / "vgg16.pth"), "style_image": str(tmp_path / "style.png")}
    job = make("fast_style", **SMALL, seed=9, **files)
    assert torch.equal(job.model.features[0].weight, source.model.features[0].weight)
    assert not torch.equal(job.model.style0, source.model.style0)
    assert job.provenance()["model"]["weights"] == files["weights"]


@pytest.mark.parametrize("content", [b"nothing", None, {"features.0.weight": torch.ones(2)}])
def test_other_weights_are_refused(tmp_path, content):
    path = tmp_path / "vgg16.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        torch.save(content, path)
    with pytest.raises(InvalidArgument, match=r"vgg16\.pth' are not those of torchvision's vgg16"):
        make("fast_style", **SMALL, weights=str(path))


def test_a_size_that_does_not_fit_is_refused():
    with pytest.raises(InvalidArgument, match="image_size 18"):
        make("fast_style", image_size=18)
