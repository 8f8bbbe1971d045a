"""What a person types: `partwise COMMAND …`."""

from partwise.cli.program import main as main
