"""Who uses a GPU: open handles, disks, interfaces, monitors. Not being able to look is not "nobody"."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosttree import VF_CONFIG, HostTree
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.holders import find_holders
from vgpumgr.inventory.names import NoNames
from vgpumgr.model.host import Gpu

GPU = "0000:17:00.0"
AUDIO = "0000:17:00.1"
SECOND = "0000:65:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path)
    tree.iommu()
    tree.process(1, "init", "/dev/null")
    return tree


def gpus(tree: HostTree, *denied: str) -> dict[str, Gpu]:
    inventory = take_inventory(tree.kernel(*denied), names=NoNames())
    return {gpu.address: gpu for gpu in inventory.gpus}


def held(tree: HostTree, address: str) -> list[tuple[str, str, str]]:
    return [(holder.kind, holder.name, holder.address) for holder in gpus(tree)[address].holders]


def nvidia_pair(tree: HostTree) -> None:
    """Two cards whose driver numbers them against the bus order."""
    tree.function(GPU, "030200", "10de:2235", "nvidia", 31)
    tree.function(SECOND, "030200", "10de:2235", "nvidia", 58)
    for address, minor in ((GPU, 1), (SECOND, 0)):
        text = f"Model: \t\t NVIDIA A40\nGPU UUID: \t GPU-x\nDevice Minor: \t {minor}\n"
        tree.file(f"/proc/driver/nvidia/gpus/{address}/information", text)


def test_nobody_is_seen_to_be_nobody(tree: HostTree) -> None:
    nvidia_pair(tree)
    gpu = gpus(tree)[GPU]
    assert gpu.holders == ()
    assert gpu.holders_known
    assert gpu.passthrough.assignable


def test_an_open_nvidia_device_is_found_by_the_drivers_numbering(tree: HostTree) -> None:
    nvidia_pair(tree)
    tree.process(4242, "python3", "/dev/nvidiactl", "/dev/nvidia1", "/dev/nvidia1", "/dev/nvidia-uvm")
    assert held(tree, GPU) == [("process", "python3", GPU)]
    assert held(tree, SECOND) == []
    gpu = gpus(tree)[GPU]
    (reason,) = gpu.passthrough.reasons
    assert not gpu.passthrough.assignable
    assert reason.code == "in-use-by-host"
    assert "python3 (pid 4242)" in reason.message
    assert "/dev/nvidia1" in reason.message


def test_an_unnumbered_nvidia_gpu_may_be_any_that_is_not_taken(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:2235", "nvidia", 31)
    tree.function(SECOND, "030200", "10de:2235", "nvidia", 58)
    tree.file(f"/proc/driver/nvidia/gpus/{SECOND}/information", "Device Minor: \t 0\n")
    tree.process(7, "worker", "/dev/nvidia1")
    assert held(tree, GPU) == [("process", "worker", GPU)]
    assert held(tree, SECOND) == []


def test_the_drivers_own_spelling_of_an_address_is_understood(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:2235", "nvidia", 31)
    tree.file(f"/proc/driver/nvidia/gpus/0000{GPU.upper()}/information", "Device Minor: \t 5\n")
    tree.process(7, "worker", "/dev/nvidia5")
    assert held(tree, GPU) == [("process", "worker", GPU)]


@pytest.mark.parametrize(
    ("folder", "node"),
    [
        ("drm/card1", "/dev/dri/card1"),
        ("drm/renderD128", "/dev/dri/renderD128"),
        ("accel/accel0", "/dev/accel/accel0"),
        ("graphics/fb0", "/dev/fb0"),
    ],
)
def test_nodes_named_in_the_functions_directory(tree: HostTree, folder: str, node: str) -> None:
    home = tree.function(GPU, "030000", "1002:73bf", "amdgpu", 31)
    tree.folder(f"{home}/{folder}")
    tree.process(9, "Xorg", node)
    assert held(tree, GPU) == [("process", "Xorg", GPU)]


def test_a_compute_process_holds_all_amd_gpus(tree: HostTree) -> None:
    tree.function(GPU, "038000", "1002:740f", "amdgpu", 31)
    tree.function(SECOND, "038000", "1002:740f", "vfio-pci", 58)
    tree.process(9, "train", "/dev/kfd")
    assert held(tree, GPU) == [("process", "train", GPU)]
    assert held(tree, SECOND) == []


def test_an_open_sound_card_holds_the_companion(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "nvidia", 31)
    home = tree.function(AUDIO, "040300", "10de:1aef", "snd_hda_intel", 31)
    tree.folder(f"{home}/sound/card1")
    tree.process(9, "pipewire", "/dev/snd/controlC1", "/dev/snd/timer", "/dev/snd/seq")
    assert held(tree, GPU) == [("process", "pipewire", AUDIO)]
    assert not gpus(tree)[GPU].passthrough.assignable


def test_another_sound_card_holds_nothing_of_ours(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "nvidia", 31)
    home = tree.function(AUDIO, "040300", "10de:1aef", "snd_hda_intel", 31)
    tree.folder(f"{home}/sound/card1")
    tree.process(9, "pipewire", "/dev/snd/controlC0", "/dev/snd/pcmC11D3p")
    assert held(tree, GPU) == []


@pytest.mark.parametrize("node", ["/dev/vfio/31", "/dev/vfio/devices/vfio4", "/dev/vfio/31 (deleted)"])
def test_a_vm_holds_a_gpu_through_its_group_or_its_own_node(tree: HostTree, node: str) -> None:
    home = tree.function(GPU, "030000", "10de:2204", "vfio-pci", 31)
    tree.folder(f"{home}/vfio-dev/vfio4")
    tree.process(900, "qemu-system-x86", node)
    gpu = gpus(tree)[GPU]
    assert gpu.passthrough.state == "in-use"
    assert not gpu.passthrough.assignable
    assert [reason.code for reason in gpu.passthrough.reasons] == ["in-use"]


def test_a_group_goes_to_one_owner_as_a_whole(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 31)
    home = tree.function(SECOND, "030000", "10de:2204", "vfio-pci", 31)
    tree.folder(f"{home}/vfio-dev/vfio4")
    tree.process(900, "qemu-system-x86", "/dev/vfio/devices/vfio4")
    assert {gpu.passthrough.state for gpu in gpus(tree).values()} == {"in-use"}


def test_a_free_gpu_on_vfio_is_ready(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 31)
    tree.process(900, "qemu-system-x86", "/dev/vfio/vfio", "/dev/vfio/3", "/dev/vfio/310")
    gpu = gpus(tree)[GPU]
    assert (gpu.passthrough.state, gpu.passthrough.assignable, gpu.passthrough.reasons) == ("ready", True, ())


def test_a_vf_in_use_is_named(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:2235", "nvidia", 31, sriov_totalvfs="16", sriov_numvfs="1")
    tree.function("0000:17:00.4", "030200", "10de:2235", "vfio-pci", 90, physfn=GPU, config=VF_CONFIG)
    tree.process(900, "qemu-system-x86", "/dev/vfio/90")
    assert held(tree, GPU) == [("process", "qemu-system-x86", "0000:17:00.4")]


def test_a_proc_that_hides_other_peoples_processes_leaves_the_owner_unknown(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.iommu()
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 31)
    tree.process(900, "my own shell", "/dev/null")
    assert gpus(tree)[GPU].passthrough.state == "ready"
    tree.file("/proc/self/mounts", "proc /proc proc rw,nosuid,hidepid=2 0 0\n")
    assert gpus(tree)[GPU].passthrough.state == "unknown"


def test_files_that_may_not_be_looked_at_leave_the_owner_unknown(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 31)
    tree.process(900, "secret")
    gpu = gpus(tree, "/proc/900/fd")[GPU]
    assert not gpu.holders_known
    assert (gpu.passthrough.state, gpu.passthrough.assignable) == ("unknown", False)
    assert [reason.code for reason in gpu.passthrough.reasons] == ["owner-unknown"]


@pytest.mark.parametrize("driver", [None, "pci-stub"])
def test_an_unbound_gpu_shares_the_unknown_owner_of_its_group(tree: HostTree, driver: str | None) -> None:
    tree.function(GPU, "030000", "10de:2204", driver, 31)
    tree.function(GPU[:-1] + "1", "040300", "10de:1aef", "vfio-pci", 31)
    assert gpus(tree)[GPU].passthrough.state == "parked"
    tree.process(900, "secret")
    verdict = gpus(tree, "/proc/900/fd")[GPU].passthrough
    assert (verdict.state, verdict.assignable) == ("unknown", False)
    assert "in a group with functions on VFIO" in verdict.reasons[0].message


def test_a_single_unreadable_handle_leaves_the_owner_unknown(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 31)
    tree.process(900, "secret")
    tree.file("/proc/900/fd/3", "a handle that is no link")
    assert gpus(tree)[GPU].passthrough.state == "unknown"


def test_a_held_gpu_is_in_use_even_when_others_could_not_be_looked_at(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 31)
    tree.process(900, "qemu-system-x86", "/dev/vfio/31")
    tree.process(901, "secret")
    assert gpus(tree, "/proc/901/fd")[GPU].passthrough.state == "in-use"


def test_without_proc_the_owner_is_unknown_and_a_host_gpu_stays_offered(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.iommu()
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 31)
    tree.function(SECOND, "030000", "10de:2204", "nvidia", 58)
    found = gpus(tree)
    assert found[GPU].passthrough.state == "unknown"
    assert found[SECOND].passthrough.assignable
    assert not found[SECOND].holders_known
    warnings = take_inventory(tree.kernel(), names=NoNames()).warnings
    assert "holders-unknown" in {notice.code for notice in warnings}


def storage(tree: HostTree, disk: str = "nvme0n1") -> str:
    """A GPU with an NVMe disk in its group; returns the disk's place."""
    tree.function(GPU, "030000", "10de:2204", "nvidia", 31)
    home = tree.function("0000:18:00.0", "010802", "144d:a808", "nvme", 31)
    place = f"{home}/nvme/nvme0/{disk}"
    block_device(tree, disk, place, "259:0")
    block_device(tree, f"{disk}p2", f"{place}/{disk}p2", "259:2")
    return place


