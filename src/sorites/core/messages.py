"""Messages that refer to options and commands without knowing the interface they are shown in.

Library code writes ``f"The run is unfinished; pass {option('partial')} to use it anyway."``. Python users
read
``partial=True``, command-line users read ``--partial``. Inside the text, a reference is JSON between two
characters of Unicode's private use area, so messages can be formatted, joined and wrapped like any other
text.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

_OPEN, _CLOSE = "\ue000", "\ue001"
_REFERENCE = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")


def option(name: str, value: object = True) -> str:
    """Refer to an option of the verb that the message is about.

    Args:
        name: The Python name of the option, such as ``"keep_features"``.
        value: A value to suggest. Upper-case text is a placeholder, shown without quotes; None shows only the
            name. A list is the value of an option that may be repeated: a shell shows the singular of the
            name once per value, and an empty list shows only the name.

    Returns:
        A reference to embed in a message.

    Example:
        >>> in_shell(f"add {option('limit', 'N')}"), in_python(f"add {option('limit', 'N')}")
        ('add --limit N', 'add limit=N')
        >>> in_shell(option("models", ["NAME"])), in_python(option("models", ["NAME"]))
        ('--model NAME', 'models=[NAME]')
    """
    return _reference({"option": name, "value": value})


def parameter(name: str, value: object = None) -> str:
    """Refer to a parameter of a metric, which a shell sets by ``--option NAME=VALUE``.

    Args:
        name: The name of the parameter; ``by``, ``reference`` and ``framework`` have flags of their own.
        value: A value to suggest, as in ``option``.

    Returns:
        A reference to embed in a message.

    Example:
        >>> in_shell(parameter("relative", True)), in_python(parameter("relative", True))
        ('--option relative=true', 'relative=True')
    """
    return _reference({"parameter": name, "value": value})


def command(verb: str, *arguments: str, **options: object) -> str:
    """Refer to a call of another verb.

    Args:
        verb: The verb, such as ``"check"`` or ``"plan calibrate"``.
        arguments: Its positional arguments, as they are typed.
        options: Its options by their Python names.

    Returns:
        A reference to embed in a message.

    Example:
        >>> in_shell(command("check", "RUN", repair=True)), in_python(command("check", "RUN", repair=True))
        ('sorites check RUN --repair', 'sorites.check(RUN, repair=True)')
    """
    return _reference({"verb": verb, "arguments": list(arguments), "options": options})


def noun(count: int, one: str, many: str = "") -> str:
    """Return the noun that fits a number.

    Args:
        count: How many there are.
        one: The singular.
        many: The plural, if it is not the singular with an s.

    Example:
        >>> noun(1, "image"), noun(2, "image"), noun(0, "entry", "entries")
        ('image', 'images', 'entries')
    """
    return one if count == 1 else many or f"{one}s"


def in_shell(text: str) -> str:
    """Return a message as users of the command line read it."""
    return _REFERENCE.sub(lambda match: _shell(_content(match[1])), text)


def in_python(text: str) -> str:
    """Return a message as users of the library read it."""
    return _REFERENCE.sub(lambda match: _python(_content(match[1])), text)


def singular(name: str) -> str:
    """Return the singular of the name of an option: ``severities`` becomes ``severity``."""
    return name.removesuffix("ies") + "y" if name.endswith("ies") else name.removesuffix("s")


# JSON is imported by what uses it: errors import this module, and the runtime of a guard imports errors.


def _content(reference: str) -> Any:
    import json

    return json.loads(reference)


def _reference(content: dict[str, Any]) -> str:
    import json

    return f"{_OPEN}{json.dumps(content, default=str)}{_CLOSE}"


def _shell(content: dict[str, Any]) -> str:
    if "option" in content:
        return _flag(content["option"], content["value"])
    if "parameter" in content:
        return _metric_flag(content["parameter"], content["value"])
    flags = [_flag(name, value) for name, value in content["options"].items()]
    return " ".join(["sorites", content["verb"], *content["arguments"], *flags])


def _metric_flag(name: str, value: object) -> str:
    if name in ("by", "reference", "framework"):
        return _flag(name, value)
    shown = str(value).lower() if isinstance(value, bool) else value
    return f"--option {name}" if value is None else f"--option {name}={shown}"


def _flag(name: str, value: object) -> str:
    if isinstance(value, list):
        return " ".join(_flag(singular(name), one) for one in value or [None])
    flag = "--" + name.replace("_", "-")
    return flag if value is True or value is None else f"{flag} {value}"


def _python(content: dict[str, Any]) -> str:
    if "option" in content or "parameter" in content:
        return _keyword(content.get("option") or content["parameter"], content["value"])
    if content["verb"] not in importlib.import_module("sorites").__all__:
        return f'"{_shell(content)}"'  # a verb of the command line only
    arguments = [text if text.isupper() else repr(text) for text in content["arguments"]]
    keywords = [_keyword(name, value) for name, value in content["options"].items()]
    return f"sorites.{content['verb']}({', '.join([*arguments, *keywords])})"


def _keyword(name: str, value: object) -> str:
    if value is None or value == []:
        return name
    if isinstance(value, list):
        return f"{name}=[{', '.join(map(_literal, value))}]"
    return f"{name}={_literal(value)}"


def _literal(value: object) -> str:
    return value if isinstance(value, str) and value.isupper() else repr(value)
