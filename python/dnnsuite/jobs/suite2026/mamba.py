# SPDX-License-Identifier: MIT
"""A selective state space model in Mamba-2's matrix form: products inside chunks, a state handed on between them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...errors import InvalidArgument
from ..declared_job import declare
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .decoder import OF_TEXT, SIZES, Decoder, bits, loss


class StateSpace(nn.Module):
    """h_t = exp(-a dt_t) h_(t-1) + dt_t B_t x_t, y_t = C_t h_t + D x_t for each head, after a short convolution."""

    def __init__(self, width: int, head: int, state: int, chunk: int) -> None:
        super().__init__()
        self.inner, self.state, self.chunk = 2 * width, state, chunk
        self.heads, self.head = self.inner // head, head
        mixed = self.inner + 2 * state
        self.enter = nn.Linear(width, self.inner + mixed + self.heads, bias=False)
        self.local = nn.Conv1d(mixed, mixed, 4, padding=3, groups=mixed)
        self.step = nn.Parameter(torch.linspace(-4.0, 0.0, self.heads))
        self.decay = nn.Parameter(torch.linspace(1.0, 8.0, self.heads).log())
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.norm = nn.RMSNorm(self.inner, eps=1e-6)
        self.leave = nn.Linear(self.inner, width, bias=False)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        n, length, _ = u.shape
        if length % self.chunk:
            raise InvalidArgument(f"length {length} is not a multiple of the chunk {self.chunk}")
        gate, x, dt = self.enter(u).split([self.inner, self.inner + 2 * self.state, self.heads], -1)
        x = F.silu(self.local(x.transpose(1, 2))[..., :length].transpose(1, 2))
        x, enters, leaves = x.split([self.inner, self.state, self.state], -1)
        x = x.reshape(n, length, self.heads, self.head)
        dt = F.softplus(dt + self.step)
        mixed = self._scan(x * dt[..., None], -dt * self.decay.exp(), enters, leaves)
        mixed = (mixed + x * self.skip[:, None]).reshape(n, length, self.inner)
        return self.leave(self.norm(mixed * F.silu(gate)))

    def _scan(self, x: Any, log_decay: Any, enters: Any, leaves: Any) -> torch.Tensor:
        """Outputs `[N, L, H, E]` of inputs x `[N, L, H, E]`, decays `[N, L, H]` and vectors `[N, L, S]`."""
        n, length, _, _ = x.shape
        chunks = length // self.chunk
        x = x.view(n, chunks, self.chunk, self.heads, self.head).transpose(2, 3)  # [N, K, H, c, E]
        total = log_decay.view(n, chunks, self.chunk, self.heads).transpose(2, 3).cumsum(-1)  # [N, K, H, c]
        enters, leaves = (part.reshape(n, chunks, 1, self.chunk, self.state) for part in (enters, leaves))
        later = torch.ones(self.chunk, self.chunk, dtype=torch.bool, device=x.device).triu(1)
        between = (total[..., :, None] - total[..., None, :]).masked_fill(later, float("-inf")).exp()
        inside = ((leaves @ enters.transpose(-1, -2)) * between) @ x
        made = enters.transpose(-1, -2) @ ((total[..., -1:] - total).exp()[..., None] * x)  # [N, K, H, S, E]
        keeps = total[..., -1].exp()[..., None, None]
        state, before = torch.zeros_like(made[:, 0]), []
        for k in range(chunks):
            before.append(state)
            state = state * keeps[:, k] + made[:, k]
        carried = (leaves @ torch.stack(before, 1)) * total.exp()[..., None]
        return (inside + carried).transpose(2, 3).reshape(n, length, self.heads, self.head)


class _Layer(nn.Module):
    def __init__(self, options: Values) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(options["width"], eps=1e-6)
        self.space = StateSpace(options["width"], options["head"], options["state"], options["chunk"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.space(self.norm(x))


def flops(options: Values) -> float:
    width, state, chunk = options["width"], options["state"], options["chunk"]
    inner = 2 * width
    projections = width * (3 * inner + 2 * state + inner // options["head"])
    scan = chunk * (state + inner) + 2 * state * inner + 4 * (inner + 2 * state)
    return 6.0 * (options["layers"] * (projections + scan) + options["vocab"] * width)


_PAPER = {"layers": 24, "width": 768, "head": 64, "state": 128, "chunk": 256, "vocab": 50_288, "length": 2048}
declare(
    Workload(
        name="mamba",
        description="a selective state space model learns text",
        **OF_TEXT,
        options={**SIZES, "width": 64, "head": 32, "state": 16, "chunk": 32},
        model=lambda options, hyper: Decoder(options, lambda: _Layer(options)),
        loss=loss,
        metric=Metric("bits per token", bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "betas": (0.9, 0.95), "weight_decay": 0.01}),
        hyper={"lr": 4e-3},
        rate=Rate(warmup=0.1, constant=0.5),
        flops_per_item=flops,
        presets={
            "quick": Preset(3, 50, batch_size=8, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 200, batch_size=32, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 1000, batch_size=4, repeats=3, max_num_Bs=4, options=_PAPER),
        },
    )
)
