# SPDX-License-Identifier: MIT
"""The eight workloads: their sizes, what the fused form computes, and that they learn."""

import dataclasses
import random
import statistics

import pytest
import torch

import dnnsuite
from dnnsuite import jobs

TINY = {
    "bert": {"emsize": 32, "nhid": 64, "nlayers": 2, "nhead": 4, "vocab_size": 512},
    "transformer": {"emsize": 32, "nhid": 32, "vocab_size": 512},
    "dcgan": {"ngf": 4, "ndf": 4, "nz": 8},
    "mobilenet_v3_small": {"width_mult": 0.25},
    "mobilenet_v3_large": {"width_mult": 0.25},
    "pointnet_cls": {"points": 64, "width": 64},
    "pointnet_seg": {"points": 64, "width": 64},
    "resnet": {"width": 8},
}
PARAMETERS = {  # HFTA's, by its own code; of bert and transformer at a vocabulary of 10,000
    "bert": 35_732_752,
    "transformer": 2_769_168,
    "dcgan": 3_576_704 + 2_765_568,
    "mobilenet_v3_small": 1_528_106,
    "mobilenet_v3_large": 4_214_842,
    "pointnet_cls": 3_465_305,
    "pointnet_seg": 3_527_629,
    "resnet": 11_181_642,
}
LEARNS = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "gamma": 1.0, "step_size": 10}
ADADELTA = ("bert", "transformer", "resnet")


def workload(name):
    return jobs.get(name, swept=True).workload


def config(name, B, models=None, **changes):
    generator = random.Random(7)
    kind = jobs.get(name, swept=True)
    hyper = kind.hyperparameters(generator, max(B, 1))
    return jobs.JobConfig(**{"B": B, "batch_size": 8, "threads": 1, "options": TINY[name], "hyper": hyper, **changes})


def test_all_of_hftas_are_there():
    assert set(TINY) <= set(jobs.names(swept=True))
    assert jobs.get("mobilenet_cifar10_v3s").name == "mobilenet_v3_small"
    assert jobs.get("mobilenet_cifar10_v3l").name == "mobilenet_v3_large"


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_papers_models_have_hftas_parameters(name):
    declared = workload(name)
    options = {**declared.options, **declared.preset("paper", "cpu")["options"]}
    if "vocab_size" in options:
        options["vocab_size"] = 10_000
    with torch.device("meta"):
        model = declared.model(options, declared.hyper)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", [name for name in TINY if name != "mobilenet_v3_large"])
def test_fused_equals_separate(name):
    # In float64, in which no rounding has to be told from an error; four steps are enough for a replayed one.
    settings = config(name, 2, batch_size=4, precision="fp64")
    steps = 2 if name == "mobilenet_v3_small" else 4  # of many layers, each of which another test replays
    record = jobs.get(name, swept=True).check_equality(settings, steps=steps)
    assert record["passed"], record
    assert (record["steps"], record["models"]) == (steps, 2)


@pytest.mark.parametrize("name", [name for name in TINY if name != "mobilenet_v3_large"])  # of small's layers
def test_nothing_runs_model_by_model(name):
    options, declared = {**workload(name).options, **TINY[name]}, workload(name)
    array = dnnsuite.fuse([declared.model(options, declared.hyper) for _ in range(2)])
    assert {cover.how for cover in array.coverage()} <= {"fused", "elementwise"}


def learning(name):
    """The tiny job, of which the loss has to fall: of DCGAN the discriminator alone."""
    if name != "dcgan":
        return jobs.get(name, swept=True)
    whole = workload(name)

    def model(*args):  # of this module, so that the job counts as this test's
        return whole.model(*args)

    judge = {"discriminator": whole.loss["discriminator"]}
    return jobs.declare(dataclasses.replace(whole, name="dcgan_judge", loss=judge, model=model, card=None))


# The others share data and loss with one of these; bert has a test of its own.
@pytest.mark.parametrize(
    ("name", "B"), [("transformer", 2), ("dcgan", 0), ("pointnet_cls", 2), ("pointnet_seg", 0), ("resnet", 0)]
)
def test_loss_falls_on_the_data_of_this_machine(name, B):
    rates = {**LEARNS, "lr": 1.0 if name in ADADELTA else 3e-3}
    hyper = {key: [rates[key]] * max(B, 1) for key in workload(name).hyper}
    options = {**TINY[name], **({"dropout": 0.0} if name == "pointnet_cls" else {})}
    job = learning(name)(config(name, B, hyper=hyper, batch_size=16, options=options))
    try:
        job.setup()
        history = []
        for _ in range(30):
            job.step()
            history.append(job.losses())
        source = job.provenance()["data"]["source"]
    finally:
        job.close()
    assert source
    for losses in zip(*history, strict=True):
        assert statistics.mean(losses[-8:]) < 0.95 * statistics.mean(losses[:4])


def test_data_are_asked_for_by_kind():
    job = jobs.get("resnet", swept=True)(config("resnet", 0, data="synthetic"))
    job.setup()
    assert job.provenance()["data"]["source"].startswith("synthetic")
