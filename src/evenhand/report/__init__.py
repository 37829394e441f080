"""Report: figures and pages, from tables alone."""
