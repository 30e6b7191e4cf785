"""Texts of bounded length."""

from __future__ import annotations


def cut_middle(text: str, limit: int, marker: str) -> str:
    """`text` with at most `limit` characters kept, `marker` in place of those from its middle.

    Example:
        >>> cut_middle("abcdefghi", 5, "..."), cut_middle("abcde", 5, "...")
        ('ab...ghi', 'abcde')
    """
    if len(text) <= limit:
        return text
    head = limit // 2
    return f"{text[:head]}{marker}{text[-(limit - head) :]}"
