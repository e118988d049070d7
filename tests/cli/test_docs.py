"""The reference says what the code does."""

from __future__ import annotations

import re

from tests.cli.conftest import CHECKOUT
from tests.cli.test_help import VERBS
from vgpumgr import errors
from vgpumgr.config import Config
from vgpumgr.errors import VgpumgrError
from vgpumgr.model.reasons import PASSTHROUGH_REASONS, VGPU_REASONS

REFERENCE = CHECKOUT / "docs" / "reference"


def test_every_command_and_option_is_in_the_reference() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## vgpumgr ([a-z ]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == {" ".join(path) for path in VERBS}, "run: make docs"
    missing = {
        f"{' '.join(path)} {option}"
        for path, command in VERBS.items()
        for parameter in command.params
        if parameter.expose_value and parameter.param_type_name == "option"
        for option in parameter.opts
        if option not in sections[" ".join(path)]
    }
    assert not missing, "run: make docs"


def test_every_setting_is_documented_with_its_default() -> None:
    page = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([^`|]*?)`? \|", page, re.MULTILINE))
    defaults = {name: str(value) or "empty" for name, value in Config._field_defaults.items()}
    assert rows == defaults


def test_every_error_class_and_every_reason_is_documented() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    kinds = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, VgpumgrError)]
    codes = {kind.code for kind in kinds} | set(PASSTHROUGH_REASONS) | set(VGPU_REASONS)
    assert not {code for code in codes if f"`{code}`" not in page}


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(CHECKOUT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken
