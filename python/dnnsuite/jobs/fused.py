# SPDX-License-Identifier: MIT
"""The eight workloads of HFTA's throughput study (MLSys 2021), each a declaration of one plain model.

`bert` is masked-language-model training. HFTA's script reads `--emsize 128` but builds its network from `--nhid` alone,
512 wide with a feed-forward of 2048, with 512 positions, three segments, and no norm of the embeddings. Here each
option names what it says, and the preset `paper` has the network that HFTA built. `transformer` is a causal language
model on words.

`mobilenet_v3_small`, `mobilenet_v3_large` and `resnet` classify images of 32 x 32, CIFAR-10. The MobileNets are
torchvision's. HFTA's squeeze and excite before the activation in the blocks that expand, which neither the paper nor
torchvision does; the parameters are as many.

PointNet (Qi et al., CVPR 2017) finds the class of a cloud of points, and the part of a chair that each point is of.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

from .. import data
from .._lazy import torch
from ._job import JobConfig
from .declared_job import accuracy, classified, declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

# Of cards: deviations from HFTA's code.
DECLARED = "one plain model is declared, and fused by the library: HFTA's code has a fused form written by hand"
ITERATIONS = "the number of iterations asked for is made: HFTA's epochs end with the data set"

ADADELTA = Made("Adadelta", {"lr": "lr"})
ADAM = Made("Adam", {"lr": "lr", "betas": ("beta1", "beta2"), "weight_decay": "weight_decay"})
STEPS = Made("StepLR", {"step_size": "step_size", "gamma": "gamma"})

# The middles of the ranges.
ADADELTA_MIDDLE = {"lr": 1.0, "gamma": 0.7, "step_size": 10}
ADAM_MIDDLE = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "gamma": 0.5, "step_size": 50}

# Of presets: a default protocol as it is on a GPU, and MobileNet's dry runs.
ON_CUDA = {"iters_per_epoch": 50, "plan": None, "max_num_Bs": 6, "budget_s": 180.0}
LONG_SEARCH = {mode: {"dry_run_iters_per_epoch": 200} for mode in ("concurrent", "mps", "mig", "hfta")}


def adadelta(generator: random.Random) -> dict[str, float]:
    """Draw the hyperparameters of a language model, from HFTA's ranges."""
    return {
        "lr": generator.uniform(0.1, 10.0),
        "gamma": generator.uniform(0.3, 0.99),
        "step_size": int(generator.uniform(3, 20)),
    }


def adam(generator: random.Random) -> dict[str, float]:
    """Draw the hyperparameters of a MobileNet or PointNet, from HFTA's ranges."""
    return {
        "lr": generator.uniform(1e-4, 3e-3),
        "beta1": generator.uniform(0.8, 0.99),
        "beta2": generator.uniform(0.9, 0.9999),
        "weight_decay": generator.uniform(0.0, 0.3),
        "gamma": generator.uniform(0.0, 0.5),
        "step_size": 10 * generator.randint(1, 10),
    }


def masked_text(config: JobConfig, options: Values) -> data.batches.ArrayBatches:
    """Sequences of a text with tokens to fill in: tokens `[N, L]`, masked positions `[N, P]`, what stood there."""
    source = config.data if config.data != "real" else "wikitext" if config.dataroot else "pydoc"
    corpus = data.text.load(source, config.dataroot, options["vocab_size"], config.data_seed)
    return data.text.masked(corpus, config.batch_size, options["bptt"], config.data_seed)


def bert(options: Values, hyper: Values) -> models.BERT:
    names = ("emsize", "nhid", "nlayers", "nhead", "dropout", "segments", "embedding_norm")
    sizes = {name: options[name] for name in names}
    length = max(options["bptt"], options["positions"])
    return models.BERT(torch.nn, options["vocab_size"], max_len=length, **sizes)


