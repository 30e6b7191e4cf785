"""Benchmark harness: any checkpoint, scored by the official scorers, from one command."""
