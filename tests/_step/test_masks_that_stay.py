# SPDX-License-Identifier: MIT
"""Shapes that follow from tensors which stay from step to step: masks of samples and edges of graphs."""

import copy
import types

import pytest
import torch

from dnnsuite import StepRunner, fuse, nn, optim

B, N, STEPS = 3, 12, 20
RATES = [0.01, 0.02, 0.03]


GRAPH = types.SimpleNamespace()  # the data of all models


@pytest.fixture
def graph():
    GRAPH.edges, GRAPH.trained = torch.randint(N, (2, 30)), torch.rand(N) > 0.4
    yield GRAPH
    vars(GRAPH).clear()


class Convolution(torch.nn.Module):
    """Sums what neighbours send, as layers for graphs do: without edges from a node to itself."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
        self.register_buffer("kept", torch.rand(8) > 0.3)
        self.register_buffer("visits", torch.zeros(N, dtype=torch.float64))

    def forward(self, x):
        edges = GRAPH.edges
        sources, targets = edges[:, edges[0] != edges[1]]
        sent = self.first(x).relu()
        return self.last(torch.zeros_like(sent).index_add(0, targets, sent[sources]) + sent)


class Pruned(Convolution):
    def forward(self, x):
        return super().forward(x) + self.first(x)[:, self.kept].sum(1, keepdim=True)


class Visited(Convolution):
    def forward(self, x):
        self.visits += (x[:, 0] > 1).double()
        out = super().forward(x)
        return out + out[self.visits > 0].mean()


class Numbered(Convolution):
    def forward(self, x):
        places = torch.nonzero(GRAPH.trained).flatten()
        return super().forward(x) * (torch.unique(places % 5) / 4).mean() + (places / N).mean()


def change_a_mask(graph, step):
    if step == 10:
        graph.trained[3] ^= True


def change_edges(graph, step):
    if step == 10:
        graph.edges[1, :4] = graph.edges[0, :4]
    if step == 15:
        graph.edges = torch.randint(N, (2, 33))


def draw_a_mask(graph, step):
    graph.trained.copy_(torch.rand(N) > 0.5)


CASES = {
    "edges": (Convolution, change_edges, "captured"),
    "a mask": (Convolution, change_a_mask, "captured"),
    "numbers of true ones": (Numbered, change_a_mask, "captured"),
    "a buffer": (Pruned, change_edges, "captured"),
    "a buffer that the step writes": (Visited, change_edges, "eager: Python looks into a tensor that the step changes"),
    "a mask of each step": (Convolution, draw_a_mask, "eager: the step looks into tensors that keep changing at"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "width"), [(1, None), (2, 1)])
def test_they_are_captured_and_their_changes_are_seen(graph, case, threads, width):
    kind, change, mode = CASES[case]
    models = [kind().double() for _ in range(B)]
    alone = copy.deepcopy(models)
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=RATES)
    optimizers = [torch.optim.SGD(model.parameters(), lr=lr) for model, lr in zip(alone, RATES, strict=True)]

    def loss(array, x, y):
        return nn.functional.mse_loss(array(x)[:, graph.trained], y[:, graph.trained])

    with StepRunner(array, optimizer, loss, threads=threads, width=width) as runner:
        for step in range(STEPS):
            change(graph, step)
            x, y = torch.randn(B, N, 8).double(), torch.randn(B, N, 4).double()
            losses = runner.step(x, y).losses()
            for i, (model, one) in enumerate(zip(alone, optimizers, strict=True)):
                own = torch.nn.functional.mse_loss(model(x[i])[graph.trained], y[i][graph.trained])
                one.zero_grad()
                own.backward()
                one.step()
                torch.testing.assert_close(losses[i], own.detach())
        assert runner.mode.startswith(mode)
