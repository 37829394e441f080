"""Text from untrusted sources on a page."""

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from evenhand.core.text import visible


def spelled_out(value: object) -> object:
    r"""Return text with control and direction characters spelled out; other values as they are. For templates.

    Example:
        >>> from evenhand.report._escape import spelled_out
        >>> print(spelled_out("cat\u202e"), spelled_out(7))
        cat\u202e 7
    """
    return visible(value, keep="\n") if isinstance(value, str) and not isinstance(value, Markup) else value


def breakable(name: str) -> Markup:
    """Return the name of an objective that a narrow column may break after a plus or a colon.

    Example:
        >>> from evenhand.report._escape import breakable
        >>> print(breakable("ce+cosine:scale=20"))
        ce+<wbr>cosine:<wbr>scale=20
    """
    text = str(escape(visible(name)))
    return Markup(text.replace("+", "+<wbr>").replace(":", ":<wbr>"))


def page_environment(*, trim: bool = False) -> Environment:
    """Return the environment of the templates: every value is escaped and spelled out, a missing one is an error."""
    environment = Environment(
        loader=PackageLoader("evenhand.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=spelled_out,
        trim_blocks=trim,
        lstrip_blocks=trim,
    )
    environment.filters["breakable"] = breakable
    return environment
