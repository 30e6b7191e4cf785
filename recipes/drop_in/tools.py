"""Your tools: plain functions that verl's own `tool_agent` loop calls."""

from verl.tools.function_tool import function_tool

TEMPERATURES = {"Marlen": 14, "Jenhep": 21, "Dorlod": 9, "Selgar": 27}


@function_tool("weather-current")
def weather_current(city: str) -> str:
    """Current weather in a city.

    Args:
        city: name of the city
    """
    if city not in TEMPERATURES:
        return f"unknown city {city!r}"
    return f'{{"city": "{city}", "temperature": {TEMPERATURES[city]}}}'
