"""SGLS, the schema-guided simulator: checks every tool call against its JSON Schema, answers the valid ones."""