def block_device(tree: HostTree, name: str, place: str, number: str) -> None:
    tree.file(f"{place}/dev", f"{number}\n")
    tree.link(f"/sys/class/block/{name}", place)


def uses_of_the_disk(tree: HostTree) -> list[tuple[str, str]]:
    seen = find_holders(tree.kernel(), ["0000:18:00.0"])
    assert {holder.address for holder in seen.holders} <= {"0000:18:00.0"}
    return [(holder.kind, holder.name) for holder in seen.holders]


def test_a_mounted_disk_in_the_group_is_named(tree: HostTree) -> None:
    storage(tree)
    tree.file("/proc/1/mountinfo", "36 35 259:2 / /var/lib/libvirt rw shared:1 - ext4 /dev/nvme0n1p2 rw\n")
    assert uses_of_the_disk(tree) == [("mount", "/var/lib/libvirt")]
    (reason,) = gpus(tree)[GPU].passthrough.reasons
    assert reason.code == "group-shared"
    assert "0000:18:00.0 (nvme, mount /var/lib/libvirt)" in reason.message


def test_a_mount_point_with_a_blank_in_it(tree: HostTree) -> None:
    storage(tree)
    tree.file("/proc/1/mountinfo", "36 35 259:2 / /mnt/my\\040disk rw - ext4 /dev/nvme0n1p2 rw\n")
    assert uses_of_the_disk(tree) == [("mount", "/mnt/my disk")]


