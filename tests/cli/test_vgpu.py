"""The slicing commands: plans, outcomes, refusals, and what the tables say."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Vgpumgr
from vgpumgr.cli.gpu_slicing import modes_from, modes_text
from vgpumgr.cli.invocation import Invocation

A40 = ("--simulate", "vdi-a40")
H100 = ("--simulate", "ai-h100")


def test_a_plan_names_the_file_and_the_uuid(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*A40, "vgpu", "create", "--profile", "A40-8Q", "--plan", "-o", "json")
    (step,) = ended.json["steps"]
    assert ended.status == 0
    assert step["path"].endswith("/mdev_supported_types/nvidia-562/create")
    assert step["value"] in step["describe"]


@pytest.mark.parametrize(
    ("profile", "count", "code"), [("A40-8q", 1, "profile-unknown"), ("A40-8Q", 7, "no-capacity")]
)
def test_a_refused_plan_ends_with_three(vgpumgr: Vgpumgr, profile: str, count: int, code: str) -> None:
    ended = vgpumgr(*A40, "vgpu", "create", "--profile", profile, "--count", count, "--plan", "-o", "json")
    assert (ended.status, ended.json["refusal"]["code"]) == (3, code)


def test_vgpus_are_made_on_the_card_that_is_cut(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*A40, "vgpu", "create", "--profile", "A40-8Q", "--count", 2)
    assert ended.status == 0
    assert "0000:5e:00.0" in ended.out


def test_a_host_without_vgpus_says_so(vgpumgr: Vgpumgr) -> None:
    assert vgpumgr(*A40, "vgpu", "list").out.strip() == "no vGPUs on this host"
    ended = vgpumgr(*A40, "vgpu", "show", "0000:5e:00.4")
    assert ended.status == 2
    assert "there is no vGPU" in ended.err


def test_a_card_is_cut(vgpumgr: Vgpumgr) -> None:
    plan = vgpumgr(*A40, "gpu", "slice", "3b:00.0", "--plan", "-o", "json")
    assert [(step["kind"], step["value"]) for step in plan.json["steps"]] == [
        ("check-idle", None),
        ("set-vf-count", "32"),
    ]
    assert vgpumgr(*A40, "gpu", "slice", "3b:00.0").status == 0


def test_taking_all_vfs_needs_a_yes(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*A40, "gpu", "slice", "5e:00.0", "--vfs", "0")
    assert ended.status == 2
    assert "add --yes" in ended.err
    assert vgpumgr(*A40, "gpu", "slice", "5e:00.0", "--vfs", "0", "--yes").status == 0


def test_modes_say_who_told_them(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*H100, "gpu", "mode", "18:00.0")
    assert "simulated NVML" in ended.out
    assert vgpumgr(*H100, "gpu", "mode", "18:00.0", "-o", "json").json["mig"] is False


def test_a_mode_that_the_card_has_not_is_refused(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*A40, "gpu", "mode", "3b:00.0", "--mig", "on", "--plan", "-o", "json")
    assert (ended.status, ended.json["refusal"]["code"]) == (3, "mig-unsupported")


def test_only_the_modes_that_are_named_are_asked_for() -> None:
    assert modes_from({"mig": "on", "layout": "3g.40gb, 1g.10gb", "mixed_size": None, "scheduler": None}) == {
        "mig": True,
        "layout": ["3g.40gb", "1g.10gb"],
    }
    assert modes_from({"layout": ""}) == {"layout": []}


def test_the_scheduler_of_the_drivers_next_load_is_a_plan_that_says_so(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*H100, "gpu", "mode", "18:00.0", "--scheduler", "fixed-share", "--at-load", "--plan")
    assert ended.status == 0
    assert "/etc/modprobe.d/vgpumgr.conf ← pci=0000:18:00.0;RmPVMRL=0x11" in ended.out
    assert "after a reboot" in ended.out
    assert vgpumgr(*H100, "gpu", "mode", "18:00.0", "--scheduler", "fixed-share", "--at-load").status == 0


def test_at_load_without_a_scheduler_is_wrong_usage(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*H100, "gpu", "mode", "18:00.0", "--at-load", "--plan")
    assert ended.status == 2
    assert "add --scheduler" in ended.err


def test_what_runs_and_what_is_configured_are_told_apart() -> None:
    modes = dict.fromkeys(("mig", "mig_pending", "mixed_size", "ecc", "ecc_pending", "frame_rate_limiter"))
    modes |= {"address": "a", "source": "absent", "gpu_instances": [], "schedulers": []}
    text = modes_text(modes | {"scheduler": "best-effort", "scheduler_configured": "fixed-share"}, Invocation())
    assert "best-effort (fixed-share when the driver is loaded again, or after a reboot)" in text
    text = modes_text(modes | {"scheduler": "fixed-share", "scheduler_configured": "fixed-share"}, Invocation())
    assert "reboot" not in text


SAMPLES = ("--simulate", "mdev-samples")


def test_a_parent_that_is_no_pci_device_works_by_its_name(vgpumgr: Vgpumgr) -> None:
    profiles = vgpumgr(*SAMPLES, "profile", "list", "--gpu", "mtty", "-o", "json").json
    assert [(item["id"], item["creatable"]) for item in profiles] == [("mtty-1", 24), ("mtty-2", 12)]
    plan = vgpumgr(*SAMPLES, "vgpu", "create", "--profile", "mtty-2", "--gpu", "mtty", "--plan", "-o", "json").json
    assert plan["steps"][0]["path"] == "/sys/class/mdev_bus/mtty/mdev_supported_types/mtty-2/create"
    assert vgpumgr(*SAMPLES, "vgpu", "create", "--profile", "mtty-2", "--count", "3").status == 0
    assert "virtual device mtty" in vgpumgr(*SAMPLES, "gpu", "show", "mtty").out
    refused = vgpumgr(*SAMPLES, "gpu", "bind", "mtty", "--plan", "-o", "json")
    assert (refused.status, refused.json["refusal"]["code"]) == (3, "not-pci")


def test_a_card_before_slicing_names_the_command_that_slices_it(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*A40, "profile", "list", "--gpu", "3b:00.0")
    assert (ended.status, ended.out.strip()) == (0, "no vGPU profiles now")
    assert "'vgpumgr gpu slice 0000:3b:00.0' enables them" in ended.err
    ended = vgpumgr(*A40, "profile", "list", "--gpu", "3b:00.0", "-o", "json")
    assert ended.json == []
    ended = vgpumgr(*A40, "profile", "list")
    assert "NVIDIA A40-8Q" in ended.out
    assert "'vgpumgr gpu slice 0000:3b:00.0' enables them" in ended.err
    assert "gpu slice" not in vgpumgr(*A40, "profile", "list", "--gpu", "5e:00.0").err
