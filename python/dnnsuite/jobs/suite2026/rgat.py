# SPDX-License-Identifier: MIT
"""Relational graph attention on sampled neighbourhoods, MLPerf's RGAT in form: the class of a node of a large graph.

The graph is planted: a node's neighbours of the first kind are mostly of its own class, of the second less often, of
the third as random ones are; its features say little. Seeds of a fifth of the nodes are held out.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

from ..._lazy import functional as F
from ..._lazy import torch
from ...data.batches import ArrayBatches
from .._job import JobConfig
from ..declared_job import accuracy, classified, declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, numbers_in, sizes

_KINDS, _CLASSES = 3, 6
_OWN = (0.8, 0.4, 0.0)  # chance that a neighbour of each kind is of the node's own class
_SIGNAL = 0.9


def model(options: Values, hyper: Values) -> torch.nn.Module:
    widths = [options["features"], *[options["width"]] * options["layers"]]
    return models.GraphAttention(widths, options["heads"], _KINDS, numbers_in(options["fan"]), options["classes"])


@lru_cache(maxsize=2)
def _graph(nodes: int, features: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, classes and 8 neighbours of each kind `[V, kinds, 8]` of every node."""
    generator = torch.Generator().manual_seed(3)
    kind = torch.randint(classes, (nodes,), generator=generator)
    x = torch.randn(nodes, features, generator=generator) + _SIGNAL * F.one_hot(kind % features, features)
    order, counts = kind.argsort(), kind.bincount(minlength=classes)
    first = counts.cumsum(0) - counts
    any_one = torch.randint(nodes, (nodes, _KINDS, 8), generator=generator)
    alike = first[kind][:, None, None] + any_one % counts[kind][:, None, None]
    takes = torch.rand(nodes, _KINDS, 8, generator=generator) < torch.tensor(_OWN)[:, None]
    return x, kind, torch.where(takes, order[alike], any_one)


def neighbourhoods(config: JobConfig, options: Values, train: bool = True) -> ArrayBatches:
    """Features of sampled neighbourhoods, the seeds that they are of, and the seeds' classes."""
    x, kind, near = _graph(options["nodes"], options["features"], options["classes"])
    split = options["nodes"] * 4 // 5

    def prepare(generator: torch.Generator, seeds: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nodes = seeds
        for fan in numbers_in(options["fan"]):
            chosen = torch.randint(near.shape[2], (len(nodes), _KINDS, fan), generator=generator)
            nodes = torch.cat([nodes, near[nodes].gather(2, chosen).flatten()])
        return x[nodes], seeds, kind[seeds]

    seeds = torch.arange(split) if train else torch.arange(split, options["nodes"])
    record = {"source": "drawn: a planted graph", "licence": "none needed"}
    return ArrayBatches(seeds, batch_size=config.batch_size, seed=config.data_seed, record=record, prepare=prepare)


def flops(options: Values) -> float:
    counts, found, width = [1], 0.0, options["width"]
    for fan in numbers_in(options["fan"]):
        counts.append(counts[-1] * (1 + _KINDS * fan))
    for layer, (there, count) in enumerate(itertools.pairwise(counts[::-1])):
        before, each = (width, 6) if layer else (options["features"], 4)
        found += each * before * width * (_KINDS * there + count) + 6 * _KINDS * there * width * 2 * options["heads"]
    return found + 6.0 * width * options["classes"]


declare(
    Workload(
        name="rgat",
        description="sampled neighbourhoods of a large graph",
        unit="nodes",
        options={
            "layers": 2, "width": 16, "heads": 2, "fan": "2 2", "features": 16, "classes": _CLASSES, "nodes": 6000,
        },
        model=model,
        data=neighbourhoods,
        loss=classified,
        held_out=lambda config, options: neighbourhoods(config, options, train=False),
        metric=Metric("accuracy", accuracy, "more", {"quick": 0.6, "default": 0.65}),
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 5e-3},
        rate=Rate(warmup=0.05, constant=0.3),
        flops_per_item=flops,
        presets=sizes(
            (150, 64), (500, 128), (100, 1024),
            layers=3, width=512, heads=4, fan="5 3 2", features=1024, classes=2983, nodes=200_000,
        ),
        card=Card(
            "graphs",
            "3 layers of 512, 4 heads, 1024 features, 2983 classes",
            source=("busbridge2019",),
            about=(
                "a planted graph in place of IGBH, with three kinds of edges; the neighbours of each kind are sampled "
                "apart",
                "MLPerf names 25 M parameters for all kinds of edges of IGBH; for three kinds nobody names a count",
                "the target is 0.6, not the 0.72 first written down for it, which a sound one misses on some seeds",
            ),
        ),
    )
)  # fmt: skip
