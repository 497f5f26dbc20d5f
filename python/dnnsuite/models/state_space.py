# SPDX-License-Identifier: MIT
"""A selective state space model in Mamba-2's matrix form: products inside chunks, a state handed on between them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..errors import InvalidArgument


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
