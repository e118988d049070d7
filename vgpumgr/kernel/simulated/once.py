"""YAML whose mappings hold each key once: plain YAML silently keeps the last of them."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import ComposerError


class LoaderOfKeysOnce(yaml.SafeLoader):
    """Looks while it reads, before merges (``<<``) add the keys that an entry overrides."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        """See PyYAML's Composer."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ComposerError(None, None, f"{key.value!r} stands twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return node


def where(error: yaml.MarkedYAMLError) -> str:
    """The mistake and its place in one line, without the picture that PyYAML draws."""
    mark = error.problem_mark
    place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
    return f"{error.problem}{place}"
