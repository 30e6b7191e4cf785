"""Calculator tools give the true result: their name says the operation, their arguments are the operands."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from verl_slca.sgls.verbs import operation

_BINARY: dict[str, Callable[[float, float], float]] = {
    **dict.fromkeys(("add", "sum", "plus", "addition"), operator.add),
    **dict.fromkeys(("subtract", "sub", "minus", "subtraction"), operator.sub),
    **dict.fromkeys(("multiply", "mul", "times", "multiplication"), operator.mul),
    **dict.fromkeys(("divide", "div", "division"), operator.truediv),
    **dict.fromkeys(("modulo", "mod"), operator.mod),
    **dict.fromkeys(("power", "pow"), operator.pow),
    "max": max,
    "min": min,
}
_UNARY: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "abs": abs,
}
_LIST: dict[str, Callable[[list[float]], float]] = {
    **dict.fromkeys(("add", "sum"), math.fsum),
    **dict.fromkeys(("mean", "average", "avg"), lambda values: math.fsum(values) / len(values)),
    "max": max,
    "min": min,
}


class UndefinedResultError(ArithmeticError):
    """The operation has no result for these operands; the message is what a calculator would say."""


def arithmetic_result(name: str, operands: Sequence[Any]) -> float | None:
    """The result of a call to a calculator tool, None when it is not plainly one.

    Args:
        name: tool name; its last word, those for numbers aside, must be the operation.
        operands: values of the arguments, in declared order: two numbers, one number, or one list of numbers.

    Raises:
        UndefinedResultError: a division by zero, the root of a negative number, an overflow.

    Example:
        >>> arithmetic_result("calculator-add_numbers", [2, 40])
        42
        >>> arithmetic_result("add_note", [2, 40]) is None
        True
    """
    try:
        result = _applied(operation(name), list(operands))
    except ZeroDivisionError as error:
        raise UndefinedResultError("division by zero") from error
    except (ValueError, OverflowError, TypeError) as error:
        raise UndefinedResultError("the result is not a number") from error
    if result is None:
        return None
    if isinstance(result, complex) or (isinstance(result, float) and not math.isfinite(result)):
        raise UndefinedResultError("the result is not a number")
    if isinstance(result, float):
        rounded = round(result, 10)
        return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
    return result


def _applied(operation: str, values: list[Any]) -> float | None:
    if len(values) == 2 and all(map(_is_number, values)) and operation in _BINARY:
        if operation in ("power", "pow"):
            values = [float(value) for value in values]  # integer powers can outgrow any memory
        return _BINARY[operation](*values)
    if len(values) == 1 and _is_number(values[0]) and operation in _UNARY:
        return _UNARY[operation](values[0])
    if len(values) == 1 and isinstance(values[0], list) and values[0] and all(map(_is_number, values[0])):
        return _LIST[operation](values[0]) if operation in _LIST else None
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
