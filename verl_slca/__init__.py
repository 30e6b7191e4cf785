"""Segment-Locked Credit Assignment for tool-calling RL (SLCA-GRPO, arXiv:2609.29050)."""
