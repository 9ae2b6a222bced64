"""AdamW over weights that the optimizer keeps in float32 or better, whatever the model computes in."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from v4model.train.settings import TrainSettings


class WideAdamW:
    """torch's AdamW on wide copies of a model's parameters; the model's own are these, rounded.

    State is by the parameter's name, so that it can be saved and read whoever holds which expert.
    """

    def __init__(self, model: nn.Module, settings: TrainSettings) -> None:
        self.settings = settings
        self._own = dict(model.named_parameters())
        self.weights = {
            # A copy even where nothing is rounded: AdamW changes it while the model's own is still read.
            name: nn.Parameter(parameter.detach().to(settings.wide_dtype, copy=True))
            for name, parameter in self._own.items()
        }
        matrices = [weight for weight in self.weights.values() if weight.ndim > 1]
        others = [weight for weight in self.weights.values() if weight.ndim <= 1]
        self._adam = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": settings.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
        )
        for weight in self.weights.values():
            self._adam.state[weight] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
            }

    @torch.no_grad()
    def step(self, step: int, *, scale: float) -> None:
        """One update from the model's `.grad`, each times `scale`, which are gone afterwards."""
        for group in self._adam.param_groups:
            group["lr"] = self.settings.learning_rate_at(step)
        for name, parameter in self._own.items():
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            self.weights[name].grad = grad.to(self.settings.wide_dtype) * scale
            parameter.grad = None
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self.publish()

    @torch.no_grad()
    def publish(self) -> None:
        """Rounds the optimizer's weights into the model's."""
        for name, parameter in self._own.items():
            parameter.copy_(self.weights[name])

    def state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """By sort of state ("weight", "exp_avg", "exp_avg_sq", "step"), then by parameter; to be read or filled."""
        sorts = {"weight": {name: weight.detach() for name, weight in self.weights.items()}}
        for sort in ("exp_avg", "exp_avg_sq", "step"):
            sorts[sort] = {name: self._adam.state[weight][sort] for name, weight in self.weights.items()}
        return sorts
