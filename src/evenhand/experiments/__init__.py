"""Experiments: many runs, compared with paired statistics."""
