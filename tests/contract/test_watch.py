"""Hot-plug events: what is told, and how who waits for it is woken."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from tests.contract.rig import Rig
from vgpumgr.kernel.port import MDEV_DEVICES, MDEV_PARENTS, Kernel, KernelEvent, Watch

SECONDS = 20.0
"""Longer than udev takes on a slow machine."""


def told(watch: Watch, action: str, name: str) -> KernelEvent | None:
    """The event that is waited for; others may come before it."""
    end = time.monotonic() + SECONDS
    while (left := end - time.monotonic()) > 0:
        event = watch.poll(left)
        if event is not None and (event.action, event.name) == (action, name):
            return event
    return None


def test_without_an_event_polling_ends_in_time(kernel: Kernel) -> None:
    with kernel.watch() as watch:
        while watch.poll(0.2) is not None:
            continue  # what earlier tests did may still be told
        before = time.monotonic()
        assert watch.poll(0.05) is None
        assert time.monotonic() - before >= 0.04


def test_who_waits_without_end_is_woken(kernel: Kernel) -> None:
    with kernel.watch() as watch:
        ended = threading.Event()

        def wait() -> None:
            while watch.poll(None) is not None:
                continue
            ended.set()

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        assert not ended.wait(0.1)
        watch.wake()
        assert ended.wait(SECONDS)


def test_to_wake_nobody_ends_the_next_wait_and_no_other(kernel: Kernel) -> None:
    with kernel.watch() as watch:
        while watch.poll(0.2) is not None:
            continue
        watch.wake()
        assert watch.poll(None) is None
        before = time.monotonic()
        assert watch.poll(0.05) is None
        assert time.monotonic() - before >= 0.04
    watch.wake()


@pytest.mark.needs("mdev_parent")
def test_a_mediated_device_that_comes_and_goes_is_told(kernel: Kernel, rig: Rig) -> None:
    name = str(uuid.uuid4())
    with kernel.watch() as watch:
        kernel.write(f"{MDEV_PARENTS}/{rig.mdev_parent}/mdev_supported_types/{rig.mdev_type}/create", name)
        added = told(watch, "add", name)
        assert added is not None
        assert added.subsystem == "mdev"
        assert kernel.exists(f"{MDEV_DEVICES}/{name}")
        kernel.write(f"{MDEV_DEVICES}/{name}/remove", "1")
        assert told(watch, "remove", name) is not None


@pytest.mark.needs("sriov")
def test_virtual_functions_that_come_and_go_are_told(kernel: Kernel, rig: Rig) -> None:
    with kernel.watch() as watch:
        numvfs = f"/sys/bus/pci/devices/{rig.sriov}/sriov_numvfs"
        kernel.write(numvfs, "1")
        virtual = kernel.readlink(f"/sys/bus/pci/devices/{rig.sriov}/virtfn0").rpartition("/")[2]
        added = told(watch, "add", virtual)
        assert added is not None
        assert added.subsystem == "pci"
        kernel.write(numvfs, "0")
        assert told(watch, "remove", virtual) is not None
