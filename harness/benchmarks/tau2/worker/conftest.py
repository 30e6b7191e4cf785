"""Keeps pytest from importing these modules: only tau2's own interpreter can."""

collect_ignore_glob = ["*.py"]
