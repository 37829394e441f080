"""Text from untrusted sources on a page."""

import re

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


_OPTION = re.compile(r"--[a-z][a-z-]*(?: [\w.]+)?")


def unbroken(text: str) -> Markup:
    """Return text with commands in which no line breaks inside an option and its value.

    Example:
        >>> from evenhand.report._escape import unbroken
        >>> print(unbroken("start anew with --seeds 12."))
        start anew with <span class="option">--seeds 12</span>.
    """
    return Markup(_OPTION.sub(_in_span, str(escape(visible(text, keep="\n")))))


def _in_span(found: re.Match[str]) -> str:
    option = found[0].rstrip(".")
    return f'<span class="option">{option}</span>{found[0][len(option) :]}'


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
    environment.filters["unbroken"] = unbroken
    return environment
