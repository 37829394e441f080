"""Training: a config becomes a run folder."""
