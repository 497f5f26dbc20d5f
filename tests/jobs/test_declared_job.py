# SPDX-License-Identifier: MIT
"""Jobs made from declarations of a few lines."""

import dataclasses

import pytest
import torch

import dnnsuite
from dnnsuite import jobs
from dnnsuite.data.batches import ArrayBatches
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import JobConfig, Made, Preset, Workload


def model(options, hyper):
    return torch.nn.Sequential(
        torch.nn.Linear(4, options["width"]),
        torch.nn.BatchNorm1d(options["width"]),
        torch.nn.ReLU(),
        torch.nn.Dropout(hyper["dropout"]),
        torch.nn.Linear(options["width"], 3),
    )


def data(config, options):
    generator = torch.Generator().manual_seed(config.data_seed)
    x = torch.randn(64, 4, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return ArrayBatches(x, y, batch_size=config.batch_size, seed=config.data_seed, record={"source": "drawn"})


def loss(model, x, y):
    return torch.nn.functional.cross_entropy(jobs.widened(model(x)), y)


SMALL = Workload(
    name="small",
    description="a small classifier",
    unit="points",
    options={"width": 8},
    hyper={"lr": 0.01, "momentum": 0.9, "dropout": 0.25, "gamma": 0.5},
    sample=lambda g: {"lr": g.uniform(0.01, 0.1), "momentum": 0.9, "dropout": g.random() / 2, "gamma": 0.5},
    model=model,
    data=data,
    loss=loss,
    optimizer=Made("SGD", {"lr": "lr", "momentum": "momentum"}),
    schedule=Made("StepLR", {"step_size": 1, "gamma": "gamma"}),
    presets={"default": Preset(2, 3, batch_size=8)},
)
HYPER = {"lr": [0.01, 0.05, 0.1], "momentum": [0.0, 0.5, 0.9], "dropout": [0.0, 0.2, 0.5], "gamma": [0.5, 0.9, 1.0]}


class Adversaries(torch.nn.Module):
    """Two networks, trained by turns."""

    def __init__(self):
        super().__init__()
        self.forger, self.judge = (
            torch.nn.Linear(2, 4),
            torch.nn.Sequential(
                torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.LeakyReLU(), torch.nn.Linear(8, 1)
            ),
        )


def judged(model, x, z):
    softplus = torch.nn.functional.softplus
    return softplus(-model.judge(x)).mean() + softplus(model.judge(model.forger(z))).mean()


def passed(model, x, z):
    return torch.nn.functional.softplus(-model.judge(model.forger(z))).mean()


def pairs(config, options):
    generator = torch.Generator().manual_seed(config.data_seed)
    x, z = torch.randn(32, 4, generator=generator), torch.randn(32, 2, generator=generator)
    return ArrayBatches(x, z, batch_size=config.batch_size, seed=config.data_seed)


ADVERSARIAL = dataclasses.replace(
    SMALL,
    name="adversarial",
    options={},
    hyper={"lr": 0.01},
    sample=lambda g: {"lr": g.random()},
    model=lambda options, hyper: Adversaries(),
    data=pairs,
    loss={"judge": judged, "forger": passed},
    optimizer=Made("Adam", {"lr": "lr", "betas": (0.5, 0.999)}),
    schedule=None,
)


@pytest.fixture(scope="module")
def Small():
    return jobs.declare(SMALL)


@pytest.fixture(scope="module")
def Adversarial():
    return jobs.declare(ADVERSARIAL)


@pytest.fixture
def started():
    """Makes jobs ready to step, and closes them afterwards."""
    made = []

    def start(kind, **settings):
        job = kind(JobConfig(**{"batch_size": 8, "threads": 1, **settings}))
        made.append(job)
        job.setup()
        return job

    yield start
    for job in made:
        job.close()


def test_an_array_of_optimizers_of_several_classes_is_what_plain_models_are():
    """With clipped gradients, split batches and a change after each step, as one plain model has them."""

    def decay(model):
        for parameter in model.parameters():
            parameter.mul_(0.99)

    groups = [
        jobs.Group(lambda name, parameter: parameter.dim() > 1, Made("Adam", {"lr": "lr"})),
        jobs.Group(lambda name, parameter: True, Made("SGD", {"lr": 0.1})),
    ]
    changes = {"optimizer": groups, "schedule": None, "clip_norm": 0.1, "accumulate": 2, "after_step": decay}
    kind = jobs.declare(dataclasses.replace(SMALL, name="two_classes", **changes))
    config = JobConfig(B=3, batch_size=8, threads=1, precision="fp64", hyper=HYPER)
    record = kind.check_equality(config, steps=4)
    assert record["passed"], record
    assert "torch.optim.Adam and SGD" in record["method"]
    with pytest.raises(InvalidArgument, match=r"optimizers of several classes, .* with a scale of the loss \(fp16\)"):
        kind(dataclasses.replace(config, precision="fp16")).setup()


@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16"])
def test_the_array_is_what_plain_models_are(Small, precision):
    config = JobConfig(B=3, batch_size=8, threads=1, precision=precision, hyper=HYPER)
    record = Small.check_equality(config, steps=20)
    assert record["passed"], record
    assert (record["steps"], record["models"]) == (20, 3)


def test_parts_are_trained_by_turns_each_by_its_own_optimizer(Adversarial, started):
    """Against the loop that everybody writes: the judge steps, and then judges what the forger steps on."""
    config = JobConfig(B=3, batch_size=8, threads=1, precision="fp64", hyper={"lr": [0.01, 0.02, 0.03]})
    assert Adversarial.check_equality(config, steps=10)["passed"]
    job = started(Adversarial, precision="fp64", hyper={"lr": [0.02]}, seed=4)
    own = job.build(0).model
    optimizers = {
        name: torch.optim.Adam(getattr(own, name).parameters(), lr=0.02, betas=(0.5, 0.999))
        for name in ("judge", "forger")
    }
    for i in range(5):
        x, z = job.batch(i)
        for name, of in (("judge", judged), ("forger", passed)):
            own.zero_grad()
            of(own, x, z).backward()
            optimizers[name].step()
        job.step()
    for (name, mine), its in zip(job.model.named_parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.parametrize("threads", [1, 2])
def test_parts_of_an_array_share_their_tensors(Adversarial, started, threads):
    job = started(Adversarial, B=3, threads=threads)
    before = {name: x.clone() for name, x in job.model.state_dict().items() if x.is_floating_point()}
    for _ in range(6):
        job.step()
    job.synchronize()
    assert len(job.optimizers) == 2
    assert len(job.losses()) == 3
    after = job.model.state_dict()
    assert all(not torch.equal(after[name], x) for name, x in before.items() if "weight" in name)


def test_a_loss_that_falls(Small, started):
    for B in (0, 2):
        job = started(
            Small,
            B=B,
            batch_size=32,
            hyper={**{n: v[:1] * max(B, 1) for n, v in HYPER.items()}, "lr": [0.1] * max(B, 1)},
        )
        history = []
        for _ in range(60):
            job.step()
            history.append(sum(job.losses()))
        assert sum(history[-10:]) < 0.8 * sum(history[:10])


def test_hyperparameters_are_the_samplers_and_reach_the_model(Small, started):
    import random

    drawn = Small.hyperparameters(random.Random(1), 2)
    assert set(drawn) == set(SMALL.hyper)
    job = started(Small, B=2, hyper=drawn)
    assert job.model[3].p.tolist() == pytest.approx(drawn["dropout"])
    assert job.optimizers[0].param_groups[0]["lr"].tolist() == pytest.approx(drawn["lr"])


def test_held_batches_need_no_loader(Small, started):
    for B in (0, 2):
        job = started(Small, B=B)
        job.step()
        assert job.hold_batches(3)
        job.batches = None
        for _ in range(5):
            job.step()
        assert all(0 < value < 10 for value in job.losses())


def test_held_batches_are_no_other_step(Small, started):
    job = started(Small, B=2)
    while job.training.runner.mode != "captured":
        job.step()
        job.synchronize()
    assert job.hold_batches(2)
    job.step()
    job.synchronize()
    assert job.training.runner.mode == "captured"


def test_provenance_tells_data_sizes_and_hyperparameters(Small, started):
    about = started(Small, B=2).provenance()
    assert about["data"] == {"source": "drawn"}
    assert about["model"] == {"width": 8}
    assert about["parameters_per_model"] == sum(p.numel() for p in model({"width": 8}, {"dropout": 0}).parameters())
    assert about["optimizer"] == "SGD"
    assert about["autocast"] is None
    assert about["hyper"]["lr"] == [0.01, 0.01]


def test_accuracy_is_of_what_was_not_trained_on(started):
    """Of each model as of it alone: norms by their running statistics, no dropout; and training goes on."""
    seen = []

    def held_out(config, options):
        seen.append(config.data_seed)
        return data(dataclasses.replace(config, data_seed=99), options)

    def accuracy(model, x, y):
        return (model(x).argmax(-1) == y).float().mean()

    kind = jobs.declare(
        dataclasses.replace(SMALL, name="scored", held_out=held_out, metric=jobs.Metric("accuracy", accuracy))
    )
    job = started(kind, B=3, hyper=HYPER)
    for _ in range(6):
        job.step()
    job.synchronize()
    found = job.held_out_metric()
    x, y = data(JobConfig(data_seed=99), {}).samples
    for plain, share in zip(dnnsuite.unfuse(job.trainee), found, strict=True):
        plain.eval()
        with torch.no_grad():
            assert share == pytest.approx(float(accuracy(plain.model, x, y)), abs=0.02)
    assert job.trainee.training
    job.step()
    assert 0 <= started(kind).held_out_metric()[0] <= 1
    assert len(seen) == 2


def test_nothing_held_out_is_no_accuracy(Small, started):
    assert started(Small, B=2).held_out_metric() is None


def test_inspection_makes_what_a_run_would(Small):
    size = sum(p.numel() for p in model({"width": 16}, {"dropout": 0}).parameters()) * 4
    assert Small.inspect(JobConfig(options={"width": 16}, unfused=["1"])) == size
    with pytest.raises(InvalidArgument, match="unfused='7' matches no module"):
        Small.inspect(JobConfig(unfused=["7"]))
    with pytest.raises(InvalidArgument, match="no option 'widht'"):
        Small.inspect(JobConfig(options={"widht": 16}))


def test_its_job_is_of_the_module_that_declares_it(Small):
    assert Small.__module__ == __name__
    assert Small.__name__ == "SmallJob"
    assert jobs.get("small", swept=True) is Small


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": Made("Adamm", {})}, "torch.optim has no Adamm"),
        ({"optimizer": Made("SparseAdam", {})}, "dnnsuite.optim has no SparseAdam"),
        ({"schedule": Made("Steps", {})}, "torch.optim.lr_scheduler has no Steps"),
        ({"name": "bert"}, "job 'bert' of dnnsuite's already"),
    ],
)
def test_refuses_what_cannot_be_made(changes, words):
    jobs.get("bert")
    with pytest.raises(InvalidArgument, match=words):
        jobs.declare(dataclasses.replace(SMALL, **{"name": "other", **changes}))


