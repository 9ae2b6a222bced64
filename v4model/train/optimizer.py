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
        # One for each parameter: what an update needs besides its state is there for one parameter at a time.
        self._adams = {
            name: torch.optim.AdamW(
                [weight],
                lr=settings.learning_rate,
                betas=(settings.beta1, settings.beta2),
                eps=settings.epsilon,
                weight_decay=settings.weight_decay if weight.ndim > 1 else 0.0,
            )
            for name, weight in self.weights.items()
        }
        for name, weight in self.weights.items():
            self._adams[name].state[weight] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
            }

    @torch.no_grad()
    def step(self, step: int, *, scale: float) -> None:
        """One update from the model's `.grad`, each times `scale`, which are gone afterwards."""
        for name, parameter in self._own.items():
            weight, adam = self.weights[name], self._adams[name]
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            weight.grad = grad.to(self.settings.wide_dtype) * scale
            parameter.grad = None
            adam.param_groups[0]["lr"] = self.settings.learning_rate_at(step)
            adam.step()
            weight.grad = None
        self.publish()

    @torch.no_grad()
    def publish(self) -> None:
        """Rounds the optimizer's weights into the model's."""
        for name, parameter in self._own.items():
            parameter.copy_(self.weights[name])

    @torch.no_grad()
    def adopt(self) -> None:
        """Takes the model's weights for the optimizer's."""
        for name, parameter in self._own.items():
            self.weights[name].copy_(parameter)

    def state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """By sort of state ("weight", "exp_avg", "exp_avg_sq", "step"), then by parameter; to be read or filled."""
        sorts = {"weight": {name: weight.detach() for name, weight in self.weights.items()}}
        for sort in ("exp_avg", "exp_avg_sq", "step"):
            sorts[sort] = {name: self._adams[name].state[weight][sort] for name, weight in self.weights.items()}
        return sorts
