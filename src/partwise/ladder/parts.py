"""Names for readers of the parts that can be silenced; see `knockout.parts`."""

from partwise.messages import message


def label(part: str) -> str:
    """A part's name for a reader; blocks and heads are counted from 1."""
    words = part.split(".")
    if part == "positions":
        return message("positions")
    if part == "final_norm":
        return message("the final norm")
    if part in ("attention", "feedforward", "norms"):
        return {
            "attention": message("attention in every block"),
            "feedforward": message("feed-forward in every block"),
            "norms": message("every norm"),
        }[part]
    block = int(words[1]) + 1
    if words[-2] == "head":
        return message("block {block}: head {head}", block=block, head=int(words[-1]) + 1)
    if words[-1] == "attention":
        return message("block {block}: attention", block=block)
    if words[-1] == "feedforward":
        return message("block {block}: feed-forward", block=block)
    which = 1 if words[-1] == "norm1" else 2
    return message("block {block}: norm {which}", block=block, which=which)
