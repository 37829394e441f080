"""Data: any source becomes one table of samples, honest splits of it, and fast batches."""
