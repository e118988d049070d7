"""Asks libvirt's own QEMU driver, inside this process and without a daemon, what it makes of domains.

A program: JSON on standard input, ``{"root": folder, "uid": number|null, "domains": [xml]}``; JSON on standard
output, ``{"kvm": bool, "answers": [{"error": [code, message]|null, "argv": text}]}``. The driver works so only
for a user other than root: with a ``uid`` the program becomes that user after everything is loaded.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import libvirt
from lxml import etree

KVM = Path("/dev/kvm")


def become(uid: int) -> None:
    """Leave root behind; the group of /dev/kvm comes along."""
    groups = [KVM.stat().st_gid] if KVM.exists() else []
    os.setgroups(groups)
    os.setgid(uid)
    os.setuid(uid)


def emulated(xml: str) -> str:
    """The same domain for a machine without KVM: the processor and what only KVM can do are changed."""
    root = etree.fromstring(xml)
    root.set("type", "qemu")
    cpu = root.find("cpu")
    if cpu is not None:
        for name in list(cpu.attrib):
            del cpu.attrib[name]
        cpu.set("mode", "maximum")
        for item in cpu.findall("maxphysaddr"):
            cpu.remove(item)
    for item in root.findall("features/hyperv"):
        root.find("features").remove(item)
    return etree.tostring(root, encoding="unicode")


def answer(connection: Any, xml: str) -> dict[str, object]:
    """Define the domain with validation, remove it again, and ask for QEMU's arguments."""
    try:
        domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
    except libvirt.libvirtError as error:
        return {"error": [error.get_error_code(), str(error)], "argv": ""}
    return {"error": None, "argv": arguments(connection, xml)}


def arguments(connection: Any, xml: str) -> str:
    """QEMU's arguments; for PCI devices libvirt gives them only on a host with VFIO."""
    try:
        return str(connection.domainXMLToNative("qemu-argv", xml))
    except libvirt.libvirtError as error:
        return f"refused: {error}"


def main() -> None:
    """Read, become another user, open the driver, answer."""
    asked = json.load(sys.stdin)
    if asked["uid"] is not None:
        become(asked["uid"])
    home = asked["root"]
    os.environ.update(HOME=home, XDG_RUNTIME_DIR=home, XDG_CACHE_HOME=home, XDG_CONFIG_HOME=home)
    libvirt.registerErrorHandler(lambda *_: None, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=events, daemon=True).start()
    connection = libvirt.open(f"qemu:///embed?root={home}/driver")
    kvm = os.access(KVM, os.R_OK | os.W_OK)
    domains = asked["domains"] if kvm else [emulated(xml) for xml in asked["domains"]]
    json.dump({"kvm": kvm, "answers": [answer(connection, xml) for xml in domains]}, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # The driver's threads need not be waited for.


def events() -> None:
    """The driver waits for QEMU's answers in an event loop."""
    while True:
        libvirt.virEventRunDefaultImpl()


if __name__ == "__main__":
    main()
