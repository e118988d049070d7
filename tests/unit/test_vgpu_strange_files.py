"""Whatever a driver's files hold, vGPUs are observed without an exception, and can be written down."""

from __future__ import annotations

import errno
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.recorded import RecordedTree
from vgpumgr.kernel.tree import File, Link, Tree
from vgpumgr.vgpu.descriptions import parse_creatable, parse_description
from vgpumgr.vgpu.names import parse_name
from vgpumgr.vgpu.observe import observe_vgpus

PF, VF = "0000:3b:00.0", "0000:3b:00.4"
DEVICES = "/sys/bus/pci/devices"
REAL = [
    b"ID    : vGPU Name\n1147  : NVIDIA L40S-1Q\n",
    b"num_heads=4, frl_config=60, framebuffer=2048M, max_resolution=7680x4320, max_instance=4\n",
    b"NVIDIA A40-8Q\n",
    b"1147\n",
    b"1\n",
    b"9" * 5000,
    "٣".encode(),
]
content = st.one_of(st.sampled_from(REAL), st.binary(max_size=60))
file = st.one_of(
    content.map(File), st.sampled_from((errno.EIO, errno.ENXIO, errno.EACCES)).map(lambda error: File(error=error))
)
names = st.one_of(
    st.sampled_from(("nvidia-63", "nvidia-558", "i915-GVTg_V5_4", "0")), st.text("a\ud80019-\n", min_size=1)
)
types = st.dictionaries(
    names, st.dictionaries(st.sampled_from(("name", "description", "available_instances")), file), max_size=3
)
vendor = st.dictionaries(st.sampled_from(("creatable_vgpu_types", "current_vgpu_type", "gpu_instance_id")), file)
mdevs = st.dictionaries(names, st.sampled_from((PF, VF, "nowhere")), max_size=3)


def card() -> Tree:
    tree = Tree()
    for address in (PF, VF):
        for name, text in (("vendor", "0x10de"), ("device", "0x2235"), ("class", "0x030200")):
            tree.put(f"{DEVICES}/{address}/{name}", File(text.encode()))
    for name, count in (("sriov_totalvfs", b"32"), ("sriov_numvfs", b"1")):
        tree.put(f"{DEVICES}/{PF}/{name}", File(count))
    tree.put(f"{DEVICES}/{VF}/physfn", Link(f"../{PF}"))
    return tree


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(on_card=types, on_vf=types, vendor_files=vendor, live=mdevs)
def test_any_files_are_observed(
    on_card: dict[str, dict[str, File]],
    on_vf: dict[str, dict[str, File]],
    vendor_files: dict[str, File],
    live: dict[str, str],
) -> None:
    tree = card()
    for address, found in ((PF, on_card), (VF, on_vf)):
        for type_id, files in found.items():
            for name, item in files.items():
                tree.put(f"{DEVICES}/{address}/mdev_supported_types/{type_id}/{name}", item)
    for name, item in vendor_files.items():
        tree.put(f"{DEVICES}/{VF}/nvidia/{name}", item)
    for uuid, parent in live.items():
        tree.put(f"/sys/bus/mdev/devices/{uuid}", Link(f"../../../devices/{parent}/{uuid}"))
    kernel = RecordedTree("built", tree)
    inventory = observe_vgpus(kernel, take_inventory(kernel))
    (gpu,) = inventory.gpus
    assert all(profile.creatable >= 0 for profile in gpu.vgpu.profiles)
    assert json.dumps(inventory.to_json(), ensure_ascii=False).encode()


@given(st.text())
def test_any_text_is_taken_apart_or_left(text: str) -> None:
    parse_name(text)
    parse_description(text)
    assert all(number.isascii() and number.isdecimal() for number, _ in parse_creatable(text))
