"""A snapshot gives the same inventory elsewhere, and gives nobody's serial numbers away."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.hosttree import VF_CONFIG, HostTree
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.names import NoNames
from vgpumgr.inventory.snapshot import write_snapshot
from vgpumgr.kernel.recorded import open_recording
from vgpumgr.kernel.simulated import open_simulation

GPU = "0000:17:00.0"
SERIAL = bytes.fromhex("a1b2c3d4e5f60718")
MAC = "3cecefaabbcc"


def serial_config() -> bytes:
    """4 KiB of configuration space with a device serial number capability."""
    config = bytearray(4096)
    config[:4] = bytes.fromhex("de103522")
    config[0x100:0x104] = (0x0003 | 1 << 16).to_bytes(4, "little")
    config[0x104:0x10C] = SERIAL
    return bytes(config)


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """A host with everything that must not leave it."""
    tree = HostTree(tmp_path / "host")
    tree.iommu()
    tree.function("0000:00:01.0", "060400", "8086:347a", "pcieport", 1, config=serial_config())
    home = tree.function(
        GPU,
        "030200",
        "10de:2235",
        "nvidia",
        31,
        parent="0000:00:01.0",
        config=serial_config(),
        sriov_totalvfs="16",
        sriov_numvfs="1",
        serial_number="a1-b2-c3",
        vpd="SN=12345",
    )
    tree.function("0000:17:00.4", "030200", "10de:2235", "nvidia", 90, physfn=GPU, config=VF_CONFIG)
    nic = tree.function("0000:18:00.0", "020000", "15b3:1017", "mlx5_core", 31, parent="0000:00:01.0")
    tree.files({f"{nic}/net/enx{MAC}/flags": "0x1003\n", f"{nic}/net/enx{MAC}/address": "3c:ec:ef:aa:bb:cc\n"})
    tree.link(f"/sys/class/net/enx{MAC}", f"{nic}/net/enx{MAC}")
    tree.folder(f"{home}/drm/card1")
    tree.files(
        {
            "/proc/cmdline": "root=UUID=secret intel_iommu=on iommu=pt password=hunter2\n",
            "/proc/cpuinfo": "vendor_id\t: GenuineIntel\nSerial\t\t: 0000secret\n",
            "/proc/iomem": f"00100000-0fffffff : Kernel code\n10000000-1fffffff : {GPU}\n",
            f"/proc/driver/nvidia/gpus/{GPU}/information": "GPU UUID: \t GPU-secret\nDevice Minor: \t 0\n",
            "/proc/sys/kernel/hostname": "kvm7\n",
        }
    )
    tree.process(1, "init", "/etc/secret", "socket:[1]")
    tree.process(50, "python3", "/dev/nvidia0", "/home/secret/paper")
    return tree


def archive_of(tree: HostTree) -> bytes:
    file = io.BytesIO()
    write_snapshot(tree.kernel(), file)
    return file.getvalue()


@pytest.mark.parametrize("unpacked", [False, True])
def test_a_snapshot_is_read_again_as_the_same_host(tree: HostTree, tmp_path: Path, unpacked: bool) -> None:
    path = tmp_path / "kvm7.tar.gz"
    path.write_bytes(archive_of(tree))
    if unpacked:
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path / "unpacked")
        path = tmp_path / "unpacked"
    there = take_inventory(open_recording(str(path)), names=NoNames()).to_json()
    here = take_inventory(tree.kernel(), names=NoNames()).to_json()
    assert str(there).replace("enx000000000000", f"enx{MAC}") == str(here)


def test_nothing_that_identifies_hardware_or_people_is_in_it(tree: HostTree) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive_of(tree))) as archive:
        members = archive.getmembers()
        contents = [archive.extractfile(member) for member in members if member.isreg()]
        everything = b"\n".join(file.read() for file in contents if file)
        everything += "\n".join(f"{member.name} {member.linkname}" for member in members).encode()
    for secret in (
        SERIAL,
        MAC.encode(),
        b"3c:ec:ef",
        b"a1-b2-c3",
        b"SN=12345",
        b"secret",
        b"hunter2",
        b"Kernel code",
    ):
        assert secret not in everything
    assert b"Device Minor" in everything
    assert b"intel_iommu=on" in everything


def test_the_same_host_gives_the_same_members(tree: HostTree) -> None:
    def members() -> list[tuple[str, int, str]]:
        with tarfile.open(fileobj=io.BytesIO(archive_of(tree))) as archive:
            return [(member.name, member.size, member.linkname) for member in archive.getmembers()]

    assert members() == members()


def test_what_other_observers_read_is_in_it(tree: HostTree, tmp_path: Path) -> None:
    extra = f"/sys/bus/pci/devices/{GPU}/mdev_supported_types/nvidia-558/name"
    tree.file(extra, "NVIDIA A40-4Q\n")
    path = tmp_path / "with.tar.gz"
    with path.open("wb") as file:
        write_snapshot(tree.kernel(), file, observers=[lambda kernel, inventory: kernel.read(extra)])
    assert open_recording(str(path)).read(extra) == b"NVIDIA A40-4Q\n"


def test_a_look_that_was_denied_stays_unknown(tree: HostTree, tmp_path: Path) -> None:
    path = tmp_path / "denied.tar.gz"
    with path.open("wb") as file:
        before = write_snapshot(tree.kernel("/proc/50/fd"), file)
    after = take_inventory(open_recording(str(path)))
    assert not before.gpus[0].holders_known
    assert not after.gpus[0].holders_known


def test_of_the_kernel_log_only_what_drivers_said_of_their_functions_leaves_the_host(tmp_path: Path) -> None:
    tree = HostTree(tmp_path / "host")
    tree.function(GPU, "030000", "8086:46a6", "i915", sriov_totalvfs="7", sriov_numvfs="0")
    said = f"i915 {GPU}: driver does not support SR-IOV configuration via sysfs"
    tree.file("/dev/kmsg", f"6,1,0,-;usb 1-1: SerialNumber: secret\n6,2,0,-;{said}\n")
    data = archive_of(tree)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        log = archive.extractfile("dev/kmsg")
        assert log is not None
        assert log.read().decode() == f"6,2,0,-;{said}\n"
    (tmp_path / "host.tar").write_bytes(data)
    (gpu,) = take_inventory(open_recording(str(tmp_path / "host.tar")), names=NoNames()).gpus
    assert gpu.sriov is not None
    assert gpu.sriov.driver_ready is False


@pytest.mark.parametrize("name", ["dmesg", "dmesg.txt", "kernel.log"])
@pytest.mark.parametrize("form", ["folder", "tar", "simulated"])
def test_a_log_beside_a_recording_is_its_kernels_log(tmp_path: Path, form: str, name: str) -> None:
    tree = HostTree(tmp_path / "host")
    tree.function(GPU, "030000", "8086:46a6", "i915", sriov_totalvfs="7", sriov_numvfs="0")
    tree.file(name, f"[    4.0] i915 {GPU}: driver does not support SR-IOV configuration via sysfs\n")
    path = tmp_path / "host"
    if form == "tar":
        path = tmp_path / "host.tar"
        with tarfile.open(path, "w") as archive:
            archive.add(tmp_path / "host", "host")
    kernel = open_simulation(str(path)) if form == "simulated" else open_recording(str(path))
    (gpu,) = take_inventory(kernel, names=NoNames()).gpus
    assert gpu.sriov is not None
    assert gpu.sriov.driver_ready is False
