# SPDX-License-Identifier: MIT
"""Networks of graphs: messages along edges (Xu et al., 2019), attention over neighbours (Busbridge et al., 2019)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F


class _Step(nn.Module):
    """Add up the messages of the neighbours, then update each atom (Xu et al., 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Linear(width, width)
        self.change = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        sent = torch.relu(self.message(x))[source] * there[:, None]
        found = torch.zeros_like(x).index_add(0, target, sent.to(x.dtype))
        return self.norm(x + self.change(torch.cat([x, found], -1)))


class GraphNetwork(nn.Module):
    """Map kinds and marks of atoms `[N, atoms]`, and edges `[N, edges]` with weights, to logits `[N, classes]`."""

    def __init__(self, width: int, steps: int, kinds: int, marks: int, classes: int) -> None:
        super().__init__()
        self.kind, self.mark = nn.Embedding(kinds, width), nn.Embedding(marks, width)
        self.steps = nn.ModuleList(_Step(width) for _ in range(steps))
        self.leave = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(
        self, kinds: torch.Tensor, marks: torch.Tensor, source: torch.Tensor, target: torch.Tensor, there: torch.Tensor
    ) -> torch.Tensor:
        graphs, atoms = kinds.shape
        x = (self.kind(kinds) + self.mark(marks)).flatten(0, 1)
        first = (torch.arange(graphs, device=kinds.device) * atoms)[:, None]
        edges = ((source + first).flatten(), (target + first).flatten(), there.flatten())
        for step in self.steps:
            x = step(x, *edges)
        x = x.view(graphs, atoms, -1)
        return self.leave(torch.cat([x.mean(1), x.amax(1)], -1))


class _Relations(nn.Module):
    """Nodes with features `[V, width]` hear their neighbours of each kind; softmax over all that a node hears."""

    def __init__(self, before: int, width: int, heads: int, kinds: int) -> None:
        super().__init__()
        self.heads = heads
        self.values = nn.ModuleList(nn.Linear(before, width, bias=False) for _ in range(kinds))
        self.scores = nn.ModuleList(nn.Linear(width, 2 * heads, bias=False) for _ in range(kinds))
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
    """Map features `[V, F]` of seeds, their neighbours of each kind, and so on, to logits of the seeds `[N, classes]`.

    Args:
        widths: numbers of features, F first.
        fan: number of sampled neighbours of each kind, of the seeds first.
    """

    def __init__(self, widths: Sequence[int], heads: int, kinds: int, fan: Sequence[int], classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Relations(i, o, heads, kinds) for i, o in itertools.pairwise(widths))
        self.fan, self.kinds, self.leave = list(fan), kinds, nn.Linear(widths[-1], classes)

    def forward(self, x: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        counts = [len(seeds)]
        for fan in self.fan:
            counts.append(counts[-1] * (1 + self.kinds * fan))
        for layer, fan, count in zip(self.layers, self.fan[::-1], counts[-2::-1], strict=True):
            x = layer(x[: count * (1 + self.kinds * fan)], *_edges(count, self.kinds, fan, x.device), count)
        return self.leave(x)


def _edges(count: int, kinds: int, fan: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both ends of the edges of each kind: neighbours follow the nodes, those of one kind and node together."""
    source = count + torch.arange(count * kinds * fan, device=device).view(count, kinds, fan)
    target = torch.arange(count, device=device)[:, None, None].expand_as(source)
    return tuple(ends.transpose(0, 1).flatten(1) for ends in (source, target))  # type: ignore[return-value]
