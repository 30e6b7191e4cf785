"""The benchmarks: `task` says what one is, `registry` which there are."""
