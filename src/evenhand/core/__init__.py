"""Errors, files, seeds and text, without torch; every other package may import it."""
