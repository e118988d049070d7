"""Writes the OpenAPI document: ``python -m vgpumgr_api.openapi [FILE]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from vgpumgr_api.app import create_app


def document() -> dict[str, Any]:
    """The document as the service gives it at /openapi.json."""
    # Through JSON: what a client sees, with no Python in it.
    found: dict[str, Any] = json.loads(json.dumps(create_app(None).api_doc))
    return found


def render() -> str:
    """The document as the committed file has it."""
    header = "# Generated from the code by 'make openapi'; a test keeps the two together.\n"
    return header + yaml.safe_dump(document(), sort_keys=False, allow_unicode=True, width=116)


def main(arguments: list[str]) -> int:
    """Write the document to the file that is named, or to its place in the checkout."""
    Path(arguments[0] if arguments else "api/openapi.yaml").write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