def test_what_is_stacked_on_a_disk_counts(tree: HostTree) -> None:
    place = storage(tree)
    tree.folder(f"{place}/nvme0n1p2/holders/dm-0")
    block_device(tree, "dm-0", "/sys/devices/virtual/block/dm-0", "253:0")
    tree.folder("/sys/devices/virtual/block/dm-0/holders/dm-3")
    block_device(tree, "dm-3", "/sys/devices/virtual/block/dm-3", "253:3")
    tree.file("/proc/1/mountinfo", "36 35 253:3 / / rw - ext4 /dev/mapper/vg-root rw\n")
    assert uses_of_the_disk(tree) == [("mount", "/")]


def test_an_anonymous_mount_is_found_by_its_source(tree: HostTree) -> None:
    storage(tree)
    tree.file("/proc/1/mountinfo", "36 35 0:31 /@home /home rw - btrfs /dev/nvme0n1p2 rw,subvol=/@home\n")
    assert uses_of_the_disk(tree) == [("mount", "/home")]


def test_swap_counts(tree: HostTree) -> None:
    storage(tree)
    tree.file("/proc/swaps", "Filename\t\tType\t\tSize\tUsed\tPriority\n/dev/nvme0n1p2  partition\t8\t0\t-2\n")
    assert uses_of_the_disk(tree) == [("swap", "/dev/nvme0n1p2")]