def masked_loss(model: Any, tokens: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the masked positions `[N, P]` in the sequences `[N, L]`."""
    return torch.nn.functional.cross_entropy(models.widened(model(tokens, positions)), targets.flatten())


HFTA = {
    "emsize": 512, "nhid": 2048, "vocab_size": 33_279, "positions": 512, "segments": 3, "embedding_norm": False,
}  # fmt: skip
BERT = Workload(
    name="bert",
    description="BERT masked-language model, 8 layers of 128, Adadelta + StepLR, on text",
    unit="sequences",
    options={
        "emsize": 128, "nhid": 512, "nlayers": 8, "nhead": 8, "dropout": 0.1, "bptt": 32, "vocab_size": 8192,
        "positions": 0, "segments": 0, "embedding_norm": True,
    },
    hyper=ADADELTA_MIDDLE,
    sample=adadelta,
    model=bert,
    data=masked_text,
    loss=masked_loss,
    optimizer=ADADELTA,
    schedule=STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options={"nlayers": 2, "vocab_size": 2048}),
        "default": Preset(3, 4, plan=(1, 2, 4), budget_s=95.0, cuda=ON_CUDA),
        "paper": Preset(5, 1000, repeats=3, max_num_Bs=10, options=HFTA),
    },
    card=Card(
        "language modelling",
        "BERT encoder of 8 layers, 8 heads; --preset paper has hidden 512",
        source=("devlin2019", "merity2017", "zeiler2012", "wang2021"),
        about=(
            DECLARED,
            "the default is 128 wide, to end in minutes: --preset paper is HFTA's network of 512",
        ),
    ),
)  # fmt: skip

declare(BERT)


def transformer(options: Values, hyper: Values) -> models.TransformerLanguageModel:
    return models.TransformerLanguageModel(
        options["vocab_size"], options["emsize"], options["nhead"], options["nlayers"], options["nhid"],
        options["dropout"], max_len=options["bptt"],
    )  # fmt: skip


def segments(config: JobConfig, options: Values) -> data.batches.ArrayBatches:
    """Tokens `[N, L]` and those that follow each, `[N, L]`."""
    text = data.words.load(config.data, config.dataroot, options["vocab_size"], config.data_seed)
    length = options["bptt"]
    rows = torch.tensor(text.train, dtype=torch.int64).unfold(0, length + 1, length)
    return data.batches.ArrayBatches(
        rows[:, :-1], rows[:, 1:], batch_size=config.batch_size, seed=config.data_seed,
        record=text.origin.record(), sizes={"vocab_size": text.vocab_size},
    )  # fmt: skip


def next_word_loss(model: Any, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the next token at every position."""
    return torch.nn.functional.cross_entropy(models.widened(model(tokens)).flatten(0, 1), targets.flatten())


TRANSFORMER = Workload(
    name="transformer",
    description="transformer language model, 2 layers of 128, Adadelta + StepLR, on text",
    unit="sequences",
    options={
        "emsize": 128, "nhid": 128, "nlayers": 2, "nhead": 2, "dropout": 0.2, "bptt": 32, "vocab_size": 8192,
    },
    hyper=ADADELTA_MIDDLE,
    sample=adadelta,
    model=transformer,
    data=segments,
    loss=next_word_loss,
    optimizer=ADADELTA,
    schedule=STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options={"vocab_size": 2048}),
        "default": Preset(3, 8, plan=(1, 2, 4), budget_s=95.0, cuda=ON_CUDA),
        "paper": Preset(5, 1000, repeats=3, max_num_Bs=10, options={"vocab_size": 33_278}),
    },
    card=Card(
        "language modelling",
        "transformer encoder of 2 layers of 128, 2 heads, dropout 0.2",
        source=("vaswani2017", "merity2017", "zeiler2012", "wang2021"),
        about=(DECLARED, "HFTA's own cannot be built: a module it imports was renamed"),
    ),
)  # fmt: skip

declare(TRANSFORMER)


def small(options: Values, hyper: Values) -> torch.nn.Module:
    return _torchvision("mobilenet_v3_small", options)


def large(options: Values, hyper: Values) -> torch.nn.Module:
    return _torchvision("mobilenet_v3_large", options)


def _torchvision(name: str, options: Values) -> torch.nn.Module:
    make: Callable[..., torch.nn.Module] = getattr(data.import_torchvision().models, name)
    return make(num_classes=data.cifar.CIFAR10_CLASSES, width_mult=options["width_mult"])


def resnet(options: Values, hyper: Values) -> models.ResNet:
    return models.ResNet18(data.cifar.CIFAR10_CLASSES, options["width"])


