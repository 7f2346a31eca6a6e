"""Arguments that were left empty, as make gives for a variable without a value."""

import argparse
from collections.abc import Mapping, Sequence


def refuse_empty(
    parser: argparse.ArgumentParser, given: Mapping[str, object], variables: Sequence[str]
) -> None:
    """End in a sentence where an argument is empty, as make gives for a variable without a value.

    Args:
        given: by the name of each argument what was given; nothing, or a text of blanks, is empty.
        variables: what make calls each of them, in the same order.
    """
    names = [
        (name, variable)
        for (name, value), variable in zip(given.items(), variables, strict=True)
        if value is None or not str(value).strip()
    ]
    if names:
        told = ", ".join(f"{name} (make: {variable}=)" for name, variable in names)
        verb = "is" if len(names) == 1 else "are"
        parser.error(f"{told} {verb} empty: write what belongs there")
