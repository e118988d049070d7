"""Domain XML is read safely, whole or in pieces; everything else is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.guests import domain, hostdev
from vgpumgr.domain.document import NAMESPACE, SIZE_LIMIT, allocation_of, parse_domain
from vgpumgr.domain.parser import host_devices
from vgpumgr.errors import UsageError

LAUGHS = (
    "<?xml version='1.0'?><!DOCTYPE domain [<!ENTITY a 'ha'>"
    + "".join(f"<!ENTITY {name} '{f'&{before};' * 40}'>" for before, name in zip("abcdefg", "bcdefgh", strict=True))
    + "]><domain><name>&h;</name><devices/></domain>"
)


@pytest.mark.parametrize(
    "text",
    [
        domain(hostdev("3b:00.0")),
        f"<devices>{hostdev('3b:00.0')}</devices>",
        hostdev("3b:00.0"),
        f"  \n{hostdev('3b:00.0')}\n\n",
        f"<!-- a note -->{hostdev('3b:00.0')}",
        f"<?xml version='1.0' encoding='UTF-8'?>\n{hostdev('3b:00.0')}",
        f"<domainsnapshot><name>s</name>{domain(hostdev('3b:00.0'))}</domainsnapshot>",
        f"<domstatus state='running'>{domain(hostdev('3b:00.0'))}</domstatus>",
    ],
)
def test_a_domain_and_its_pieces_are_read(text: str) -> None:
    assert [device.address for device in host_devices(parse_domain(text.encode()))] == ["0000:3b:00.0"]


def test_elements_side_by_side_are_a_list_of_devices() -> None:
    text = f"<?xml version='1.0'?>{hostdev('3b:00.0')}\n{hostdev('3b:00.1')}"
    found = host_devices(parse_domain(text.encode()))
    assert [device.address for device in found] == ["0000:3b:00.0", "0000:3b:00.1"]


def test_another_encoding_is_read_as_it_says() -> None:
    text = f"<?xml version='1.0' encoding='UTF-16'?>{hostdev('3b:00.0')}"
    assert len(host_devices(parse_domain(text.encode("utf-16")))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "no XML at all",
        "<domain>",
        "<domain/><!",
        "<html><body/></html>",
        "<network><name>default</name></network>",
        f"<devices>{'<a>' * 300}{'</a>' * 300}</devices>",
        f"words {hostdev('3b:00.0')}",
        "<domain><name>\x00</name></domain>",
        "<!DOCTYPE domain><domain/>",
        "<!DOCTYPE domain [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><domain><name>&x;</name></domain>",
        "<!DOCTYPE domain SYSTEM 'http://127.0.0.1:9/x.dtd'><domain/>",
        LAUGHS,
    ],
)
def test_what_is_no_domain_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_domain(text.encode())
    assert caught.value.code == "domain-xml-invalid"
    assert "\n" not in str(caught.value)


def test_a_file_outside_is_never_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kept")
    text = f"<!DOCTYPE domain [<!ENTITY x SYSTEM '{secret}'>]><domain><name>&x;</name></domain>"
    with pytest.raises(UsageError) as caught:
        parse_domain(text.encode())
    assert "kept" not in str(caught.value)


def test_a_document_above_the_limit_is_not_parsed() -> None:
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        parse_domain(b"<" + b" " * SIZE_LIMIT)


def test_our_domains_are_told_by_their_metadata() -> None:
    mark = f"<metadata><v:allocation xmlns:v='{NAMESPACE}' id='a-1'/></metadata>"
    assert allocation_of(parse_domain(domain("", mark).encode())) == "a-1"
    assert allocation_of(parse_domain(domain("").encode())) is None
    alien = "<metadata><allocation id='a-1'/></metadata>"
    assert allocation_of(parse_domain(domain("", alien).encode())) is None
