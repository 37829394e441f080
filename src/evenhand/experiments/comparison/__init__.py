"""Finished runs set side by side: paired statistics, verdict, tables."""
