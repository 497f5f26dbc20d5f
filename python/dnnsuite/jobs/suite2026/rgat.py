# SPDX-License-Identifier: MIT
"""Relational graph attention on sampled neighbourhoods, MLPerf's RGAT in form: the class of a node of a large graph.

The graph is planted: a node's neighbours of the first kind are mostly of its own class, of the second less often, of
the third as random ones are; its features say little. Seeds of a fifth of the nodes are held out.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional as F

from ...data.batches import ArrayBatches
from .._job import JobConfig
from ..declared_job import accuracy, classified, declare
from ..workload import Made, Metric, Preset, Rate, Values, Workload

_KINDS, _CLASSES = 3, 6
_OWN = (0.8, 0.4, 0.0)  # chance that a neighbour of each kind is of the node's own class
_SIGNAL = 0.9


class Attention(nn.Module):
    """Nodes with features `[V, width]` hear their neighbours of each kind; softmax over all that a node hears."""

    def __init__(self, before: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.values = nn.ModuleList(nn.Linear(before, width, bias=False) for _ in range(_KINDS))
        self.scores = nn.ModuleList(nn.Linear(width, 2 * heads, bias=False) for _ in range(_KINDS))
        self.own = nn.Linear(before, width)

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, count: int) -> torch.Tensor:
        """Return features of the first `count` nodes.

        Args:
            source, target: nodes at the ends of the edges of each kind, `[kinds, E]`.
        """
        values, scores = [], []
        for kind, (linear, scored) in enumerate(zip(self.values, self.scores, strict=True)):
            own = linear(x)
            sent, heard = scored(own).chunk(2, -1)
            values.append(own[source[kind]])
            scores.append(F.leaky_relu(sent[source[kind]] + heard[target[kind]], 0.2))
        at, score = target.flatten(), torch.cat(scores)
        most = score.new_full((count, self.heads), -1e9).scatter_reduce(0, at[:, None].expand_as(score), score, "amax")
        weight = (score - most[at]).exp()
        weight = weight / weight.new_zeros(count, self.heads).index_add(0, at, weight)[at]
        mixed = (torch.cat(values).view(len(at), self.heads, -1) * weight[..., None]).flatten(1)
        own = self.own(x[:count])
        return F.elu(own + own.new_zeros(own.shape).index_add(0, at, mixed.to(own.dtype)))


class GraphAttention(nn.Module):
    """Features `[V, features]` of seeds, of their neighbours, and so on → logits of the seeds `[N, 6]`."""

    def __init__(self, options: Values) -> None:
        super().__init__()
        widths = [options["features"], *[options["width"]] * options["layers"]]
        self.layers = nn.ModuleList(Attention(i, o, options["heads"]) for i, o in itertools.pairwise(widths))
        self.fan = [int(each) for each in options["fan"].split()]
        self.leave = nn.Linear(widths[-1], options["classes"])

    def forward(self, x: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        counts = [len(seeds)]
        for fan in self.fan:
            counts.append(counts[-1] * (1 + _KINDS * fan))
        for layer, fan, count in zip(self.layers, self.fan[::-1], counts[-2::-1], strict=True):
            x = layer(x[: count * (1 + _KINDS * fan)], *_edges(count, fan, x.device), count)
        return self.leave(x)


def _edges(count: int, fan: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both ends of the edges of each kind: neighbours follow the nodes, those of one kind and node together."""
    source = count + torch.arange(count * _KINDS * fan, device=device).view(count, _KINDS, fan)
    target = torch.arange(count, device=device)[:, None, None].expand_as(source)
    return tuple(ends.transpose(0, 1).flatten(1) for ends in (source, target))  # type: ignore[return-value]


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
        for fan in (int(each) for each in options["fan"].split()):
            chosen = torch.randint(near.shape[2], (len(nodes), _KINDS, fan), generator=generator)
            nodes = torch.cat([nodes, near[nodes].gather(2, chosen).flatten()])
        return x[nodes], seeds, kind[seeds]

    seeds = torch.arange(split) if train else torch.arange(split, options["nodes"])
    record = {"source": "drawn: a planted graph", "licence": "none needed"}
    return ArrayBatches(seeds, batch_size=config.batch_size, seed=config.data_seed, record=record, prepare=prepare)


def flops(options: Values) -> float:
    counts, found, width = [1], 0.0, options["width"]
    for fan in options["fan"].split():
        counts.append(counts[-1] * (1 + _KINDS * int(fan)))
    for layer, (there, count) in enumerate(itertools.pairwise(counts[::-1])):
        before, each = (width, 6) if layer else (options["features"], 4)
        found += each * before * width * (_KINDS * there + count) + 6 * _KINDS * there * width * 2 * options["heads"]
    return found + 6.0 * width * options["classes"]


_PAPER = {
    "layers": 3, "width": 512, "heads": 4, "fan": "5 3 2", "features": 1024, "classes": 2983, "nodes": 200_000,
}  # fmt: skip
declare(
    Workload(
        name="rgat",
        description="attention over sampled neighbours of three kinds learns classes of nodes",
        unit="nodes",
        options={
            "layers": 2, "width": 16, "heads": 2, "fan": "2 2", "features": 16, "classes": _CLASSES, "nodes": 6000,
        },
        model=lambda options, hyper: GraphAttention(options),
        data=neighbourhoods,
        loss=classified,
        held_out=lambda config, options: neighbourhoods(config, options, train=False),
        metric=Metric("accuracy", accuracy, "more", {"quick": 0.6, "default": 0.65}),
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 5e-3},
        rate=Rate(warmup=0.05, constant=0.3),
        flops_per_item=flops,
        presets={
            "quick": Preset(3, 150, batch_size=64, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 500, batch_size=128, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 100, batch_size=1024, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)  # fmt: skip
