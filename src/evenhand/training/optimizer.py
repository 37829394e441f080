"""The optimizers of a run, with a learning rate per layer."""

from typing import Any

from torch import nn
from torch.optim import SGD, Optimizer

from evenhand.runs.config_sections import OptimizerConfig


def make_optimizers(
    network: nn.Module, config: OptimizerConfig, number: int, *, fused: bool = False
) -> list[Optimizer]:
    """Return optimizers of all weights that need gradients, each with state of its own.

    Args:
        network: the network.
        config: settings of stochastic gradient descent.
        number: how many optimizers the objective steps.
        fused: update all weights in one pass.
    """
    settings = {**config.model_dump(exclude={"layer_decay"}), "fused": fused or None}
    return [SGD(parameter_groups(network, config.layer_decay), **settings) for _ in range(number)]


def set_learning_rate(optimizers: list[Optimizer], lr: float) -> None:
    """Set the learning rate of the last layer; the other layers follow by their `rate`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr * group["rate"]


def parameter_groups(network: nn.Module, layer_decay: float) -> list[dict[str, Any]]:
    """Return the weights that need gradients, each group with its `rate`: its learning rate over the last layer's.

    Args:
        network: the network.
        layer_decay: the rate of the first layer; the rates between are geometric in the position of the layer.

    Example:
        >>> from torch import nn
        >>> from evenhand.training.optimizer import parameter_groups
        >>> network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 2))
        >>> [round(group["rate"], 2) for group in parameter_groups(network, 0.01)]
        [0.01, 0.1, 1.0]
    """
    # A layer is a module with weights of its own: a convolution, a normalisation.
    own = (
        [weight for weight in module.parameters(recurse=False) if weight.requires_grad] for module in network.modules()
    )
    layers = [layer for layer in own if layer]
    if layer_decay == 1:
        return [{"params": [weight for layer in layers for weight in layer], "rate": 1.0}]
    last = len(layers) - 1
    return [
        {"params": layer, "rate": layer_decay ** ((last - place) / max(last, 1))} for place, layer in enumerate(layers)
    ]
