"""Text from untrusted sources on a page."""

from markupsafe import Markup

from evenhand.core.text import visible


def spelled_out(value: object) -> object:
    r"""Return text with control and direction characters spelled out; other values as they are. For templates.

    Example:
        >>> from evenhand.report._escape import spelled_out
        >>> print(spelled_out("cat\u202e"), spelled_out(7))
        cat\u202e 7
    """
    return visible(value, keep="\n") if isinstance(value, str) and not isinstance(value, Markup) else value
