"""Parts that ask for another last layer."""

from pydantic import Field

from evenhand.models.heads import LEAST_SCALE, MOST_SCALE
from evenhand.training.objectives.part import HeadPart, Known, Told


class Cosine(HeadPart):
    """A last layer of cosines: weights and features are normalised, and the product is scaled."""

    name = "cosine"
    tried = ({"scale": 16},)
    scale: float = Field(
        30.0, ge=LEAST_SCALE, le=MOST_SCALE, description="what cosines are multiplied by to become logits"
    )

    def told(self, known: Known) -> Told:  # noqa: ARG002
        """Say the scale."""
        return Told(f"logits are cosines times {self.scale:g}")
