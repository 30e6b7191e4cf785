"""`SlcaDataset`: verl's RL dataset that refuses bad rows before training starts.

Configure with ``data.custom_cls.path=pkg://verl_slca.adapters.dataset data.custom_cls.name=SlcaDataset``.
"""

from __future__ import annotations

import logging
from typing import Any

import datasets
from verl.utils.dataset.rl_dataset import RLHFDataset

from verl_slca.prepare import check_file
from verl_slca.prompts import prompt_lengths
from verl_slca.rows import row_from_record

logger = logging.getLogger(__name__)


class SlcaDataset(RLHFDataset):
    """`RLHFDataset` over rows in the RL schema of `verl_slca.rows`, each checked when the files are read.

    Prompt lengths count the row's own tools. Longer prompts are dropped with
    ``data.filter_overlong_prompts=true`` and are an error otherwise.

    Raises:
        DataError: naming file, row, column, value and fix.
    """

    def _read_files_and_tokenize(self) -> None:
        for path in self.data_files:
            check_file(path, self.tokenizer, None if self.filter_overlong_prompts else self.max_prompt_length)
        super()._read_files_and_tokenize()

    def maybe_filter_out_long_prompts(self, dataframe: datasets.Dataset | None = None) -> Any:
        """The rows whose prompt, tools included, fits ``data.max_prompt_length``."""
        if dataframe is None or not self.filter_overlong_prompts:
            return dataframe
        rows = [row_from_record(record, where=f"row {i}") for i, record in enumerate(dataframe)]
        lengths = prompt_lengths(rows, self.tokenizer)
        fitting = [i for i, length in enumerate(lengths) if length <= self.max_prompt_length]
        if len(fitting) < len(rows):
            dropped = len(rows) - len(fitting)
            logger.warning("dropped %d of %d rows longer than %d tokens", dropped, len(rows), self.max_prompt_length)
        return dataframe.select(fitting)
