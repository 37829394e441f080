"""Ensembles: the mean probabilities of several trained networks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer
from evenhand.training.card import Card


@dataclass(frozen=True, eq=False)
class Member:
    """A trained network of an ensemble."""

    network: Classifier
    card: Card
    adjustment: Tensor | None = None
    """Added to its logits, (K,)."""


class Ensemble(nn.Module):
    """The mean probabilities of networks with the same classes, as logits.

    Networks that were trained on the features of one frozen body share it, so that many cost little more than one.

    Args:
        members: images are normalised as for the first one, and converted for the others.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        first = members[0]
        for member in members[1:]:
            for name in ("class_names", "channels", "image_size", "stretch", "interpolation"):
                if getattr(first.card, name) != getattr(member.card, name):
                    raise EvenhandError(f"These runs differ in {name.replace('_', ' ')}, so they cannot be averaged.")
            if first.card.preprocessing.crop_size != member.card.preprocessing.crop_size:
                raise EvenhandError("These runs differ in crop size, so they cannot be averaged.")
        self.shared = first.card.backbone is not None and all(
            member.card.backbone == first.card.backbone for member in members
        )
        self.body = first.network
        heads = (member.network.get_submodule(last_layer(member.network)) for member in members)
        self.members = nn.ModuleList(heads if self.shared else (member.network for member in members))
        mean, std = (torch.tensor([getattr(m.card.preprocessing, name) for m in members]) for name in ("mean", "std"))
        # The input is (pixel - mean[0]) / std[0].
        self.register_buffer("scale", (std[0] / std)[:, None, :, None, None])
        self.register_buffer("shift", ((mean[0] - mean) / std)[:, None, :, None, None])
        zeros = torch.zeros(len(first.card.class_names))
        added = [zeros if member.adjustment is None else member.adjustment for member in members]
        self.register_buffer("adjustments", torch.stack(added))

    def forward(self, images: Tensor) -> Tensor:
        """Return the log of the mean probabilities, (N, K), of images (N, C, S, S)."""
        return self.member_logits(images).log_softmax(2).exp().mean(0).clamp_min(1e-30).log()

    def member_logits(self, images: Tensor) -> Tensor:
        """Return the adjusted logits of each network, (members, N, K)."""
        if self.shared:
            features = self.body.features(images)
            logits = [head(features) for head in self.members]
        else:
            scale, shift = self.get_buffer("scale"), self.get_buffer("shift")
            logits = [network(images * scale[i] + shift[i]) for i, network in enumerate(self.members)]
        return torch.stack(logits).float() + self.get_buffer("adjustments")[:, None]
