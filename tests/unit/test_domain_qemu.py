"""What libvirt's QEMU driver makes of our domains: it accepts them, and gives QEMU exactly our devices."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.unit.guests import DOMAIN_UUID, MDEV, OTHER_MDEV, domain, mdev, request
from vgpumgr.domain.composer import compose
from vgpumgr.domain.document import parse_domain
from vgpumgr.domain.preflight import check
from vgpumgr.domain.templates import Templates
from vgpumgr.model.domain import GuestDevice, GuestShape

NOBODY = 65534
WHOLE = GuestDevice(("0000:3b:00.0", "0000:3b:00.1"), bar_bytes=1 << 36)
TYPED_VF = GuestDevice(("0000:26:00.5",))
VGPU = GuestDevice(mdev=MDEV, display=True, ramfb=True)
SECOND = GuestDevice(mdev=OTHER_MDEV)
DISKS = GuestShape(disks=("/srv/system.qcow2", "/srv/setup.iso"))

COMPOSED = {
    (template, kind): compose(
        Templates().load(template), replace(request(*devices, shape=DISKS), name=f"{template}-{kind}")
    )
    for template in ("linux-compute", "windows11-desktop")
    for kind, devices in {"none": (), "mdevs": (VGPU, SECOND), "gpu": (WHOLE,), "vf": (TYPED_VF,)}.items()
}
NARROW = parse_domain(domain("").encode())
"""A template whose processor has an address width of its own."""
REFUSED = {
    "no model": domain(mdev(attributes="managed='no'")),
    "no display": domain(mdev(attributes="managed='no' model='vfio-pci' display='on'")),
    "twice": domain(mdev() + mdev()),
    "two ramfb": domain(
        mdev(attributes="managed='no' model='vfio-pci' display='on' ramfb='on'")
        + mdev(OTHER_MDEV, "managed='no' model='vfio-pci' display='on' ramfb='on'")
        + "<graphics type='vnc'/>"
    ),
    "slot": domain("<hostdev mode='subsystem' type='pci'><source><address slot='0xd6'/></source></hostdev>"),
}


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[object, dict[str, object]]]:
    """The driver's answers to all domains, asked at once: opening it takes seconds."""
    folder = Path(mkdtemp(prefix="vgpumgr-qemu-"))
    as_root = os.geteuid() == 0
    if as_root:
        os.chown(folder, NOBODY, NOBODY)
    window = compose(NARROW, request(replace(WHOLE, functions=(), mdev=MDEV)))
    asked = {**COMPOSED, **REFUSED, "window": window}
    domains = [xml.replace("type='kvm'", "type='qemu'") for xml in asked.values()]
    text = json.dumps({"root": str(folder), "uid": NOBODY if as_root else None, "domains": domains})
    program = Path(__file__).with_name("qemu_driver.py")
    try:
        done = subprocess.run(
            [sys.executable, str(program)], input=text, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        yield dict(zip(asked, json.loads(done.stdout)["answers"], strict=True))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def devices_of(argv: str) -> list[dict[str, object]]:
    """The VFIO devices among QEMU's arguments."""
    found = [json.loads(text) for text in re.findall(r"-device '(\{[^']*\})'", argv)]
    return [item for item in found if str(item["driver"]).startswith("vfio-pci")]


@pytest.mark.parametrize("key", COMPOSED, ids="-".join)
def test_a_composed_domain_is_accepted(answers: dict[object, dict[str, object]], key: tuple[str, str]) -> None:
    assert answers[key]["error"] is None


def test_qemu_gets_exactly_the_vgpus(answers: dict[object, dict[str, object]]) -> None:
    desktop = devices_of(str(answers["windows11-desktop", "mdevs"]["argv"]))
    path = "/sys/bus/mdev/devices"
    assert [(item["sysfsdev"], item["id"], item["bus"], item["addr"]) for item in desktop] == [
        (f"{path}/{MDEV}", "ua-vgpu0", "pci.1", "0x0"),
        (f"{path}/{OTHER_MDEV}", "ua-vgpu1", "pci.2", "0x0"),
    ]
    assert (desktop[0]["driver"], desktop[0]["display"], desktop[0]["ramfb"]) == ("vfio-pci-nohotplug", "on", True)
    assert (desktop[1]["driver"], desktop[1]["display"]) == ("vfio-pci", "off")
    compute = devices_of(str(answers["linux-compute", "mdevs"]["argv"]))
    assert [item["display"] for item in compute] == ["off", "off"]
    assert devices_of(str(answers["linux-compute", "none"]["argv"])) == []


def test_the_desktop_boots_secure_and_the_compute_machine_does_not(
    answers: dict[object, dict[str, object]],
) -> None:
    desktop, compute = (str(answers[name, "none"]["argv"]) for name in ("windows11-desktop", "linux-compute"))
    assert ".ms." in desktop or "secboot" in desktop
    assert ".ms." not in compute and "secboot" not in compute
    assert '"driver":"tpm-crb"' in desktop
    assert DOMAIN_UUID in desktop


def test_the_firmware_window_reaches_qemu(answers: dict[object, dict[str, object]]) -> None:
    assert answers["window"]["error"] is None
    assert "-fw_cfg name=opt/ovmf/X-PciMmio64Mb,string=65536" in str(answers["window"]["argv"])


@pytest.mark.parametrize("key", REFUSED)
def test_what_libvirt_refuses_the_preflight_has_found_before(
    answers: dict[object, dict[str, object]], key: str
) -> None:
    assert answers[key]["error"] is not None
    assert check(parse_domain(REFUSED[key].encode()), None, {}).fatal
