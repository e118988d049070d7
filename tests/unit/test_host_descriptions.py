"""Host descriptions: a mistake is an error that names the entry and the key, never a trace, never a silence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpumgr.errors import SourceError
from vgpumgr.kernel.simulated.build import build
from vgpumgr.kernel.simulated.hosts import open_simulation, shipped_hosts

GPU: dict[str, Any] = {"address": "0000:3b:00.0", "id": "10de:2235", "class": "030200"}
VGPU: dict[str, Any] = {"scheme": "mdev", "framebuffer_mib": 1024, "types": []}
TYPE: dict[str, Any] = {"id": "nvidia-1", "size_mib": 1024}
SERIES: dict[str, Any] = {"prefix": "NVIDIA A40"}


def mistake(description: dict[str, Any]) -> str:
    with pytest.raises(SourceError) as caught:
        build("test", description)
    return caught.value.message


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"address": "0000:3b:20.0"}, "0000:3b:20.0: address: must be a PCI address"),
        ({"id": "10de"}, "0000:3b:00.0: id: must be like '10de:2235'"),
        ({"class": 30200}, "0000:3b:00.0: class: must be like '030200'"),
        ({"class": None}, "0000:3b:00.0: class is missing"),
        ({"driver": "../x"}, "0000:3b:00.0: driver: must be a driver's name"),
        ({"native": ["a", 1]}, "0000:3b:00.0: native: must be a driver's name"),
        ({"group": -3}, "0000:3b:00.0: group: must be a number"),
        ({"group": 1 << 40}, "0000:3b:00.0: group: must be a number"),
        ({"numa": "x"}, "0000:3b:00.0: numa: must be a number"),
        ({"numa": True}, "0000:3b:00.0: numa: must be a number"),
        ({"boot_vga": "no"}, "0000:3b:00.0: boot_vga: must be true or false"),
        ({"bars": ["16Q"]}, "0000:3b:00.0: bars: must be a size"),
        ({"bars": "16M"}, "0000:3b:00.0: bars: must be a list"),
        ({"link": "fast"}, "0000:3b:00.0: link: must be like"),
        ({"disk": "nvme0n1"}, "0000:3b:00.0: disk: must be like"),
        ({"net": "eno1 sideways"}, "0000:3b:00.0: net: must be like"),
        ({"drm": "card"}, "0000:3b:00.0: drm: must be like"),
        ({"behind": "0000:00:01.0"}, "0000:3b:00.0: behind: 0000:00:01.0 must be described before"),
        ({"sriov": {}}, "0000:3b:00.0: sriov: total is missing"),
        ({"sriov": {"total": 1 << 20}}, "0000:3b:00.0: sriov: total: must be a number"),
        ({"sriov": {"total": 1, "refuses": "EWHAT"}}, "0000:3b:00.0: sriov: refuses: must be an errno"),
        ({"driver": "x", "sriov": {"total": 4, "enabled": 9}}, "0000:3b:00.0: sriov: enabled: 9: "),
        ({"vgpu": VGPU | {"scheme": "x"}}, "0000:3b:00.0: vgpu: scheme: must be mdev, "),
        ({"vgpu": {"scheme": "mdev"}}, "0000:3b:00.0: vgpu: framebuffer_mib is missing"),
        ({"vgpu": VGPU | {"types": 7}}, "0000:3b:00.0: vgpu: types: must be a list"),
        (
            {"vgpu": VGPU | {"types": [TYPE | {"size_mib": 0}]}},
            "0000:3b:00.0: vgpu: types: size_mib: must be a number",
        ),
        ({"vgpu": VGPU | {"types": {}}}, "0000:3b:00.0: vgpu: types: prefix is missing"),
        (
            {"vgpu": VGPU | {"types": SERIES | {"Q": {"gib": [1]}}}},
            "0000:3b:00.0: vgpu: types: Q: first is missing",
        ),
        ({"vgpu": VGPU | {"types": SERIES | {"Z": {}}}}, "0000:3b:00.0: vgpu: types: unknown key 'Z'"),
        ({"vgpu": VGPU | {"mig": {"slices": 5}}}, "0000:3b:00.0: vgpu: mig: slices: must be 4 or 7"),
    ],
)
def test_a_mistake_in_a_function_is_named(wrong: dict[str, Any], said: str) -> None:
    assert mistake({"functions": [GPU | wrong]}).startswith(f"host description: {said}")


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({"colour": 1}, "the host: unknown key 'colour'; known: cmdline, "),
        ({"kernel": ["6.8"]}, "kernel: must be text"),
        ({"iommu": "maybe"}, "iommu: must be intel, amd or false"),
        ({"mounts": {"/": 7}}, "mounts: /: must be like '259:0 /dev/nvme0n1'"),
        ({"modules": {"vfio": "vfio-pci"}}, "modules: vfio: must be a list"),
        ({"functions": 7}, "functions: must be a list"),
        ({"functions": [None]}, "a function: must be a mapping"),
        ({"functions": [GPU, GPU]}, "0000:3b:00.0: stands twice"),
        ({"virtual": [{"name": "a b", "types": []}]}, "virtual: name: must be a device's name"),
        ({"virtual": [{"name": "mtty", "types": []}] * 2}, "virtual: mtty stands twice"),
    ],
)
def test_a_mistake_in_a_host_is_named(description: dict[str, Any], said: str) -> None:
    assert mistake(description).startswith(f"host description: {said}")


@pytest.mark.parametrize("name", shipped_hosts())
def test_the_shipped_hosts_are_well_described(name: str) -> None:
    open_simulation(name)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_KEYS = [
    *("address", "id", "class", "driver", "native", "behind", "group", "numa", "boot_vga", "subsystem", "bars"),
    *("reset", "link", "net", "disk", "drm", "power"),
]
_SRIOV = ["total", "enabled", "offset", "stride", "vf_device", "vf_class", "vf_driver", "refuses"]
_VGPU = ["scheme", "driver", "framebuffer_mib", "types", "equal", "header", "bad_vfs", "mixed", "mig", "ecc"]


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=3),
    st.none() | _VALUES | st.dictionaries(st.sampled_from(_SRIOV), _VALUES, max_size=4),
    st.none() | _VALUES | st.dictionaries(st.sampled_from(_VGPU), _VALUES, max_size=4),
)
def test_whatever_it_says_it_is_built_or_a_mistake(wrong: dict[str, Any], sriov: Any, vgpu: Any) -> None:
    function = {**GPU, "driver": "nvidia", "sriov": sriov, "vgpu": vgpu, **wrong}
    if isinstance(sriov, dict):
        function["sriov"] = {"total": 4, **sriov}
    if isinstance(vgpu, dict):
        function["vgpu"] = {**VGPU, **vgpu}
    try:
        build("test", {"functions": [function]})
    except SourceError as error:
        assert error.message.startswith("host description: ")
