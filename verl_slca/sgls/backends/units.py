"""A number made up in one unit -> the same in the unit that the call asks for.

get_weather(city="Oslo", units="fahrenheit"):  {"temperature": 10.0}  ->  {"temperature": 50.0}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_slca.sgls.samples import tokens

_FORMULAS: dict[str, dict[str, tuple[float, float]]] = {
    "temperature": {
        **dict.fromkeys(("f", "fahrenheit", "imperial"), (1.8, 32.0)),
        **dict.fromkeys(("k", "kelvin"), (1.0, 273.15)),
    },
    "distance": {
        **dict.fromkeys(("mi", "mile", "miles", "imperial"), (0.621371, 0.0)),
        **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), (1000.0, 0.0)),
    },
}
"""Quantity -> unit -> (factor, offset) from the unit that values are made up in: degrees Celsius, kilometres."""


def asks_for_unit(name: str) -> bool:
    """Whether an argument of that name says in which unit to answer."""
    return tokens(name)[-1:] in (("unit",), ("units",))


def in_asked_unit(value: Any, arguments: Mapping[str, Any]) -> Any:
    """`value` with its quantities in the unit that `arguments` ask for; where they ask for none, as it is."""
    asked = [str(unit).lower() for name, unit in arguments.items() if asks_for_unit(name)]
    return _converted(value, "", asked[0], arguments) if asked else value


def _converted(value: Any, name: str, unit: str, arguments: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _converted(child, key, unit, arguments) for key, child in value.items()}
    if isinstance(value, list):
        return [_converted(child, name, unit, arguments) for child in value]
    quantity = tokens(name)[-1] if tokens(name) else ""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or name in arguments:
        return value
    factor, offset = _FORMULAS.get(quantity, {}).get(unit, (1.0, 0.0))
    return value if (factor, offset) == (1.0, 0.0) else round(value * factor + offset, 1)
