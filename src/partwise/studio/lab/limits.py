"""What a page may ask for at most."""

from partwise.errors import UsageError

# What torch takes, with room for the draws that follow.
LARGEST_SEED = 2**32


def within(name: str, value: int, low: int, most: int) -> int:
    """`value`, if it lies between `low` and `most`.

    Raises:
        UsageError: it does not.
    """
    if not low <= value <= most:
        raise UsageError(
            "{name}={value} is out of range; give {low} to {most}",
            name=name,
            value=value,
            low=low,
            most=most,
        )
    return value
