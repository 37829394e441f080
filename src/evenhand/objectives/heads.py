"""Parts that replace the last layer."""

from pydantic import Field

from evenhand.models.names import LEAST_SCALE, MOST_LDA, MOST_SCALE
from evenhand.objectives.part import HeadPart, PartSummary, TrainingStats


class Cosine(HeadPart):
    """Cosine classifier: weights and features are normalised, and their products scaled."""

    name = "cosine"
    tuning_grid = ({"scale": 16},)
    scale: float = Field(30.0, ge=LEAST_SCALE, le=MOST_SCALE, description="factor from cosines to logits")
    lda: float = Field(
        0.0, ge=0, le=MOST_LDA, description="weight of linear discriminants, added after training on features"
    )

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Describe the scale and the discriminants."""
        added = f"; after training, linear discriminants are added with weight {self.lda:g}" * bool(self.lda)
        return PartSummary(f"logits are cosines times {self.scale:g}{added}")
