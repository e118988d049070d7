"""The field cases of slicing come out as their "Expected" says, and so do their kin on other cards.

C13, C19, C21 and C25 are trees; C18, C20 and C23 tell of answers to writes and are played on simulated cards.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.recorded.hosts import case, gpu_of, host_of_case
from tests.unit.vgpu_hosts import CARD, flex, host, look, nvidia, run, service_of, simulated
from vgpumgr.domain.composer import compose
from vgpumgr.domain.templates import Templates
from vgpumgr.errors import VgpumgrError
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.model.domain import DomainRequest, GuestDevice, GuestShape
from vgpumgr.model.host import Gpu
from vgpumgr.service import Service
from vgpumgr.vgpu.observe import observe_vgpus
from vgpumgr.vgpu.vf_plans import plan_slice
from vgpumgr_api.app import create_app

Open = Callable[..., tuple[Service, FlaskClient]]


def observed(number: str, address: str) -> Gpu:
    return gpu_of(observe_vgpus(case(number), host_of_case(number)), address)


@pytest.fixture
def open_host(tmp_path: Path) -> Iterator[Open]:
    opened: list[Service] = []

    def open_(*functions: dict[str, Any]) -> tuple[Service, FlaskClient]:
        opened.append(service_of(tmp_path, *functions))
        return opened[-1], create_app(opened[-1]).test_client()

    yield open_
    for service in opened:
        service.close()


def make(client: FlaskClient, gpu: str, profile: str, count: int = 1) -> Any:
    body = {"profile": profile, "count": count, "gpu": gpu}
    return client.post("/v1/vgpus?wait=30", json=body)


def offered(client: FlaskClient, gpu: str) -> dict[str, int]:
    items = client.get(f"/v1/profiles?gpu={gpu}&limit=500").get_json()["items"]
    return {item["id"]: item["creatable"] for item in items}


def live(client: FlaskClient) -> list[tuple[str, bool]]:
    return [(item["profile_id"], item["ours"]) for item in client.get("/v1/vgpus").get_json()["items"]]


# -- C13 ----------------------------------------------------------------------------------------------
def test_c13_vfs_are_slices_of_their_card_and_no_cards() -> None:
    gpu = observed("C13", "0000:42:00.0")
    assert [item.address for item in host_of_case("C13").gpus] == [gpu.address]
    assert [reason.code for reason in gpu.passthrough.reasons] == ["vfs-enabled"]
    assert (gpu.vgpu.capable, gpu.vgpu.reasons[0].code) == (True, "no-vgpu-interface")


# -- C18 ----------------------------------------------------------------------------------------------
def typed(number: int, name: str, most: int, size: int, told: bool = True) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": f"nvidia-{number}", "name": name, "size_mib": size, "most": most}
    return entry | ({"description": f"framebuffer={size}M, max_instance={most}"} if told else {})


P40 = [
    typed(156, "GRID P40-2B", 12, 2048),
    typed(215, "GRID P40-2B4", 12, 2048, told=False),
    typed(241, "GRID P40-1B4", 24, 1024),
    typed(283, "GRID P40-4C", 6, 4096),
    typed(284, "GRID P40-6C", 4, 6144),
    typed(285, "GRID P40-8C", 3, 8192),
    typed(286, "GRID P40-12C", 2, 12288),
]
V100 = [
    typed(105, "GRID V100-1Q", 16, 1024),
    typed(107, "GRID V100-4Q", 4, 4096),
    typed(300, "GRID V100-8C", 2, 8192, told=False),
]
OLD_CARDS = [
    pytest.param(("0000:02:00.0", "10de:1b38", 24576, P40), "nvidia-156", "nvidia-283", id="P40"),
    pytest.param(("0000:02:00.0", "10de:1b38", 24576, P40), "nvidia-283", "nvidia-215", id="P40-other-order"),
    pytest.param(("0001:af:00.0", "10de:1db4", 16384, V100), "nvidia-107", "nvidia-300", id="V100"),
]


def on_card(address: str, ids: str, total: int, types: list[dict[str, Any]], **vgpu: Any) -> dict[str, Any]:
    return nvidia("mdev", types, total, **vgpu) | {"address": address, "id": ids}


@pytest.mark.parametrize(("card", "profile", "other"), OLD_CARDS)
@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_c18_a_refusal_of_the_driver_reaches_the_user_and_leaves_nothing(
    open_host: Open, card: Any, profile: str, other: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, client = open_host(on_card(*card))
    kernel, before = simulated(service), offered(client, card[0])
    plain = kernel.write

    def write(path: str, text: str, **options: Any) -> None:
        if path.endswith(f"{profile}/create"):
            kernel.machine.messages.append("[nvidia-vgpu-vfio] vgpu create failed: 0x1f")
        plain(path, text, **options)

    monkeypatch.setattr(kernel, "write", write)
    kernel.faults.add(f"/{profile}/create", Mishap.FAIL, errno=code)
    operation = make(client, card[0], profile).get_json()
    assert (operation["kind"], operation["state"]) == ("vgpu-create", "failed")
    error = operation["error"]
    assert error["code"] == "driver-refused"
    said = {reason["code"]: reason["message"] for reason in error["reasons"]}
    assert f"errno {code}" in said["kernel-refused"]
    assert said["kernel-log"] == "[nvidia-vgpu-vfio] vgpu create failed: 0x1f"
    assert (offered(client, card[0]), live(client)) == (before, [])
    kernel.faults.clear()
    assert make(client, card[0], profile).get_json()["state"] == "succeeded"


@pytest.mark.parametrize(("card", "profile", "other"), OLD_CARDS)
def test_c18_one_card_takes_one_size_though_its_driver_offers_others(
    open_host: Open, card: Any, profile: str, other: str
) -> None:
    service, client = open_host(on_card(*card, equal=False))
    make(client, card[0], profile)
    files = f"/sys/class/mdev_bus/{card[0]}/mdev_supported_types/{other}/available_instances"
    assert int(service.kernel.read(files)) > 0
    assert offered(client, card[0])[other] == 0
    answer = make(client, card[0], other)
    assert (answer.status_code, answer.get_json()["code"]) == (409, "no-capacity")
    assert [reason["code"] for reason in answer.get_json()["reasons"]] == ["size-class"]
    assert live(client) == [(profile, True)]


def test_c18_series_of_one_size_share_the_card(open_host: Open) -> None:
    _, client = open_host(on_card("0000:02:00.0", "10de:1b38", 24576, P40))
    assert make(client, "0000:02:00.0", "GRID P40-2B", 5).get_json()["state"] == "succeeded"
    assert offered(client, "0000:02:00.0")["nvidia-215"] == 7
    assert make(client, "0000:02:00.0", "GRID P40-2B4", 7).get_json()["state"] == "succeeded"
    assert set(offered(client, "0000:02:00.0").values()) == {0}


# -- C19 ----------------------------------------------------------------------------------------------
def test_c19_types_without_a_name_file_are_known_by_their_id() -> None:
    state = observed("C19", "0000:00:02.0").vgpu
    found = [(item.id, item.name, item.framebuffer_mib, item.max_resolution) for item in state.profiles]
    assert found == [
        ("i915-GVTg_V5_4", "i915-GVTg_V5_4", 128, "1920x1200"),
        ("i915-GVTg_V5_8", "i915-GVTg_V5_8", None, None),
    ]
    assert [item.creatable for item in state.profiles] == [1, 2]


# -- C20 ----------------------------------------------------------------------------------------------
def gvt(generation: int, small: int, total: int) -> dict[str, Any]:
    """An aperture of MiB, shared by vGPUs of ``small`` and of twice that."""
    types = [
        {"id": f"i915-GVTg_V{generation}_4", "size_mib": 2 * small},
        {"id": f"i915-GVTg_V{generation}_8", "size_mib": small},
    ]
    card = {"scheme": "gvt", "driver": "i915", "framebuffer_mib": total, "types": types}
    return {"address": CARD, "id": "8086:591b", "class": "030000", "driver": "i915", "vgpu": card}


@pytest.mark.parametrize(
    ("entry", "order", "after"),
    [
        pytest.param(gvt(5, 64, 128), "i915-GVTg_V5_4", (0, 0), id="the-case"),
        pytest.param(gvt(5, 64, 256), "i915-GVTg_V5_4", (1, 2), id="half-is-left"),
        pytest.param(gvt(4, 64, 128), "i915-GVTg_V4_8", (0, 1), id="the-small-one-first"),
    ],
)
def test_c20_counters_are_read_anew_after_every_change(
    open_host: Open, entry: dict[str, Any], order: str, after: tuple[int, int]
) -> None:
    _, client = open_host(entry)
    before = offered(client, CARD)
    operation = make(client, CARD, order).get_json()
    assert operation["state"] == "succeeded"
    assert tuple(offered(client, CARD).values()) == after
    (vgpu,) = client.get("/v1/vgpus").get_json()["items"]
    client.delete(f"/v1/vgpus/{vgpu['id']}?wait=30")
    assert offered(client, CARD) == before


def test_c20_one_more_is_a_refusal_and_no_fault_of_the_server(open_host: Open) -> None:
    _, client = open_host(gvt(5, 64, 128))
    make(client, CARD, "i915-GVTg_V5_4")
    for profile in ("i915-GVTg_V5_4", "i915-GVTg_V5_8"):
        answer = make(client, CARD, profile)
        assert (answer.status_code, answer.get_json()["code"]) == (409, "no-capacity")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EUSERS])
def test_c20_capacity_that_goes_between_the_question_and_the_write(open_host: Open, code: int) -> None:
    service, client = open_host(gvt(5, 64, 128))
    simulated(service).faults.add("/create", Mishap.FAIL, errno=code, times=1)
    operation = make(client, CARD, "i915-GVTg_V5_8").get_json()
    assert (operation["state"], operation["error"]["code"]) == ("failed", "no-capacity")
    assert live(client) == []


# -- C21 ----------------------------------------------------------------------------------------------
def test_c21_virtual_functions_carry_types_without_any_mdev_bus() -> None:
    gpu = observed("C21", "0000:26:00.0")
    assert str(gpu.vgpu.backend) == "vendor-vfio"
    assert [item.name for item in gpu.vgpu.profiles] == ["NVIDIA L40S-1Q", "NVIDIA L40S-2Q", "NVIDIA L40S-3B"]
    (vgpu,) = gpu.vgpu.instances
    assert (vgpu.id, vgpu.profile_id, vgpu.profile) == ("0000:26:00.5", "1148", "NVIDIA L40S-2Q")
    # The card holds one of 2 GiB: its list goes on naming others, and only that size fits.
    assert {item.name: item.creatable > 0 for item in gpu.vgpu.profiles}["NVIDIA L40S-2Q"]


def test_c21_the_guest_gets_the_vf_as_it_is() -> None:
    devices = (GuestDevice(("0000:26:00.5",)),)
    request = DomainRequest("desk-1", "0b8ff3f0-8a0b-4b1f-9f3e-1f4a5a6b7c8d", "a-1", GuestShape(), devices)
    xml = compose(Templates(None).load("linux-compute"), request)
    assert "managed='no'" in xml.replace('"', "'")


# -- C23 ----------------------------------------------------------------------------------------------
BLACKWELL = "0001:c8:00.0"
SIZES = [(1519, "DC-3Q", 3072), (1520, "DC-3A", 3072), (1523, "DC-6Q", 6144)]


def blackwell(**vgpu: Any) -> dict[str, Any]:
    types = [
        {"id": str(number), "name": f"NVIDIA RTX Pro 6000 Blackwell {name}", "size_mib": size}
        for number, name, size in SIZES
    ]
    card = nvidia("vendor-vfio", types, 98304, **vgpu) | {"address": BLACKWELL, "id": "10de:2bb5"}
    return card | {"sriov": {"total": 48, "enabled": 48, "vf_driver": "nvidia"}}


def test_c23_a_second_size_is_refused_before_the_first_write(
    open_host: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, client = open_host(blackwell())
    assert make(client, BLACKWELL, "1519").get_json()["state"] == "succeeded"
    assert make(client, BLACKWELL, "1520").get_json()["state"] == "succeeded"
    assert offered(client, BLACKWELL)["1523"] == 0
    monkeypatch.setattr(simulated(service), "write", _no_write)
    answer = make(client, BLACKWELL, "1523")
    assert (answer.status_code, answer.get_json()["code"]) == (409, "no-capacity")
    assert [reason["code"] for reason in answer.get_json()["reasons"]] == ["size-class"]
    assert live(client) == [("1519", True), ("1520", True)]


def _no_write(path: str, text: str, **_: Any) -> None:
    raise AssertionError(f"{path} was written although the order is refused")


@pytest.mark.parametrize("undoing", ["works", "fails"])
def test_c23_when_the_driver_refuses_halfway_the_first_vf_is_cleared_or_named(
    open_host: Open, undoing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, client = open_host(blackwell())
    faults, seen = simulated(service).faults, list[str]()
    plain = simulated(service).write

    def write(path: str, text: str, **options: Any) -> None:
        plain(path, text, **options)
        seen.append(path)
        if len(seen) == 1:
            faults.add("current_vgpu_type 1519", Mishap.FAIL, errno=errno.EIO)
            if undoing == "fails":
                faults.add("current_vgpu_type 0", Mishap.FAIL, errno=errno.EIO)

    monkeypatch.setattr(simulated(service), "write", write)
    operation = make(client, BLACKWELL, "1519", 2).get_json()
    first = seen[0].split("/")[-3]
    if undoing == "works":
        assert (operation["state"], live(client)) == ("failed", [])
        return
    assert operation["state"] == "stuck"
    left = [item for item in operation["error"]["reasons"] if item["code"] == "left-behind"]
    assert [item["addresses"] for item in left] == [[first]]
    assert live(client) == [("1519", False)]


def test_c23_on_a_card_that_mixes_sizes_the_driver_counts_the_places(open_host: Open) -> None:
    service, client = open_host(blackwell(mixed=True))
    client.post(f"/v1/gpus/{BLACKWELL}/slice?wait=30", json={})
    answer = client.post(f"/v1/gpus/{BLACKWELL}/modes?wait=30", json={"mixed_size": True}).get_json()
    assert answer["state"] == "succeeded", answer
    for profile in ("1519", "1523", "1520"):
        assert make(client, BLACKWELL, profile).get_json()["state"] == "succeeded"
    simulated(service).reload_driver(BLACKWELL)
    operations = client.post("/v1/vgpus/restore?wait=60", json={}).get_json()["operations"]
    assert {item["state"] for item in operations} == {"succeeded"}
    assert sorted(live(client)) == [("1519", True), ("1520", True), ("1523", True)]


# -- C25 ----------------------------------------------------------------------------------------------
def slice_refusal(number: int, **sriov: Any) -> str:
    kernel = host(flex(**sriov))
    refusal = plan_slice(kernel, look(kernel)[1], number).refusal
    assert refusal is not None
    return refusal.code


def test_c25_a_number_that_cannot_be_is_refused_before_the_write() -> None:
    assert slice_refusal(8, total=7) == "vfs-above-limit"
    assert slice_refusal(-1, total=7) == "vfs-above-limit"
    kernel = host({key: value for key, value in flex().items() if key != "sriov"})
    refusal = plan_slice(kernel, look(kernel)[1], 1).refusal
    assert refusal is not None
    assert refusal.code == "not-capable"


@pytest.mark.parametrize(
    ("answer", "code"),
    [(errno.ENOENT, "driver-cannot-enable"), (errno.ERANGE, "vfs-above-limit"), (errno.EBUSY, "vfs-exist")],
)
def test_c25_what_the_driver_answers_is_told_in_words(answer: int, code: str) -> None:
    kernel = host(flex(total=7))
    plan = plan_slice(kernel, look(kernel)[1], 2)
    kernel.faults.add("sriov_numvfs", Mishap.FAIL, errno=answer)
    with pytest.raises(VgpumgrError) as caught:
        run(kernel, plan)
    assert caught.value.code == code


def test_c25_from_some_to_another_number_goes_through_none() -> None:
    kernel = host(flex(total=7, enabled=3))
    steps = plan_slice(kernel, look(kernel)[1], 5).steps
    values = [step.target_value for step in steps if (step.target_path or "").endswith("sriov_numvfs")]
    assert values == ["0", "5"]
