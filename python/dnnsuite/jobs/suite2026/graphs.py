# SPDX-License-Identifier: MIT
"""Jobs on graphs.

`molecules` is graphs of the size of molecules: steps of messages along the bonds (AlgoPerf's task in form), a label for
each graph. The graphs are drawn: trees with a few bonds more. Two atoms are marked, and the label is how many bonds lie
between them on the shortest way, 1 to 4. All graphs have as many atoms, and edges that fill up a batch weigh nothing,
so that no count tells the label. Molecules of a data set have no such reader.

`rgat` is relational graph attention on sampled neighbourhoods, MLPerf's RGAT in form: the class of a node of a large
graph. The graph is planted: a node's neighbours of the first kind are mostly of its own class, of the second less
often, of the third as random ones are; its features say little. Seeds of a fifth of the nodes are held out.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

from ..._lazy import functional as F
from ..._lazy import torch
from ...data.batches import ArrayBatches, BatchesInTurn
from .._job import JobConfig
from ..declared_job import accuracy, classified, declare
from ..workload import HELD_OUT, Card, Made, Metric, Rate, Values, Workload, models, numbers_in, sizes

_ATOMS, _MARKS, _LABELS = 8, 3, 4
_MORE = 2  # bonds beside the tree's, at most


def graphs(config: JobConfig, options: Values, held_out: int = 0) -> BatchesInTurn:
    """Graphs `[N, ...]` as the network takes them, and their labels."""
    count, atoms = config.batch_size, options["atoms"]
    rows = torch.arange(count)

    def draw(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        # Atom i hangs on one of the three before it; then some bonds between any two.
        reach = torch.rand(count, atoms, generator=generator) * torch.arange(atoms).clamp(max=3)
        parent = torch.arange(atoms) - 1 - reach.long()
        more = torch.randint(atoms, (2, count, _MORE), generator=generator)
        ends = torch.cat([torch.arange(1, atoms).expand(count, -1), more[0]], 1)
        others = torch.cat([parent[:, 1:], more[1]], 1)
        kept = torch.cat([torch.ones(count, atoms - 1), torch.randint(2, (count, _MORE), generator=generator)], 1)
        near = torch.zeros(count, atoms, atoms, dtype=torch.bool)
        near[rows[:, None], ends, others] |= kept.bool()
        away = _distances(near | near.transpose(1, 2), _LABELS)
        one, two, label = _marked(away, generator)
        marks = torch.zeros(count, atoms, dtype=torch.long)
        marks[rows, one], marks[rows, two] = 1, 2
        kinds = torch.randint(_ATOMS, (count, atoms), generator=generator)
        both, back = torch.cat([ends, others], 1), torch.cat([others, ends], 1)
        return kinds, marks, both, back, torch.cat([kept, kept], 1), label

    return BatchesInTurn.drawn(draw, config.data_seed + held_out, "trees with rings")


def _distances(near: torch.Tensor, most: int) -> torch.Tensor:
    """Bonds on the shortest way between atoms `[N, atoms, atoms]`; 0 for an atom itself and for more than `most`."""
    reached = torch.eye(near.shape[1], dtype=torch.bool).expand_as(near)
    found = torch.zeros(near.shape, dtype=torch.long)
    for step in range(1, most + 1):
        after = reached | (reached.float() @ near.float() > 0)
        found[after & ~reached] = step
        reached = after
    return found


def _marked(away: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two atoms of each graph, with each distance as often, and the label."""
    count, atoms, _ = away.shape
    wanted = torch.randint(1, _LABELS + 1, (count,), generator=generator)
    fits = (away == wanted[:, None, None]).flatten(1).float() + 1e-9  # some pair, where none is so far apart
    pair = torch.multinomial(fits, 1, generator=generator).squeeze(1)
    one, two = pair // atoms, pair % atoms
    return one, two, (away[torch.arange(count), one, two] - 1).clamp(min=0)


declare(
    Workload(
        name="molecules",
        description="graphs: gather and scatter",
        unit="graphs",
        options={"steps": 5, "width": 48, "atoms": 24},
        model=lambda options, hyper: models.GraphNetwork(options["width"], options["steps"], _ATOMS, _MARKS, _LABELS),
        data=graphs,
        loss=classified,
        held_out=lambda config, options: graphs(config, options, HELD_OUT),
        metric=Metric("accuracy", accuracy, "more", {"quick": 0.65, "default": 0.9}),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.01}),
        hyper={"lr": 5e-3},
        rate=Rate(warmup=0.05, constant=0.3),
        clip_norm=1.0,
        # Six for each product of an atom: its message, and what it makes of what it hears.
        flops_per_item=lambda options: 6.0 * options["atoms"] * options["steps"] * 7 * options["width"] ** 2,
        presets=sizes((120, 64), (300, 128), (300, 512), width=256),
        card=Card(
            "graphs",
            "5 steps of messages, width 256",
            source=("xu2019",),
            about=(
                "drawn graphs in place of ogbg-molpcba, of one number of atoms",
                "AlgoPerf, whose steps and width these are, names no count of parameters, and its network also has "
                "states of edges and of the whole graph",
                "the label is the distance of two marked atoms: whether there is a ring, the first idea, was told by "
                "the count of edges",
                "the target is 0.65, not the prototype's 0.8: after so few steps some seeds do not tell the two "
                "largest distances apart, at 0.72 to 0.75, and others are exact",
            ),
        ),
    )
)


_KINDS, _CLASSES = 3, 6
_OWN = (0.8, 0.4, 0.0)  # chance that a neighbour of each kind is of the node's own class
_SIGNAL = 0.9


def rgat(options: Values, hyper: Values) -> torch.nn.Module:
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


def rgat_flops(options: Values) -> float:
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
        model=rgat,
        data=neighbourhoods,
        loss=classified,
        held_out=lambda config, options: neighbourhoods(config, options, train=False),
        metric=Metric("accuracy", accuracy, "more", {"quick": 0.6, "default": 0.65}),
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 5e-3},
        rate=Rate(warmup=0.05, constant=0.3),
        flops_per_item=rgat_flops,
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