def test_a_multipath_disk_is_found_through_its_controllers(tree: HostTree) -> None:
    home = tree.function("0000:18:00.0", "010802", "144d:a808", "nvme", 31)
    tree.folder(f"{home}/nvme/nvme0")
    tree.link("/sys/class/nvme/nvme0", f"{home}/nvme/nvme0")
    subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    block_device(tree, "nvme0n1", f"{subsystem}/nvme0n1", "259:0")
    tree.folder(f"{subsystem}/nvme0")
    tree.link("/sys/class/nvme-subsystem/nvme-subsys0", subsystem)
    tree.file("/proc/1/mountinfo", "36 35 259:0 / /data rw - xfs /dev/nvme0n1 rw\n")
    assert uses_of_the_disk(tree) == [("mount", "/data")]


def test_a_recording_without_partitions_of_their_own_still_tells(tree: HostTree) -> None:
    home = tree.function("0000:18:00.0", "010802", "144d:a808", "nvme", 31)
    tree.file(f"{home}/nvme/nvme0/nvme0n1/nvme0n1p2/dev", "259:2\n")
    tree.link("/sys/block/nvme0n1", f"{home}/nvme/nvme0/nvme0n1")
    tree.file("/proc/self/mounts", "/dev/nvme0n1p2 /srv ext4 rw 0 0\nproc /proc proc rw 0 0\n")
    assert uses_of_the_disk(tree) == [("mount", "/srv")]


@pytest.mark.parametrize("upper", ["dm-0", "md127", "bcache0"])
def test_what_is_built_on_a_disk_has_it_without_a_mount(tree: HostTree, upper: str) -> None:
    place = storage(tree)
    tree.folder(f"{place}/nvme0n1p2/holders/{upper}")
    block_device(tree, upper, f"/sys/devices/virtual/block/{upper}", "253:0")
    assert uses_of_the_disk(tree) == [("block", upper)]


def test_a_mapped_device_is_named_as_its_user_knows_it(tree: HostTree) -> None:
    place = storage(tree)
    tree.folder(f"{place}/holders/dm-0")
    block_device(tree, "dm-0", "/sys/devices/virtual/block/dm-0", "253:0")
    tree.file("/sys/devices/virtual/block/dm-0/dm/name", "vg-images\n")
    (holder,) = find_holders(tree.kernel(), ["0000:18:00.0"]).holders
    assert (holder.name, holder.detail) == ("vg-images", "dm-0 on nvme0n1")


def test_a_holder_that_cannot_be_looked_at_still_holds(tree: HostTree) -> None:
    place = storage(tree)
    tree.folder(f"{place}/holders/dm-0")
    assert uses_of_the_disk(tree) == [("block", "dm-0")]


