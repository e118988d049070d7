"""Small recorded hosts, written for these tests."""

from __future__ import annotations

from pathlib import Path

PCI = "sys/bus/pci/devices"


def add_function(
    root: Path, address: str, *, ids: str, class_id: str, driver: str | None, group: int | None, **attributes: str
) -> None:
    """One PCI function with a few attributes, its driver and its IOMMU group."""
    folder = root / "sys/devices/pci0000:00" / address
    folder.mkdir(parents=True)
    vendor, device = ids.split(":")
    values = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{class_id}"} | attributes
    for name, value in values.items():
        (folder / name).write_text(value + "\n")
    (root / PCI).mkdir(parents=True, exist_ok=True)
    (root / PCI / address).symlink_to(f"../../../devices/pci0000:00/{address}")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    if group is not None:
        members = root / f"sys/kernel/iommu_groups/{group}/devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / address).symlink_to(f"../../../../devices/pci0000:00/{address}")
        (folder / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
        (root / "sys/class/iommu/dmar0").mkdir(parents=True, exist_ok=True)


def two_cards(root: Path) -> Path:
    """A host with its boot display and one card for VMs, half of it still with the host."""
    add_function(root, "0000:03:00.0", ids="10de:1ff2", class_id="030000", driver="nvidia", group=3, boot_vga="1")
    add_function(root, "0000:86:00.0", ids="10de:2204", class_id="030000", driver="vfio-pci", group=6, boot_vga="0")
    add_function(root, "0000:86:00.1", ids="10de:1aef", class_id="040300", driver="snd_hda_intel", group=6)
    return root
