"""What a cell says, in one sentence, where the chosen model was built without a part."""

from typing import Literal

from partwise.messages import message

Part = Literal["norms", "residual", "feedforward", "projection", "block"]


def lacking(part: Part) -> str:
    """The sentence about that part, in the reader's language."""
    if part == "norms":
        return message(
            "The chosen model has no norms (rung 5 of the ladder adds them): its sublayers read "
            "the residual stream as it is."
        )
    if part == "residual":
        return message(
            "The chosen model has no residual connections (rung 4 of the ladder adds them): what a "
            "sublayer writes takes the place of what was there."
        )
    if part == "feedforward":
        return message(
            "The chosen model has no feed-forward layer of two matrices (rung 4 of the ladder adds "
            "it): an untrained one stands in."
        )
    if part == "projection":
        return message(
            "The chosen model has no output projection (rung 2 of the ladder adds it): each head "
            "writes its own stretch of features and no other."
        )
    return message(
        "The chosen model is a low rung of the ladder and has no whole blocks yet: with the parts "
        "that this lesson adds, the logits cannot match. Choose the tiny model, or rung 4 and "
        "above, to compare number by number."
    )
