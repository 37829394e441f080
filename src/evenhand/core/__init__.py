"""What every room may import: no torch here."""
