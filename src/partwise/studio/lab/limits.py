"""What a page may ask for at most."""

from partwise.errors import UsageError


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
