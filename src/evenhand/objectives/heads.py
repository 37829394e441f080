"""Parts that ask for another last layer."""

from pydantic import Field

from evenhand.models.names import LEAST_SCALE, MOST_SCALE
from evenhand.objectives.part import HeadPart, PartSummary, TrainingStats


class Cosine(HeadPart):
    """A last layer of cosines: weights and features are normalised, and the product is scaled."""

    name = "cosine"
    tuning_grid = ({"scale": 16},)
    scale: float = Field(
        30.0, ge=LEAST_SCALE, le=MOST_SCALE, description="what cosines are multiplied by to become logits"
    )

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Say the scale."""
        return PartSummary(f"logits are cosines times {self.scale:g}")
