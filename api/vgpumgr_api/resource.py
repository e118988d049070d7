"""One resource of the API: its routes now, its chapter of the OpenAPI document when somebody reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask_openapi3 import APIBlueprint, Tag
from flask_openapi3.types import ParametersTuple
from flask_openapi3.utils import parse_parameters


class Resource(APIBlueprint):
    """A blueprint that describes itself late: schemas of all answers take longer to make than everything else."""

    def __init__(self, name: str, module: str, about: str) -> None:
        super().__init__(name, module, abp_tags=[Tag(name=name, description=about)])
        self._undescribed: list[tuple[str, Callable[..., Any], dict[str, Any]]] = []

    def _collect_openapi_info(self, rule: str, func: Callable[..., Any], **about: Any) -> ParametersTuple:
        self._undescribed.append((rule, func, about))
        return parse_parameters(func, doc_ui=False)

    def describe(self) -> None:
        """Fill in ``tags``, ``paths`` and ``components_schemas``; for one caller at a time."""
        while self._undescribed:
            rule, func, about = self._undescribed[0]
            super()._collect_openapi_info(rule, func, **about)
            del self._undescribed[0]
