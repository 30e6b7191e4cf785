import asyncio
import json
from pathlib import Path

import pytest

from harness.journal import FolderLock, Journal
from harness.records import Record, Usage, read_json, write_json
from verl_slca.errors import DataError


def record(id: str, status: str = "ok", **more: object) -> Record:
    scores = {} if status == "infrastructure_error" else {"process": 0.5}
    return Record(id=id, task="toucan", kind="k", status=status, scores=scores, **more)  # type: ignore[arg-type]


def append(journal: Journal, *records: Record) -> None:
    for each in records:
        asyncio.run(journal.append(each))


def journal_of(path: Path, *records: Record) -> Path:
    with Journal(path) as journal:
        append(journal, *records)
    return path


def test_a_record_survives_its_line_whatever_the_model_wrote() -> None:
    wild = record("a", trajectory={"turns": [{"text": "line\nbreak \ud800 \u2028 ünï"}]}, usage=Usage(2, 30, 4))
    line = wild.to_line()
    assert line.count(b"\n") == 1
    assert Record.from_line(line) == wild


def test_a_line_is_on_disk_once_append_returns(tmp_path: Path) -> None:
    with Journal(tmp_path / "s.jsonl") as journal:
        append(journal, record("a"))
        assert Record.from_line((tmp_path / "s.jsonl").read_bytes()) == record("a")


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_torn_last_line_is_cut_off_and_its_sample_is_open_again(tmp_path: Path, cut: int) -> None:
    path = journal_of(tmp_path / "s.jsonl", record("a"), record("b"))
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path) as journal:
        assert journal.status(("toucan", "a")) == "ok"
        assert journal.status(("toucan", "b")) is None
        append(journal, record("b"))
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_a_last_line_of_garbage_counts_as_torn(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "s.jsonl", record("a"))
    path.write_bytes(path.read_bytes() + b"\0\0\0\0\n")
    with Journal(path) as journal:
        assert journal.keys == {("toucan", "a")}


def test_garbage_in_the_middle_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "s.jsonl", record("a"), record("b"), record("c"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\n" + lines[2])
    with pytest.raises(DataError, match=r"s\.jsonl:2: not a sample record"):
        Journal(path)


def test_a_sample_finished_twice_is_an_error(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "s.jsonl", record("a"), record("b"))
    path.write_bytes(path.read_bytes() + record("a").to_line())
    with pytest.raises(DataError, match=r"s\.jsonl:3: sample 'a' of toucan is here twice"):
        Journal(path)


def test_a_retried_sample_supersedes_its_infrastructure_error(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "s.jsonl", record("a", "infrastructure_error"), record("b"), record("a"))
    with Journal(path) as journal:
        assert [(r.id, r.status) for r in journal.records()] == [("a", "ok"), ("b", "ok")]


def test_sort_leaves_one_line_per_sample_in_order(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with Journal(path) as journal:
        append(journal, record("b"), record("a", "infrastructure_error"), record("a"))
        journal.sort()
    assert path.read_bytes() == record("a").to_line() + record("b").to_line()


def test_a_folder_is_held_by_one_run_at_a_time(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(DataError, match="another slca-eval is running here"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_json_files_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": [0.5]})
    assert read_json(tmp_path / "a.json") == {"a": [0.5], "b": 1}
    with pytest.raises(DataError, match="is this a run folder"):
        read_json(tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(DataError, match="expected a JSON object"):
        read_json(tmp_path / "list.json")
