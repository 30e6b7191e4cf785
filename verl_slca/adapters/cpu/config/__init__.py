"""Hydra configuration shipped with the package: ``hydra.searchpath=[pkg://verl_slca.adapters.cpu.config]``."""
