"""What other programs read: the JSON, the exit statuses, and options on either side of the verb."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Vgpumgr
from tests.cli.trees import two_cards
from tests.shared import shared_dir
from vgpumgr.kernel.simulated import shipped_hosts

BOOT, CARD, AUDIO = "0000:03:00.0", "0000:86:00.0", "0000:86:00.1"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return two_cards(tmp_path / "host")


def check_inventory(data: dict[str, Any]) -> None:
    """The shape of DESIGN §6: every key is there, with the right kind of value."""
    assert {"host", "iommu_groups", "gpus", "warnings"} <= set(data)
    assert {"hostname", "kernel", "iommu"} <= set(data["host"])
    assert isinstance(data["host"]["iommu"]["active"], bool)
    assert isinstance(data["host"]["iommu"]["hints"], list)
    for group in data["iommu_groups"]:
        assert {"id", "viable", "members", "blockers", "other_members"} <= set(group)
        assert all({"address", "driver", "reason"} <= set(item) for item in group["blockers"])
    for gpu in data["gpus"]:
        check_gpu(gpu)
        assert gpu["kind"] in {"gpu", "accelerator", "nvswitch", "bmc-vga"}
    for gpu in data.get("virtual_parents", ()):
        check_gpu(gpu)
        assert gpu["kind"] == "virtual"
    assert all({"code", "message", "subject"} <= set(item) for item in data["warnings"])


def check_gpu(gpu: dict[str, Any]) -> None:
    """One GPU of it."""
    wanted = {"address", "kind", "vendor_id", "device_id", "class_id", "name", "driver", "iommu_group", "numa_node"}
    wanted |= {"boot_display", "companions", "passthrough", "sriov", "vgpu", "health"}
    assert wanted <= set(gpu)
    assert {"assignable", "state", "reasons"} <= set(gpu["passthrough"])
    states = {"host", "ready", "parked", "in-use", "reserved", "unknown", "failed"}
    assert gpu["passthrough"]["state"] in states
    assert all({"code", "message", "addresses"} <= set(item) for item in gpu["passthrough"]["reasons"])
    assert {"capable", "backend", "profiles", "instances", "reasons"} <= set(gpu["vgpu"])
    assert gpu["sriov"] is None or {"total_vfs", "num_vfs", "vfs"} <= set(gpu["sriov"])
    assert gpu["health"]["status"] in {"ok", "degraded", "failed", "unknown"}


def check_plan(plan: dict[str, Any]) -> None:
    """The shape of a plan."""
    assert {"steps", "refusal"} <= set(plan)
    for step in plan["steps"]:
        assert {"kind", "address", "path", "value", "describe"} <= set(step)
    if plan["refusal"] is not None:
        assert not plan["steps"]
        assert {"code", "message", "reasons"} <= set(plan["refusal"])


def test_inventory_has_the_shape_that_programs_read(vgpumgr: Vgpumgr, tree: Path) -> None:
    ended = vgpumgr("--sysfs-root", tree, "inventory", "-o", "json")
    assert ended.status == 0
    check_inventory(ended.json)
    assert [gpu["address"] for gpu in ended.json["gpus"]] == [BOOT, CARD]
    assert ended.json["gpus"][1]["companions"][0]["address"] == AUDIO


def test_a_plan_that_can_be_carried_out_has_steps_and_status_0(vgpumgr: Vgpumgr, tree: Path) -> None:
    ended = vgpumgr("--sysfs-root", tree, "gpu", "bind", "86:00.0", "--plan", "-o", "json")
    assert ended.status == 0
    check_plan(ended.json)
    assert ended.json["refusal"] is None
    overridden = [step["path"] for step in ended.json["steps"] if step["path"] and "override" in step["path"]]
    assert overridden == [f"/sys/bus/pci/devices/{AUDIO}/driver_override"]


def test_a_plan_that_is_refused_has_reasons_and_status_3(vgpumgr: Vgpumgr, tree: Path) -> None:
    ended = vgpumgr("--sysfs-root", tree, "gpu", "bind", BOOT, "--plan", "-o", "json")
    assert ended.status == 3
    check_plan(ended.json)
    assert BOOT in {address for reason in ended.json["refusal"]["reasons"] for address in reason["addresses"]}


def test_release_has_a_plan_too(vgpumgr: Vgpumgr, tree: Path) -> None:
    ended = vgpumgr("--sysfs-root", tree, "gpu", "release", CARD, "--plan", "-o", "json")
    assert ended.status == 0
    check_plan(ended.json)
    assert ended.json["steps"]


@pytest.mark.parametrize("before", [True, False], ids=["before the noun", "after the verb"])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_options_of_every_command_go_on_either_side(before: bool, form: str, vgpumgr: Vgpumgr, tree: Path) -> None:
    options = ["--sysfs-root", tree, "-o", form]
    ended = vgpumgr(*options, "gpu", "show", CARD) if before else vgpumgr("gpu", "show", CARD, *options)
    assert ended.status == 0
    assert "86:00.0" in ended.out
    assert ended.out.startswith("{" if form == "json" else "address:")


def test_the_option_further_right_wins(vgpumgr: Vgpumgr, tree: Path) -> None:
    ended = vgpumgr("--sysfs-root", "/nowhere", "-o", "yaml", "gpu", "list", "-o", "json", "--sysfs-root", tree)
    assert [gpu["address"] for gpu in ended.json] == [BOOT, CARD]


def test_a_snapshot_is_a_host_again(vgpumgr: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    archive = tmp_path / "host.tar"
    assert vgpumgr("--sysfs-root", tree, "host", "snapshot", archive).status == 0
    recorded = vgpumgr("--sysfs-root", tree, "inventory", "-o", "json").json
    assert vgpumgr("--sysfs-root", archive, "inventory", "-o", "json").json == recorded


def test_a_snapshot_replaces_no_file_unasked(vgpumgr: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    archive = tmp_path / "host.tar"
    archive.write_text("mine")
    assert vgpumgr("--sysfs-root", tree, "host", "snapshot", archive).status == 2
    assert archive.read_text() == "mine"


def test_a_snapshot_replaces_no_device_or_pipe(vgpumgr: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path / "link"):
        if target != pipe:
            target.symlink_to(pipe)
        ended = vgpumgr("--sysfs-root", tree, "host", "snapshot", target, "--overwrite")
        assert (ended.status, ended.err.count("\n")) == (2, 1)
        assert "no regular file" in ended.err
    assert pipe.is_fifo()


def test_a_snapshot_goes_where_a_link_leads(vgpumgr: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    link, archive = tmp_path / "link", tmp_path / "host.tar"
    link.symlink_to(archive)
    archive.write_text("old")
    assert vgpumgr("--sysfs-root", tree, "host", "snapshot", link, "--overwrite").status == 0
    assert link.is_symlink()
    assert vgpumgr("--sysfs-root", archive, "gpu", "list").status == 0


def test_a_snapshot_that_cannot_be_written_says_what_to_do(vgpumgr: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    ended = vgpumgr("--sysfs-root", tree, "host", "snapshot", tmp_path / "none" / "host.tar")
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert "a folder you can write to" in ended.err
    assert vgpumgr("--sysfs-root", tree, "host", "snapshot", tmp_path / ("x" * 300)).status == 2


def test_doctor_names_each_gpu_with_a_mark_and_a_remedy(vgpumgr: Vgpumgr, tree: Path) -> None:
    text = vgpumgr("--sysfs-root", tree, "host", "doctor").out
    assert f"✗ {BOOT}" in text
    assert f"✓ {CARD}" in text
    assert "→" in text
    report = vgpumgr("--sysfs-root", tree, "host", "doctor", "-o", "json").json
    assert [item["address"] for item in report["gpus"]] == [BOOT, CARD]


def test_gpu_list_says_who_has_it_and_why_not(vgpumgr: Vgpumgr, tree: Path) -> None:
    heading, boot, card = vgpumgr("--sysfs-root", tree, "gpu", "list").out.splitlines()
    columns = ["ADDRESS", "NAME", "KIND", "DRIVER", "GROUP", "NUMA", "STATE", "ASSIGNABLE", "WHY", "NOT"]
    assert heading.split() == columns
    assert "boot display" in boot
    assert card.startswith(CARD)


def test_group_list_can_leave_out_the_viable_ones(vgpumgr: Vgpumgr, tree: Path) -> None:
    blocked = vgpumgr("--sysfs-root", tree, "group", "list", "--blocked", "-o", "json").json
    assert [group["id"] for group in blocked] == [3, 6]
    assert "snd_hda_intel" in vgpumgr("--sysfs-root", tree, "group", "show", 6).out


@pytest.mark.parametrize("host", shipped_hosts())
def test_every_shipped_host_comes_out_in_shape(host: str, vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("--simulate", host, "inventory", "-o", "json")
    assert ended.status == 0
    check_inventory(ended.json)
    assert vgpumgr("--simulate", host, "host", "doctor").status == 0
    for gpu in ended.json["gpus"]:
        assert gpu["address"] in vgpumgr("--simulate", host, "gpu", "show", gpu["address"]).out
        check_plan(vgpumgr("--simulate", host, "gpu", "bind", gpu["address"], "--plan", "-o", "json").json)


def _recordings() -> list[Path]:
    shared = shared_dir()
    return sorted(shared.glob("recordings/*/*.tar.*")) if shared else []


@pytest.mark.skipif(shared_dir() is None, reason="the recorded hosts are not beside this checkout")
@pytest.mark.parametrize("archive", _recordings(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_recorded_host_comes_out_in_shape(archive: Path, vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("--sysfs-root", archive, "inventory", "-o", "json")
    assert ended.status == 0
    check_inventory(ended.json)
    for gpu in ended.json["gpus"]:
        planned = vgpumgr("--sysfs-root", archive, "gpu", "bind", gpu["address"], "--plan", "-o", "json")
        check_plan(planned.json)
        assert planned.status == (3 if planned.json["refusal"] else 0)
