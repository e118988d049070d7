"""Domain checks against the hosts of the field cases: what would stop the VM is found before it is started."""

from __future__ import annotations

import pytest

from tests.recorded.hosts import case, case_folder
from tests.unit.guests import codes, domain, hostdev
from vgpumgr.domain.document import parse_domain
from vgpumgr.model.domain import CheckResult
from vgpumgr.service import Service


def check(number: str, xml: str) -> CheckResult:
    return Service(case(number)).check_domain(xml.encode())


def blocked_by(result: CheckResult) -> list[str]:
    return [item for problem in result.problems if problem.code == "group-not-viable" for item in problem.addresses]


@pytest.mark.parametrize(
    ("number", "address", "blockers"),
    [
        ("C01", "86:00.0", ["0000:86:00.1"]),
        ("C02", "01:00.0", ["0000:01:00.1"]),
        ("C03", "09:00.0", ["0000:09:00.2", "0000:09:00.3"]),
    ],
)
def test_blockers_are_named_before_qemu_is_started(number: str, address: str, blockers: list[str]) -> None:
    result = check(number, domain(hostdev(address)))
    assert blocked_by(result) == blockers
    assert result.fatal


def test_c01_both_functions_managed_are_taken_by_libvirt() -> None:
    result = check("C01", domain(hostdev("86:00.0", "yes") + hostdev("86:00.1", "yes")))
    assert codes(result) == []


def test_c02_the_bridge_is_not_passed() -> None:
    assert "bridge" in codes(check("C02", hostdev("00:01.0", "yes")))


def test_c05_the_hosts_only_display_and_usb_are_not_taken() -> None:
    alone = check("C05", domain(hostdev("04:00.0", "yes")))
    assert blocked_by(alone) == ["0000:04:00.1", "0000:04:00.2", "0000:04:00.3", "0000:04:00.5"]
    everything = "".join(hostdev(f"04:00.{function}", "yes") for function in (0, 1, 2, 3, 5))
    assert codes(check("C05", domain(everything))) == ["boot-display"]


def test_c06_without_an_iommu_nothing_starts() -> None:
    assert "iommu-inactive" in codes(check("C06", hostdev("08:00.0", "yes")))


def test_c11_the_second_segment_is_right_and_a_bus_in_the_slots_place_is_not() -> None:
    good = check("C11", hostdev("0001:d6:00.0"))
    assert (codes(good), good.devices[0].device.address) == ([], "0001:d6:00.0")
    wrong = "<hostdev mode='subsystem' type='pci'><source><address domain='0x0001' slot='0xd6'/></source></hostdev>"
    assert codes(check("C11", wrong)) == ["address-invalid"]


def test_c13_vfs_and_their_card() -> None:
    assert codes(check("C13", hostdev("42:00.2"))) == []
    assert codes(check("C13", hostdev("42:00.3"))) == ["device-not-detached"]
    assert "vfs-enabled" in codes(check("C13", hostdev("42:00.0", "yes")))


def test_c15_a_dead_gpu_does_not_start() -> None:
    result = check("C15", hostdev("0c:00.0"))
    assert "device-failed" in codes(result)
    assert "power-cycle" in " ".join(problem.message for problem in result.problems)


def test_c21_a_vgpu_stays_on_its_vendors_driver() -> None:
    assert codes(check("C21", hostdev("26:00.5"))) == []
    assert codes(check("C21", hostdev("26:00.5", "yes"))) == ["managed-vgpu"]
    assert codes(check("C21", hostdev("26:00.4"))) == ["vf-without-type"]


def test_c29_an_unmanaged_device_must_be_detached_first() -> None:
    text = (case_folder("C29") / "input.xml").read_text(encoding="utf-8")
    for xml in (text, f"<devices>{text}</devices>", domain(text)):
        result = check("C29", xml)
        assert codes(result) == ["device-not-detached"]
        assert result.problems[0].addresses == ("0000:c3:1b.1",)
    assert parse_domain(text.encode()).tag == "hostdev"


def test_c37_an_owner_that_nobody_could_ask_for_is_unknown() -> None:
    result = check("C11", hostdev("0001:d6:00.0"))
    assert codes(result, "warning") == ["owner-unknown"]
