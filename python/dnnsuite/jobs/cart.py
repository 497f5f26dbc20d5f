# SPDX-License-Identifier: MIT
"""REINFORCE on the pole of a cart."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import games
from ..errors import InvalidArgument
from ._job import JobConfig, register
from ._plain_job import PlainJob

if TYPE_CHECKING:
    import torch


@register("cart")
class CartPole(PlainJob):
    """A policy of 4, 128, 2; a step is one of the environment, and every `update_every`th learns from those before it.

    REINFORCE (Williams, 1992): returns are discounted by `gamma` up to the end of the episode, and standardised over
    all those steps; Adam, 1e-2. The suite of 2019 let returns run on into the next episode: where each step is worth 1,
    a fall cost nothing, and nothing was learnt. It runs on the CPU, whatever the device: each step asks the policy for
    one action. The loss is that of the last update, 0 before the first.
    """

    description = "REINFORCE with a policy of 128 units on CartPole, on the CPU"
    unit = "env steps"
    defaults: ClassVar = {"batch_size": 1, "repeat": 200, "number": 1000, "gamma": 0.99, "update_every": 1000}
    smoke: ClassVar = {"repeat": 20, "number": 100, "update_every": 100}

    def __init__(self, config: JobConfig) -> None:
        import torch

        super().__init__(config)
        if config.batch_size != 1:
            raise InvalidArgument(f"cart plays one environment: batch_size must be 1, got {config.batch_size}")
        if self.options["update_every"] < 2:  # of one return there is no deviation
            raise InvalidArgument(f"update_every must be 2 or more, got {self.options['update_every']}")
        self.device = torch.device("cpu")
        self._environment: Any = None

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32"]

    def setup(self) -> None:
        import torch

        self._environment, self._source = games.cart_pole()
        seed_all(self.config.seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self._random = torch.Generator().manual_seed(self.config.data_seed)
        self._rewards: list[float] = []
        self._ends: list[bool] = []
        self._log_probabilities: list[torch.Tensor] = []
        self._loss = torch.zeros(())
        self._episode, self._episodes = 0.0, deque[float](maxlen=10)
        self._observation, _ = self._environment.reset(seed=self.config.data_seed)

    def batch(self) -> torch.Tensor:
        """Observation of the cart and the pole, `[1, 4]`."""
        import torch

        return torch.from_numpy(self._observation).unsqueeze(0)

    def train(self, batch: torch.Tensor) -> torch.Tensor:
        import torch

        log_probabilities = self.model(batch).log_softmax(1)
        action = torch.multinomial(log_probabilities.detach().exp(), 1, generator=self._random)
        self._log_probabilities.append(log_probabilities.gather(1, action)[0, 0])
        self._play(int(action))
        if len(self._rewards) == self.options["update_every"]:
            self._learn()
        return self._loss

    def _play(self, action: int) -> None:
        self._observation, reward, terminated, truncated, _ = self._environment.step(action)
        self._rewards.append(float(reward))
        self._ends.append(terminated or truncated)
        self._episode += float(reward)
        if self._ends[-1]:
            self._observation, _ = self._environment.reset()
            self._episodes.append(self._episode)
            self._episode = 0.0

    def _learn(self) -> None:
        import torch

        returns = standardized_returns(self._rewards, self._ends, self.options["gamma"])
        loss = -(torch.stack(self._log_probabilities) * returns).sum()
        self.update(loss, self.optimizer)
        self._loss = loss.detach()
        self._rewards.clear()
        self._ends.clear()
        self._log_probabilities.clear()

    def metrics(self) -> dict[str, float]:
        """Return the mean return of the last 10 episodes that ended."""
        last = self._episodes
        return {"episode_return": sum(last) / len(last)} if last else {}

    def provenance(self) -> dict[str, Any]:
        return {
            "data": {"source": self._source, "licence": "MIT"},
            "model": {"hidden": 128, "update_every": self.options["update_every"], "device": "cpu"},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": "Adam, lr 0.01",
        }

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()
            self._environment = None


def standardized_returns(rewards: list[float], ends: list[bool], gamma: float) -> torch.Tensor:
    """`[T]`: what follows each step, R_t = r_t + gamma R_{t+1}, or r_t where an episode ends; less the mean, over the
    (unbiased) deviation."""
    import torch

    returns, total = [], 0.0
    for reward, end in zip(reversed(rewards), reversed(ends), strict=True):
        total = reward if end else reward + gamma * total
        returns.append(total)
    values = torch.tensor(returns[::-1])
    return (values - values.mean()) / (values.std() + torch.finfo(torch.float32).eps)