def images_and_classes(config: JobConfig, options: Values, train: bool = True) -> data.batches.ArrayBatches:
    """Images `[N, 3, 32, 32]`, normalised as ImageNet's are, and classes `[N]`; of the test part with `train` False."""
    found = data.cifar.load_cifar10(config.data, config.dataroot, config.data_seed, train)
    mean, deviation = (torch.tensor(x).view(3, 1, 1) for x in (data.imagenet.MEAN, data.imagenet.DEVIATION))

    def prepare(generator: torch.Generator, images: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (images.float() / 255 - mean) / deviation, classes.long()

    return data.batches.ArrayBatches(
        torch.tensor(found.images), torch.tensor(found.labels), batch_size=config.batch_size,
        seed=config.data_seed, record=found.origin.record(), prepare=prepare,
    )  # fmt: skip


def _rate(generator: random.Random) -> dict[str, float]:
    return {"lr": generator.uniform(0.1, 10.0)}


_SMALL_CARD = Card(
    "image classification",
    "torchvision's MobileNetV3-Small, 10 classes, 32 x 32",
    source=("howard2019", "krizhevsky2009", "wang2021"),
    about=(DECLARED, ITERATIONS, "squeeze and excite follows the activation, as in the paper: HFTA has it before"),
)
SMALL = Workload(
    name="mobilenet_v3_small",
    description="MobileNetV3-Small on images of 32 x 32, Adam + StepLR",
    unit="images",
    options={"width_mult": 1.0},
    hyper=ADAM_MIDDLE,
    sample=adam,
    model=small,
    data=images_and_classes,
    loss=classified,
    held_out=functools.partial(images_and_classes, train=False),
    metric=Metric("accuracy", accuracy),
    optimizer=ADAM,
    schedule=STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options={"width_mult": 0.5}),
        "default": Preset(3, 4, batch_size=64, plan=(1, 2, 4), budget_s=95.0, cuda=ON_CUDA),
        "paper": Preset(20, 500, batch_size=1024, repeats=3, max_num_Bs=10, search=LONG_SEARCH),
    },
    card=_SMALL_CARD,
)
LARGE = dataclasses.replace(
    SMALL,
    name="mobilenet_v3_large",
    description="MobileNetV3-Large on images of 32 x 32, Adam + StepLR",
    model=large,
    card=_SMALL_CARD._replace(model="torchvision's MobileNetV3-Large, 10 classes, 32 x 32"),
)
RESNET = dataclasses.replace(
    SMALL,
    name="resnet",
    description="ResNet-18 on images of 32 x 32, Adadelta",
    options={"width": 64},
    hyper={"lr": 1.0},
    sample=_rate,
    model=resnet,
    optimizer=ADADELTA,
    schedule=None,
    # The order in which HFTA leaves them unfused: blocks, classifier, stem.
    units=(*([f"layer{i}.{j}"] for i in (1, 2, 3, 4) for j in (0, 1)), ["fc"], ["conv1", "bn1", "relu", "maxpool"]),
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options={"width": 16}),
        "default": Preset(3, 4, batch_size=64, plan=(1, 2, 4), budget_s=95.0, cuda=ON_CUDA),
        "paper": Preset(5, 1000, batch_size=128, repeats=3, max_num_Bs=10),
    },
    card=Card(
        "image classification",
        "ResNet-18 without average pool, 10 classes, 32 x 32",
        source=("he2016", "krizhevsky2009", "zeiler2012", "wang2021"),
        about=(DECLARED, "iterations per epoch are those asked for: HFTA parses the flag and does not use it"),
    ),
)

for workload in (SMALL, LARGE, RESNET):
    declare(workload)


_HELD_OUT_SEED = 1 << 32  # beyond the seeds of training
_ORTHOGONALITY = 0.001  # weight of the feature transforms' distance from rotations


def classifier(options: Values, hyper: Values) -> models.PointNetClassifier:
    classes, transform = len(data.point_clouds.SOLIDS), options["feature_transform"]
    return models.PointNetClassifier(classes, transform, options["dropout"], options["width"])


def segmenter(options: Values, hyper: Values) -> models.PointNetSegmenter:
    classes, transform = len(data.point_clouds.CHAIR_PARTS), options["feature_transform"]
    return models.PointNetSegmenter(classes, transform, options["width"])


