"""The steps that define and start VMs: done, verified against libvirt, and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.guests import MDEV, OTHER_MDEV, OWN, domain, request
from vgpumgr.domain.composer import compose
from vgpumgr.domain.templates import Templates
from vgpumgr.errors import FailedError, NotFoundError, RefusedError
from vgpumgr.hypervisor.libvirt_port import LibvirtHypervisor
from vgpumgr.hypervisor.port import Hypervisor
from vgpumgr.hypervisor.steps import DefineDomain, StartDomain, find_domain
from vgpumgr.kernel.recorded import open_recording
from vgpumgr.model.domain import DomainState, GuestDevice
from vgpumgr.plans.step import StepContext

THEIRS = domain("", name="theirs").replace("'kvm'", "'test'").replace(" arch='x86_64' machine='q35'", "")
NODE = f"<node>{THEIRS}</node>"
XML = compose(Templates().load("linux-compute"), request(GuestDevice(mdev=MDEV)))
CHANGED = compose(Templates().load("linux-compute"), request(GuestDevice(mdev=OTHER_MDEV)))
DEFINE = DefineDomain(OWN, "allocation-1", XML)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[StepContext]:
    (tmp_path / "node.xml").write_text(NODE)
    (tmp_path / "sys").mkdir()
    hypervisor = LibvirtHypervisor(f"test://{tmp_path}/node.xml")
    yield StepContext(open_recording(str(tmp_path)), {Hypervisor: hypervisor})
    hypervisor.close()


def state(context: StepContext) -> DomainState | None:
    found = find_domain(context.port(Hypervisor), OWN)
    return found.state if found is not None else None


def test_a_definition_is_made_verified_and_taken_back(context: StepContext) -> None:
    DEFINE.apply(context)
    DEFINE.verify(context)
    assert state(context) is DomainState.SHUT_OFF
    DEFINE.undo(context)
    DEFINE.undo(context)
    assert state(context) is None


def test_taking_back_a_change_brings_the_earlier_definition(context: StepContext) -> None:
    DEFINE.apply(context)
    change = replace(DEFINE, xml=CHANGED, prior=context.port(Hypervisor).xml(OWN))
    change.apply(context)
    assert [device.uuid for device in context.port(Hypervisor).domain(OWN).devices] == [OTHER_MDEV]
    change.undo(context)
    assert [device.uuid for device in context.port(Hypervisor).domain(OWN).devices] == [MDEV]


def test_a_definition_with_other_devices_is_not_taken_for_this_one(context: StepContext) -> None:
    replace(DEFINE, xml=CHANGED).apply(context)
    with pytest.raises(FailedError, match="read-back failed"):
        DEFINE.verify(context)


def test_a_domain_of_another_allocation_is_left_alone(context: StepContext) -> None:
    DEFINE.apply(context)
    replace(DEFINE, allocation="allocation-2").undo(context)
    assert state(context) is DomainState.SHUT_OFF


def test_a_foreign_domain_of_the_name_is_neither_changed_nor_removed(context: StepContext) -> None:
    step = DefineDomain("theirs", "allocation-1", XML.replace(f"<name>{OWN}<", "<name>theirs<"))
    with pytest.raises(RefusedError):
        step.apply(context)
    step.undo(context)
    assert context.port(Hypervisor).domain("theirs").allocation is None


def test_a_start_is_seen_in_libvirt(context: StepContext) -> None:
    DEFINE.apply(context)
    step = StartDomain(OWN)
    assert not step.is_done(context)
    step.apply(context)
    step.verify(context)
    assert state(context) is DomainState.RUNNING
    step.undo(context)
    assert state(context) is DomainState.RUNNING


def test_a_start_of_nothing_is_not_done(context: StepContext) -> None:
    step = StartDomain(OWN)
    assert not step.is_done(context)
    with pytest.raises(NotFoundError):
        step.apply(context)