def test_of_two_volumes_on_a_disk_the_one_without_a_mount_counts_too(tree: HostTree) -> None:
    place = storage(tree)
    for number in (0, 1):
        tree.folder(f"{place}/holders/dm-{number}")
        block_device(tree, f"dm-{number}", f"/sys/devices/virtual/block/dm-{number}", f"253:{number}")
    tree.file("/proc/1/mountinfo", "36 35 253:1 / /srv rw - ext4 /dev/mapper/vg-srv rw\n")
    assert sorted(uses_of_the_disk(tree)) == [("block", "dm-0"), ("mount", "/srv")]


def test_a_loop_device_on_a_raw_disk_has_it(tree: HostTree) -> None:
    storage(tree)
    loop = "/sys/devices/virtual/block/loop3"
    block_device(tree, "loop3", loop, "7:3")
    tree.file(f"{loop}/loop/backing_file", "/dev/nvme0n1\n")
    assert uses_of_the_disk(tree) == [("block", "loop3")]


@pytest.mark.parametrize(
    ("node", "held"),
    [
        ("/dev/nvme0n1", True),
        ("/dev/nvme0n1p2", True),
        ("/dev/dm-0", True),
        ("/dev/nvme0", True),
        ("/dev/ng0n1", True),
        ("/dev/nvme1n1", False),
        ("/dev/nvme1", False),
    ],
)
def test_a_vm_with_the_raw_disk_open_holds_it(tree: HostTree, node: str, held: bool) -> None:
    place = storage(tree)
    controller = place.rpartition("/")[0]
    tree.link("/sys/class/nvme/nvme0", controller)
    tree.link("/sys/class/nvme-generic/ng0n1", f"{controller}/ng0n1")
    tree.link("/sys/class/nvme/nvme1", controller.replace("0000:18", "0000:19"))
    block_device(tree, "nvme1n1", "/sys/devices/pci0000:00/0000:19:00.0/nvme/nvme1/nvme1n1", "259:9")
    tree.folder(f"{place}/holders/dm-0")
    block_device(tree, "dm-0", "/sys/devices/virtual/block/dm-0", "253:0")
    tree.file("/proc/1/mountinfo", "36 35 253:0 / /srv rw - ext4 /dev/mapper/vg-srv rw\n")
    tree.process(4242, "qemu-system-x86", node)
    assert (("process", "qemu-system-x86") in uses_of_the_disk(tree)) is held


def test_an_open_scsi_disk_behind_a_controller_holds_it(tree: HostTree) -> None:
    home = tree.function("0000:18:00.0", "010400", "1000:005d", "megaraid_sas", 31)
    target = f"{home}/host0/target0:2:0/0:2:0:0"
    block_device(tree, "sda", f"{target}/block/sda", "8:0")
    tree.link("/sys/class/scsi_generic/sg0", f"{target}/scsi_generic/sg0")
    for pid, node in ((10, "/dev/sda"), (11, "/dev/sg0"), (12, "/dev/sdb")):
        tree.process(pid, f"p{pid}", node)
    assert uses_of_the_disk(tree) == [("process", "p10"), ("process", "p11")]


@pytest.mark.parametrize("way", ["partition", "udev"])
def test_a_disk_of_an_imported_zfs_pool_is_in_use(tree: HostTree, way: str) -> None:
    place = storage(tree)
    if way == "partition":
        tree.file(f"{place}/nvme0n1p2/uevent", "DEVTYPE=partition\nPARTN=1\nPARTNAME=zfs-6e3f5c0a\n")
    else:
        tree.file("/run/udev/data/b259:2", "E:ID_FS_LABEL=tank\nE:ID_FS_TYPE=zfs_member\n")
    assert uses_of_the_disk(tree) == []
    tree.file("/proc/spl/kstat/zfs/dbufs", "")
    assert uses_of_the_disk(tree) == []
    tree.file("/proc/spl/kstat/zfs/tank/state", "ONLINE\n")
    assert uses_of_the_disk(tree) == [("block", "zfs pool tank")]


