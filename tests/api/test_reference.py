"""The reference of the REST API names every resource and every code."""

from __future__ import annotations

import re
from pathlib import Path

from vgpumgr.errors import VgpumgrError
from vgpumgr_api.openapi import document
from vgpumgr_api.problems import HTTP_CODES

CHECKOUT = Path(__file__).resolve().parents[2]
REFERENCE = CHECKOUT / "docs" / "reference"


def test_every_path_is_named() -> None:
    page = (REFERENCE / "rest-api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"/[a-z][a-z0-9/{}-]+", page)) | {
        f"{whole}{rest}"
        for line in page.splitlines()
        for whole in re.findall(r"`[A-Z, `]+(/v1/[a-z0-9/{}-]+)`", line)
        for rest in re.findall(r"`…(/[a-z{}]+)`", line)
    }
    named |= {path.replace("/start", "/stop") for path in named}
    plain = {re.sub(r"{\w+}", "{}", path) for path in named}
    assert not {path for path in document()["paths"] if re.sub(r"{\w+}", "{}", path) not in plain}


def test_every_code_of_the_rest_service_is_documented() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    codes = {code for code, _hint in HTTP_CODES.values()} | {"validation-failed", "starting", "malformed-json"}
    kinds = list(VgpumgrError.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        codes.add(kind.code)
    assert not {code for code in codes if f"`{code}`" not in page}
