"""The verbs that tool names are made of, by what a response to them looks like."""

from __future__ import annotations

VERBS = {
    **dict.fromkeys(("list", "search", "find", "query", "browse", "discover"), "list"),
    **dict.fromkeys(
        ("create", "add", "insert", "post", "send", "book", "schedule", "upload", "save", "write", "generate", "make",
         "register", "submit", "start", "open", "build", "export", "publish", "reply"),
        "create",
    ),
    **dict.fromkeys(
        ("update", "set", "edit", "modify", "rename", "move", "change", "configure", "replace", "toggle", "enable",
         "disable", "assign"),
        "update",
    ),
    **dict.fromkeys(("delete", "remove", "cancel", "clear", "close", "stop", "drop", "archive"), "delete"),
    **dict.fromkeys(
        ("calculate", "compute", "convert", "count", "estimate", "add", "sum", "subtract", "multiply", "divide", "mean",
         "average", "sqrt", "modulo", "power", "floor", "ceil", "round", "max", "min"),
        "calculate",
    ),
    **dict.fromkeys(("is", "has", "validate", "verify", "exists"), "check"),
    **dict.fromkeys(
        ("get", "fetch", "read", "show", "describe", "lookup", "retrieve", "check", "view", "resolve", "download",
         "analyze", "extract"),
        "get",
    ),
}  # fmt: skip
