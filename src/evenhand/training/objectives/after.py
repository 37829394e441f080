"""What is done after training: the logits of a trained network are adjusted, at no cost of training."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from evenhand.core.errors import EvenhandError
from evenhand.training.objectives.part import Known, Part, Told


class PostHoc(Part):
    """Post-hoc logit adjustment: tau times the log of the class shares is taken off the logits after training."""

    name = "post-hoc"
    kind = "after"
    corrects = True
    tau: float | Literal["auto"] = Field("auto", description="how much of it; auto: the best on validation")

    def check(self, parts: Sequence[Part]) -> None:
        """Margins are no prior that could be taken off; other parts that make up for the counts are refused anyway."""
        if any(part.name == "ldam" for part in parts):
            raise EvenhandError("post-hoc cannot follow ldam, whose margins make up for the class counts already.")

    def told(self, known: Known) -> Told:  # noqa: ARG002
        """Say tau; what was taken off stands beside the result."""
        return Told(f"logits are adjusted after training, tau {self.tau}")
