"""`slca prepare`: dataset files checked, and raw Toucan rows converted, before any training starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from verl_slca import toucan
from verl_slca.chat_template import calls_per_turn, problems
from verl_slca.errors import DataError
from verl_slca.prompts import check_prompts
from verl_slca.rows import Row, listed, load_rows
from verl_slca.sgls.schema import compile_tool


def check_file(path: str | Path, tokenizer: Any = None, max_prompt_length: int | None = None) -> list[Row]:
    """The rows of a file in the RL schema, once all of them can be trained on.

    Args:
        path: ``.parquet``, ``.jsonl`` or ``.json``.
        tokenizer: checks that every prompt can be rendered; None skips that.
        max_prompt_length: longest prompt in tokens, tools included; None for any.

    Raises:
        DataError: with file, row, column, value and fix; see `load_rows` and `check_prompts`. A tool whose
            schema does not compile is named with the path inside it.
    """
    rows = load_rows(path)
    if bad := list(_schema_problems(rows)):
        raise DataError(listed(bad, len(rows)), where=str(path))
    if tokenizer is not None:
        check_prompts(rows, tokenizer, max_prompt_length, str(path))
    return rows


def _schema_problems(rows: Iterable[Row]) -> Iterable[str]:
    for number, row in enumerate(rows):
        for tool in row.tools:
            try:
                compile_tool(tool)
            except DataError as error:
                yield f"row {number}: tools: {error}"
                break


def prepare_files(
    paths: Sequence[Path],
    model: Path | None,
    max_prompt_length: int | None,
    output: Path | None,
    shape: Literal["rl", "sft"],
    console: Console | None = None,
) -> None:
    """Every file checked, or with `output` all of them converted into one.

    Args:
        paths: RL rows to check; with `output` any of Toucan's three shapes.
        model: checkpoint whose tokenizer and chat template the prompts are rendered with.
        max_prompt_length: longest prompt in tokens.
        output: parquet file to write.
        shape: what to write: RL rows, or SFT conversations.
        console: where to print.

    Raises:
        DataError: a file cannot be used, or nothing is left after conversion; `output` names another kind of file.
    """
    console = console or Console(soft_wrap=True)
    tokenizer = None
    if model is not None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model)
        if found := problems(tokenizer, str(model)):
            raise DataError("; and ".join(found), where=f"--model {model}")
        if calls_per_turn(tokenizer) == 1:
            console.print(
                f"{model}: its chat template holds one call a turn; in training a second one is answered with an error",
                style="yellow",
            )
    if output is None:
        for path in paths:
            rows = check_file(path, tokenizer, max_prompt_length)
            tools = sum(len(row.tools) for row in rows)
            console.print(f"{path}: {len(rows)} rows, {tools} tools offered: good to train on")
        return
    if output.suffix != ".parquet":
        raise DataError("what is written is parquet; give a name that ends in .parquet", where=f"--output {output}")
    converted: list[dict[str, Any]] = []
    for path in paths:
        rows_found, left_out = toucan.convert(path, shape)
        converted += rows_found
        console.print(f"{path}: {len(rows_found)} rows converted, {len(left_out)} left out")
        for problem in left_out:
            console.print(f"  {problem}", markup=False)
    if not converted:
        raise DataError("no row could be converted", where=", ".join(map(str, paths)))
    write_parquet(converted, output)
    if shape == "rl":
        check_file(output, tokenizer, max_prompt_length)
    console.print(f"{output}: {len(converted)} rows written")


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """`rows` as a parquet file."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