def solids(config: JobConfig, options: Values, train: bool = True) -> data.batches.ArrayBatches:
    """Points `[N, 3, P]` and classes `[N]`: ShapeNet's sixteen categories, else as many analytic solids."""
    shapes = data.point_clouds.load_shapes(config.data, config.dataroot, "train" if train else "test")
    if shapes is not None:
        return data.point_clouds.shape_batches(shapes, options["points"], config.batch_size, config.data_seed)
    return _drawn(data.point_clouds.solids, 1024, config, options, train)


def chairs(config: JobConfig, options: Values, train: bool = True) -> data.batches.ArrayBatches:
    """Points `[N, 3, P]` and their parts `[N, P]`: ShapeNet's chairs, else chairs made of boxes."""
    shapes = data.point_clouds.load_shapes(config.data, config.dataroot, "train" if train else "test", "Chair")
    if shapes is not None:
        parts = len(data.point_clouds.CHAIR_PARTS)
        return data.point_clouds.shape_batches(shapes, options["points"], config.batch_size, config.data_seed, parts)
    return _drawn(data.point_clouds.chairs, 256, config, options, train)


def _drawn(draw: Any, count: int, config: JobConfig, options: Values, train: bool) -> data.batches.ArrayBatches:
    seed = config.data_seed if train else config.data_seed + _HELD_OUT_SEED
    clouds = draw(config.data, count, options["points"], seed)
    return data.batches.ArrayBatches(
        torch.from_numpy(clouds.points), torch.from_numpy(clouds.labels), batch_size=config.batch_size,
        seed=config.data_seed, record=clouds.origin.record(),
    )  # fmt: skip


def cloud_loss(model: Any, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the clouds or of their points, and the distance of the feature transforms from rotations."""
    logits, transform = model(points)
    error = torch.nn.functional.cross_entropy(models.widened(logits).flatten(0, -2), labels.flatten())
    if transform is None:
        return error
    return error + _ORTHOGONALITY * models.orthogonality_loss(models.widened(transform))


def cloud_accuracy(model: Any, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Share of the clouds, or of their points, with the right label."""
    return (model(points)[0].argmax(-1) == labels).float().mean()


_QUICK = {"points": 256, "width": 256}
CLASSIFY = Workload(
    name="pointnet_cls",
    description="PointNet that classifies clouds of points, Adam + StepLR",
    unit="clouds",
    options={"points": 2500, "width": 1024, "feature_transform": True, "dropout": 0.3},
    hyper=ADAM_MIDDLE,
    sample=adam,
    model=classifier,
    data=solids,
    loss=cloud_loss,
    held_out=functools.partial(solids, train=False),
    metric=Metric("accuracy", cloud_accuracy),
    optimizer=ADAM,
    schedule=STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options=_QUICK),
        "default": Preset(3, 8, batch_size=8, plan=(1, 2, 4), budget_s=95.0, options=_QUICK, cuda=ON_CUDA),
        "paper": Preset(5, 1000, repeats=3, max_num_Bs=10),
    },
    card=Card(
        "point clouds",
        "PointNet with a feature transform, 16 classes, 2500 points",
        source=("qi2017", "chang2015", "wang2021"),
        about=(DECLARED, ITERATIONS, "clouds are sampled from sixteen analytic solids where ShapeNet is not there"),
    ),
)
SEGMENT = dataclasses.replace(
    CLASSIFY,
    name="pointnet_seg",
    description="PointNet that finds the parts of chairs in clouds of points, Adam + StepLR",
    options={"points": 2500, "width": 1024, "feature_transform": True},
    model=segmenter,
    data=chairs,
    held_out=functools.partial(chairs, train=False),
    presets={**CLASSIFY.presets, "paper": Preset(10, 1000, repeats=3, max_num_Bs=10)},
    card=Card(
        "point clouds",
        "PointNet for parts with a feature transform, 4 parts, 2500 points",
        source=("qi2017", "chang2015", "wang2021"),
        about=(DECLARED, ITERATIONS, "clouds are sampled from chairs of boxes where ShapeNet is not there"),
    ),
)

for workload in (CLASSIFY, SEGMENT):
    declare(workload)
