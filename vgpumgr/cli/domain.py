"""``vgpumgr domain``: preflight of any libvirt domain XML."""

from __future__ import annotations

from typing import BinaryIO

import click

from vgpumgr.cli.backend import JsonObject, Needs, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit
from vgpumgr.cli.table import Column, table
from vgpumgr.errors import EXIT_OK, EXIT_REFUSED, UsageError

DEVICE_COLUMNS = (Column("TYPE"), Column("DEVICE"), Column("OWNER"))
PROBLEM_COLUMNS = (Column("SEVERITY", colored=True), Column("CODE"), Column("PROBLEM"))
STOPPING = ("error", "fatal")
LARGEST_XML = 1024 * 1024


@click.command("domain", cls=NounGroup, examples="vgpumgr domain check vm.xml")
def domain() -> None:
    """Domain XML: check it against this host before libvirt sees it."""


def check_text(result: JsonObject, invocation: Invocation) -> str:
    """The host devices of the domain, then its problems."""
    devices = [(item["type"], item["address"] or item["uuid"], item["owner"]) for item in result["devices"]]
    problems = [(item["severity"], item["code"], item["message"]) for item in result["problems"]]
    return "\n\n".join(
        [
            table(DEVICE_COLUMNS, devices, invocation, empty="no host devices in this domain"),
            table(PROBLEM_COLUMNS, problems, invocation, empty="no problems"),
        ]
    )


@domain.verb(
    "check",
    examples="""
        vgpumgr domain check vm.xml
        virsh dumpxml desk-17 | vgpumgr domain check - -o json
    """,
)
@click.argument("file", type=click.File("rb"))
@pass_invocation
def check(invocation: Invocation, file: BinaryIO) -> int:
    """Check a domain XML FILE (- for standard input). Exit status 3 when a problem would stop the VM."""
    xml = file.read(LARGEST_XML + 1)
    if len(xml) > LARGEST_XML:
        raise UsageError(
            f"{file.name} is larger than {LARGEST_XML >> 20} MiB",
            hint="give one domain, as 'virsh dumpxml' prints it",
            code="domain-xml-invalid",
        )
    with open_backend(invocation, Needs.READING) as backend:
        result = backend.check_domain(xml)
    emit(invocation, result, check_text)
    stops = any(item["severity"] in STOPPING for item in result["problems"])
    return EXIT_REFUSED if stops else EXIT_OK