def test_every_disk_of_a_btrfs_is_in_use_though_the_mount_names_one(tree: HostTree) -> None:
    storage(tree)
    tree.file("/proc/1/mountinfo", "36 35 0:31 / /home rw - btrfs /dev/sda rw\n")
    tree.folder("/sys/fs/btrfs/5b1f/devices/sda")
    tree.folder("/sys/fs/btrfs/5b1f/devices/nvme0n1")
    tree.folder("/sys/fs/btrfs/features")
    assert uses_of_the_disk(tree) == [("block", "btrfs 5b1f")]


def test_a_multipath_disk_holds_both_of_its_functions(tree: HostTree) -> None:
    subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    for number, address in enumerate(("0000:18:00.0", "0000:19:00.0")):
        home = tree.function(address, "010802", "144d:a808", "nvme", 31 + number)
        tree.folder(f"{home}/nvme/nvme{number}")
        tree.link(f"/sys/class/nvme/nvme{number}", f"{home}/nvme/nvme{number}")
        tree.folder(f"{subsystem}/nvme{number}")
    block_device(tree, "nvme0n1", f"{subsystem}/nvme0n1", "259:0")
    tree.link("/sys/class/nvme-subsystem/nvme-subsys0", subsystem)
    tree.file("/proc/1/mountinfo", "36 35 259:0 / /data rw - xfs /dev/nvme0n1 rw\n")
    seen = find_holders(tree.kernel(), ["0000:18:00.0", "0000:19:00.0"])
    assert {holder.address for holder in seen.holders} == {"0000:18:00.0", "0000:19:00.0"}


def test_an_unused_disk_holds_nothing(tree: HostTree) -> None:
    storage(tree)
    tree.file("/proc/1/mountinfo", "36 35 8:1 / / rw - ext4 /dev/sda1 rw\n")
    assert uses_of_the_disk(tree) == []


@pytest.mark.parametrize(
    ("flags", "state", "up"),
    [
        ("0x1003", "up", True),
        ("0x1003", "down", True),
        ("0x1002", "down", False),
        (None, "down", False),
        (None, None, True),
    ],
)
def test_an_interface_that_is_up_counts(tree: HostTree, flags: str | None, state: str | None, up: bool) -> None:
    home = tree.function("0000:19:00.0", "020000", "8086:1533", "igb", 31)
    tree.folder(f"{home}/net/eno1")
    tree.link("/sys/class/net/eno1", f"{home}/net/eno1")
    if flags:
        tree.file(f"{home}/net/eno1/flags", f"{flags}\n")
    if state:
        tree.file(f"{home}/net/eno1/operstate", f"{state}\n")
    seen = find_holders(tree.kernel(), ["0000:19:00.0"])
    assert [(holder.kind, holder.name) for holder in seen.holders] == ([("network", "eno1")] if up else [])


@pytest.mark.parametrize(
    ("status", "enabled", "on"),
    [("connected", "enabled", True), ("connected", "disabled", False), ("disconnected", "enabled", False)],
)
def test_a_monitor_that_is_switched_on_counts(tree: HostTree, status: str, enabled: str, on: bool) -> None:
    home = tree.function(GPU, "030000", "1002:73bf", "amdgpu", 31)
    tree.files({f"{home}/drm/card1/card1-DP-1/status": status, f"{home}/drm/card1/card1-DP-1/enabled": enabled})
    assert held(tree, GPU) == ([("display", "card1-DP-1", GPU)] if on else [])
    assert gpus(tree)[GPU].passthrough.assignable is not on


def test_looking_for_holders_of_nonsense_finds_nothing(tree: HostTree) -> None:
    seen = find_holders(tree.kernel(), ["../../etc", "0000:ff:00.0", ""])
    assert seen.holders == ()
    assert seen.known
