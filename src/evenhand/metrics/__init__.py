"""Metrics: pure functions of predictions; they know no model."""
