"""BFCL: function calling scored by the official checker, which runs in an interpreter of its own.

The way of a sample: `task` plays it (`episode`), asking the model over HTTP and the `worker` process, through
`pool`, for the official request, the tools' answers and the verdict.
"""
