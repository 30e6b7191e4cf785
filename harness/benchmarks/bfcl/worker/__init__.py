"""The official scorer behind a pipe. It runs in BFCL's own interpreter: only the standard library and bfcl_eval here.

A line on stdin is a JSON list of jobs, the line that answers it a list of as many answers:

    {"op": "prepare", "id", "mode"}           -> {"turns": [{"messages", "tools"}, ...]}
    {"op": "execute", "id", "mode", "steps"}  -> {"results": [...], "message": "..."} or {"ended": why}
    {"op": "judge", "id", "mode", "result"}   -> {"valid", "calls", "error_type", "error"}

``mode`` is ``"fc"`` or ``"prompt"``, a ``result`` what the official result files hold under that name, and a step one
element of a multi-turn result. A job that its process did not survive is answered by ``{"killed": why}``, one that
failed for a reason of ours by ``{"raised": what}``.
"""
