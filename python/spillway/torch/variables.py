# SPDX-License-Identifier: Apache-2.0
"""Reading SPILLWAY_* variables. One that makes no sense is an error that says what would."""
from typing import Any, Callable, Mapping


def value_of(environment: Mapping[str, str], name: str, parse: Callable[[str], Any], allowed: str, default: Any) -> Any:
    """`parse` raises ValueError. A variable that is empty counts as one that is not set."""
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        return parse(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must be {allowed}") from None
