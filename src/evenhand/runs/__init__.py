"""A run is a folder: its config, and the one reader and writer of each of its files; no torch."""
