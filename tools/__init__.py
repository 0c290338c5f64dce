"""Kipp's Python tools: registry, conversion, synthetic checkpoints, reference vectors."""
