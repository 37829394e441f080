"""What a user can cause or mend."""


class EvenhandError(Exception):
    """Something a user can act on: the text is one sentence with what was wrong, the value seen, and what to do."""
