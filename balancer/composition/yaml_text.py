"""Writes YAML that our readers read back as it was."""

from __future__ import annotations

from typing import Any

import yaml

from metrics_reporter.documents import DocumentError, parse_yaml

# Wider than any path or address, which a line break would make hard to copy.
_WIDTH = 100


class _Dumper(yaml.SafeDumper):
    """Quotes text that would be read as another kind of value."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if _plain(text) else '"')


def _plain(text: str) -> bool:
    """Whether text without quotes is read as that text, also within a list or a mapping."""
    try:
        return bool(parse_yaml(f"[{text}]") == [text])
    except DocumentError:
        return False


_Dumper.add_representer(str, _represent)


def yaml_text(content: dict[str, Any], title: str) -> str:
    """A YAML document with a comment before it.

    Examples
    --------
    >>> print(yaml_text({"client": {"a": "1e3", "b": "x"}, "goals": [{"goal": "G"}]}, "Mine."))
    # Mine.
    client:
      a: "1e3"
      b: x
    goals:
    - {goal: G}
    <BLANKLINE>
    """
    parts = [
        yaml.dump(
            {key: value},
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            width=_WIDTH,
            default_flow_style=None if isinstance(value, dict | list) else False,
        )
        for key, value in content.items()
    ]
    return f"# {title}\n{''.join(parts)}"
