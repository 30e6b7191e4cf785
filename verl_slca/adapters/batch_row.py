"""A dataset row as it arrives in verl's batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_slca.rows import Row, row_from_record


def row_of(fields: Mapping[str, Any]) -> Row:
    """The row behind one rollout, from the batch's fields: verl calls its prompt ``raw_prompt``.

    Raises:
        DataError: the row cannot be used; its number in the dataset is in the message.
    """
    return row_from_record({**fields, "prompt": fields["raw_prompt"]}, where=f"row {fields.get('index', '?')}")