def test_a_part_that_the_model_has_not_is_refused(started):
    kind = jobs.declare(dataclasses.replace(SMALL, name="partial", loss={"head": loss}))
    with pytest.raises(InvalidArgument, match="no part 'head'"):
        started(kind)


def test_a_module_declares_a_name_once():
    jobs.declare(dataclasses.replace(SMALL, name="named_once"))
    jobs.declare(dataclasses.replace(SMALL, name="named_once"))  # again, as by a cell of a notebook
    with pytest.raises(InvalidArgument, match=f"there is a job 'named_once' of {__name__} already"):
        jobs.declare(dataclasses.replace(SMALL, name="named_once", model=lambda options, hyper: torch.nn.Linear(4, 3)))


def test_batches_of_the_model_are_refused_before_a_run():
    class Rolled:
        record, sizes = {"source": "drawn"}, {}

        def batch_of(self, model, i):
            return torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)

    rolled = dataclasses.replace(SMALL, name="rolled", data=None, rollouts=lambda config, options: Rolled())
    kind = jobs.declare(rolled)
    with pytest.raises(InvalidArgument, match="job rolled makes its batches with the model, which an array does not"):
        jobs.get("rolled", swept=True)
    with pytest.raises(InvalidArgument, match="which an array does not share: B must be 0, got 2"):
        kind(JobConfig(B=2))


def test_rollouts_are_declared_as_what_they_are():
    class Rolled:
        record, sizes, batch_of = {"source": "drawn"}, {}, None

    with pytest.raises(InvalidArgument, match="workload small needs either `data` or `rollouts`"):
        dataclasses.replace(SMALL, name="small", data=None)
    for own in ({"data": lambda config, options: Rolled()}, {"data": None, "rollouts": SMALL.data}):
        with pytest.raises(InvalidArgument, match="returns belongs into"):
            dataclasses.replace(SMALL, name="small", **own).batches(JobConfig(), SMALL.options)


def test_parts_of_a_batch_are_equal_in_an_array_of_several_optimizers():
    rest = jobs.Group(lambda name, parameter: True, Made("Adam", {"lr": "lr"}))
    groups = [jobs.Group(lambda name, parameter: parameter.ndim > 1, Made("SGD", {"lr": "lr"})), rest]
    kind = jobs.declare(dataclasses.replace(SMALL, name="uneven", optimizer=groups, schedule=None, accumulate=3))
    job = kind(JobConfig(B=2, batch_size=8))
    job.setup()
    with pytest.raises(InvalidArgument, match="a batch of 8 samples has no 3 equal parts"):
        job.step()
