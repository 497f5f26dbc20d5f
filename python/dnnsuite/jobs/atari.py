# SPDX-License-Identifier: MIT
"""Proximal policy optimisation on Pong."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .._seeds import seed_all
from ..data import games
from ..errors import InvalidArgument
from ._job import JobConfig, register
from ._plain_job import PlainJob

if TYPE_CHECKING:
    import numpy as np
    import torch

_LEARNING_RATE, _EPOCHS, _GAMMA, _LAMBDA, _GRADIENT_NORM = 7e-4, 4, 0.99, 0.95, 0.5
FRAMES_OF_A_TRAINING = 10_000_000  # over which the learning rate falls to 0


class Rollout(NamedTuple):
    """A rollout of E environments for T steps: images uint8 `[T, E, 4, 84, 84]`; all others `[T, E]`, on the device."""

    images: torch.Tensor
    actions: torch.Tensor
    log_probabilities: torch.Tensor
    values: torch.Tensor
    returns: torch.Tensor


@register("atari")
class Atari(PlainJob):
    """PPO with a convolutional policy; a step plays 128 frames in each of 8 games and learns 4 times from all of them.

    A frame is what the policy sees and answers: the emulator makes 4 for each, which are not counted. The suite of 2019
    counted updates times games, 128 frames each. Playing is the wait for data. Adam 7e-4, falling; the batch size is
    the number of games (`num_processes`, which wins).
    """

    description = "PPO with a convolutional policy on 8 games of Pong"
    unit = "frames"
    defaults: ClassVar = {
        "batch_size": 8,
        "repeat": 30,
        "number": 10,
        "env_name": "PongNoFrameskip-v4",
        "num_steps": 128,
        "num_processes": 8,
        "num_mini_batch": 4,
        "clip_param": 0.1,
        "value_loss_coef": 0.5,
        "entropy_coef": 0.01,
    }
    smoke: ClassVar = {"repeat": 4, "number": 1, "num_processes": 2}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        steps, copies, parts = (self.options[name] for name in ("num_steps", "num_processes", "num_mini_batch"))
        if min(steps, copies, parts) < 1 or steps * copies < parts:
            raise InvalidArgument(
                f"num_steps {steps} x num_processes {copies} must be num_mini_batch {parts} or more, and each 1 or more"
            )
        self._environment: Any = None

    def setup(self) -> None:
        import numpy as np
        import torch

        from ..models.nature_cnn import NatureCNN

        options = self.options
        self._environment, self._source = games.atari(
            options["env_name"], options["num_processes"], self.config.threads or 0
        )
        seed_all(self.config.seed)
        self.model = NatureCNN(int(self._environment.single_action_space.n)).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=_LEARNING_RATE, eps=1e-5)
        self._random = torch.Generator(self.device).manual_seed(self.config.data_seed)
        self._updates = 0
        self._scores = np.zeros(options["num_processes"])
        self._ended = deque[float](maxlen=10)
        self._images, _ = self._environment.reset(seed=self.config.data_seed)

    @property
    def items_per_step(self) -> int:
        return int(self.options["num_steps"] * self.options["num_processes"])

    def batch(self) -> Rollout:
        """Play: the present policy, in every game at once."""
        import torch

        with torch.no_grad():
            return self._rollout()

    def _rollout(self) -> Rollout:
        import numpy as np
        import torch

        from ._ppo import returns

        seen, kept, rewards, alive = [], [], [], []
        for _ in range(self.options["num_steps"]):
            images = torch.from_numpy(self._images).to(self.device)
            log_probabilities, value = self._think(images)
            action = torch.multinomial(log_probabilities.exp(), 1, generator=self._random)
            seen.append(images)
            kept.append((action.squeeze(1), log_probabilities.gather(1, action).squeeze(1), value))
            reward, end = self._play(action.squeeze(1).cpu().numpy())
            rewards.append(reward)
            alive.append(1.0 - end)
        actions, chosen, values = (torch.stack(column) for column in zip(*kept, strict=True))
        _, last = self._think(torch.from_numpy(self._images).to(self.device))
        rewards_and_ends = torch.from_numpy(np.stack([rewards, alive]).astype(np.float32)).to(self.device)
        everything = torch.cat((values, last.unsqueeze(0)))
        found = returns(rewards_and_ends[0], everything, rewards_and_ends[1], _GAMMA, _LAMBDA)
        return Rollout(torch.stack(seen), actions, chosen, values, found)

    def _think(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of actions and value of each state, in fp32."""
        with self.autocast():
            logits, value = self.model(images)
        return logits.float().log_softmax(1), value.float()

    def _play(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._images, reward, terminated, truncated, _ = self._environment.step(actions)
        end = terminated | truncated
        self._scores += reward
        self._ended.extend(self._scores[end].tolist())
        self._scores[end] = 0.0
        return reward, end

    def train(self, batch: Rollout) -> torch.Tensor:
        """Learn from a rollout; return the mean of the policy's losses `[]`."""
        import torch

        advantages = batch.returns - batch.values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)
        flat = Rollout(*(part.flatten(0, 1) for part in batch))
        self._decay()
        count = self.items_per_step
        size = count // self.options["num_mini_batch"]
        losses = []
        for _ in range(_EPOCHS):
            order = torch.randperm(count, generator=self._random, device=self.device)
            for at in range(0, size * self.options["num_mini_batch"], size):
                rows = order[at : at + size]
                losses.append(self._learn(Rollout(*(part[rows] for part in flat)), advantages.flatten()[rows]))
        self._updates += 1
        return torch.stack(losses).mean()

    def _learn(self, part: Rollout, advantages: torch.Tensor) -> torch.Tensor:
        from ._ppo import clipped_loss

        with self.autocast():
            logits, values = self.model(part.images)
        loss = clipped_loss(
            logits.float(),
            values.float(),
            part.actions,
            part.log_probabilities,
            part.values,
            part.returns,
            advantages,
            clip=self.options["clip_param"],
            value_coefficient=self.options["value_loss_coef"],
            entropy_coefficient=self.options["entropy_coef"],
        )
        self.update(loss.total, self.optimizer, _GRADIENT_NORM, self.model.parameters())
        return loss.action.detach()

    def _decay(self) -> None:
        """The learning rate falls in a line, to 0 after 10 million frames."""
        left = max(0.0, 1.0 - self._updates * self.items_per_step / FRAMES_OF_A_TRAINING)
        for group in self.optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * left

    def metrics(self) -> dict[str, float]:
        """Return the mean score of the last 10 games that ended."""
        return {"episode_return": sum(self._ended) / len(self._ended)} if self._ended else {}

    def provenance(self) -> dict[str, Any]:
        sizes = ("num_steps", "num_processes", "num_mini_batch", "clip_param", "value_loss_coef", "entropy_coef")
        return {
            "data": {"source": self._source, "licence": "GPL-2.0 (the emulator)"},
            "model": {"type": "NatureCNN", **{name: self.options[name] for name in sizes}},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"Adam, lr {_LEARNING_RATE}, gradients clipped at {_GRADIENT_NORM}",
        }

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()
            self._environment = None
