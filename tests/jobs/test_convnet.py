# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from job_runs import losses, make

SMALL = {"data": "synthetic", "arch": "resnet18", "image_size": 32, "lr": 0.02}


def test_half_precision_is_that_of_the_convolutions():
    job = make("convnet_fp16", **{**SMALL, "image_size": 16}, precision="fp16")
    seen = []
    job.model.conv1.register_forward_hook(lambda _module, _inputs, out: seen.append(out.dtype))
    assert losses(job, 1)[0] < 20
    assert seen == [torch.float16]
    assert job.model.conv1.weight.dtype == job.last_loss.dtype == torch.float32


def test_a_step_is_gradient_descent():
    job = make("convnet", batch_size=4, **SMALL)
    separate = copy.deepcopy(job.model)
    x, classes = job.batch(0)
    assert x.shape == (4, 3, 32, 32)
    scores = separate(x)
    loss = (scores.logsumexp(1) - scores[range(4), classes]).mean()
    loss.backward()
    job.step()
    torch.testing.assert_close(job.last_loss, loss.detach())
    with torch.no_grad():
        for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs - 0.02 * theirs.grad, rtol=1e-4, atol=1e-5)


def test_same_seed_same_losses():
    first, again, other = (losses(make("convnet", **SMALL, seed=seed), 2) for seed in (1, 1, 2))
    assert first == again != other


def test_the_size_of_resnet101():
    def block(channels, width, downsample):
        convolutions = channels * width + 9 * width**2 + 4 * width**2
        return convolutions + 2 * (2 * width + 4 * width) + downsample * (4 * channels * width + 8 * width)

    expected, channels = 3 * 64 * 49 + 2 * 64, 64
    for blocks, width in ((3, 64), (4, 128), (23, 256), (3, 512)):
        for place in range(blocks):
            expected += block(channels, width, place == 0)
            channels = 4 * width
    workload = jobs.get("convnet").workload
    with torch.device("meta"):
        model = workload.model(workload.options, {})
    assert sum(p.numel() for p in model.parameters()) == expected + 2048 * 1000 + 1000 == 44549160


def test_the_family_and_its_units():
    kinds = {name: jobs.get(name) for name in jobs.names() if name.startswith("convnet")}
    batch_sizes = {name: kind.defaults["batch_size"] for name, kind in kinds.items()}
    assert batch_sizes == {
        "convnet": 64,
        "convnet_fp16": 128,
        "convnet_distributed": 64,
        "convnet_distributed_fp16": 128,
    }
    assert {name for name, kind in kinds.items() if kind.scope == "all"} == {
        "convnet_distributed",
        "convnet_distributed_fp16",
    }
    assert {name for name, kind in kinds.items() if kind.default_precision == "fp16"} == {
        "convnet_fp16",
        "convnet_distributed_fp16",
    }
    job = make("convnet_distributed", **SMALL)
    assert (job.items_per_step, job.place.world_size) == (2, 1)
    assert losses(job, 1) == losses(make("convnet", **SMALL), 1)  # alone, it is the other
    job.close()


def test_the_images_of_a_user(tmp_path):
    from dnnsuite.data import photographs

    (tmp_path / "train").symlink_to(photographs.jpeg_folder(8)[0])
    job = make("convnet", **{**SMALL, "data": "real"}, dataroot=str(tmp_path), workers=0)
    x, classes = job.batch(0)
    assert set(classes.tolist()) <= set(range(8))
    assert job.provenance()["data"]["count"] == 8
    assert x.min() < 0 < x.max()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"arch": "resnet"}, "arch 'resnet' is not a classifier.*resnet101"), ({"image_size": 0}, "image_size 0")],
)
def test_what_there_is_not_is_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        make("convnet", **{**SMALL, **options})
