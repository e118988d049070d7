"""The command line against a running service: a real gunicorn, a simulated host, libvirt's test driver."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CHECKOUT, Ended, Vgpumgr
from vgpumgr.cli.client import Client
from vgpumgr.cli.demo_service import DemoService, running_service
from vgpumgr.errors import UsageError

WHOLE, SLICED = "0000:3b:00.0", "0000:5e:00.0"
PROFILE = "NVIDIA A40-8Q"


@pytest.fixture(scope="module")
def service() -> Iterator[DemoService]:
    with running_service("vdi-a40") as service:
        yield service


@pytest.fixture
def remote(service: DemoService, vgpumgr: Vgpumgr) -> Vgpumgr:
    """``vgpumgr --socket … ARGUMENTS``."""

    def call(*arguments: object) -> Ended:
        return vgpumgr("--socket", service.socket, *arguments)

    return call


@pytest.fixture
def allocation(remote: Vgpumgr) -> Iterator[dict[str, Any]]:
    """A vGPU for the VM desk-17, taken back in the end."""
    created = remote("alloc", "create", "--vm", "desk-17", "--profile", PROFILE, "-o", "json")
    assert created.status == 0, created.err
    yield created.json
    assert remote("alloc", "release", created.json["id"], "--yes").status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("inventory",),
        ("gpu", "list"),
        ("gpu", "show", SLICED),
        ("group", "list"),
        ("group", "show", 2),
        ("host", "doctor"),
        ("profile", "list"),
        ("profile", "list", "--gpu", SLICED),
        ("candidates", "--profile", PROFILE),
        ("gpu", "bind", WHOLE, "--plan"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_service_and_own_process_agree_wherever_both_know(
    arguments: tuple[object, ...], remote: Vgpumgr, vgpumgr: Vgpumgr
) -> None:
    over_socket = remote(*arguments, "-o", "json").json
    alone = vgpumgr("--simulate", "vdi-a40", *arguments, "-o", "json").json
    assert _known_to_both(over_socket, alone) == alone


def _known_to_both(more: Any, less: Any) -> Any:
    """``more`` without what a lone reader cannot know: what NVML says, and that a binding will be remembered."""
    if less is None:
        return None
    if isinstance(less, dict):
        return {key: _known_to_both(more[key], value) for key, value in less.items()}
    if isinstance(less, list):
        remembered = [
            item for item in more if not (isinstance(item, dict) and item.get("kind") == "remember-binding")
        ]
        return [_known_to_both(*pair) for pair in zip(remembered, less, strict=True)]
    return more


def test_bind_and_release_by_way_of_the_service(remote: Vgpumgr) -> None:
    assert remote("gpu", "bind", WHOLE).status == 0
    assert remote("gpu", "show", WHOLE, "-o", "json").json["driver"] == "vfio-pci"
    assert "already as wanted" in remote("gpu", "bind", WHOLE).out
    assert remote("gpu", "release", WHOLE).status == 0
    assert remote("gpu", "show", WHOLE, "-o", "json").json["driver"] == "nvidia"


def test_a_refused_bind_names_its_reasons(remote: Vgpumgr) -> None:
    ended = remote("gpu", "bind", "0000:02:00.0", "-o", "json")
    assert ended.status == 3
    assert "boot-display" in {reason["code"] for reason in ended.json["error"]["reasons"]}
    assert ended.err.startswith("error: ")


def test_the_life_of_a_vm(remote: Vgpumgr, allocation: dict[str, Any]) -> None:
    assert allocation["state"] == "ready"
    assert allocation["devices"][0]["profile"] == PROFILE
    handle = allocation["devices"][0]["handle"]
    assert handle in remote("alloc", "xml", allocation["id"], "--memory", 4096, "--disk", "/a", "--disk", "/b").out

    assert "define" in remote("vm", "define", allocation["id"], "--plan").out
    defined = remote("vm", "define", allocation["id"], "--template", "windows11-desktop", "-o", "json")
    assert defined.json["allocation"] == allocation["id"]
    assert remote("vm", "start", "desk-17", "--plan").status == 0
    assert remote("vm", "start", "desk-17", "-o", "json").json["state"] == "running"
    assert remote("alloc", "show", allocation["id"], "-o", "json").json["state"] == "attached"

    refused = remote("alloc", "release", allocation["id"], "--yes")
    assert refused.status == 3
    assert "desk-17" in refused.err

    assert remote("vm", "stop", "desk-17", "--force", "--plan").status == 0
    assert remote("vm", "stop", "desk-17", "--force", "--yes", "-o", "json").json["state"] == "shut-off"
    assert remote("vm", "undefine", "desk-17", "--yes").status == 0
    assert remote("vm", "show", "desk-17").status == 2


def test_lists_take_filters(remote: Vgpumgr, allocation: dict[str, Any]) -> None:
    ready = remote("alloc", "list", "--state", "ready", "--vm", "desk-17", "-o", "json").json
    assert [item["id"] for item in ready] == [allocation["id"]]
    assert remote("alloc", "list", "--vm", "nobody").out == "no allocations\n"
    operations = remote("op", "list", "--subject", allocation["id"], "-o", "json").json
    assert allocation["operation_id"] in {item["id"] for item in operations}
    assert "done" in remote("op", "show", allocation["operation_id"]).out


def test_plans_change_nothing(remote: Vgpumgr, allocation: dict[str, Any]) -> None:
    before = remote("inventory", "-o", "json").json
    assert remote("alloc", "create", "--vm", "other", "--plan").status == 0
    assert remote("alloc", "release", allocation["id"], "--plan").status == 0
    assert remote("gpu", "bind", WHOLE, "--plan").status == 0
    assert remote("inventory", "-o", "json").json == before


def test_what_cannot_be_had_is_refused_with_every_gpus_reasons(remote: Vgpumgr) -> None:
    ended = remote("alloc", "create", "--vm", "greedy", "--count", 9, "-o", "json")
    assert ended.status == 3
    assert ended.json["error"]["code"] == "no-candidate"
    assert ended.json["error"]["reasons"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("alloc", "show", "nothing"), "nothing"),
        (("op", "show", "nothing"), "nothing"),
        (("vm", "start", "nothing"), "nothing"),
        (("gpu", "show", "nothing"), "not a PCI address"),
        (("alloc", "create", "--vm", "no such name"), "vm"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_not_there_is_one_line_and_status_2(arguments: tuple[str, ...], word: str, remote: Vgpumgr) -> None:
    ended = remote(*arguments)
    assert ended.status == 2
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert word in ended.err


def test_an_unknown_template_lists_the_known_ones(remote: Vgpumgr, allocation: dict[str, Any]) -> None:
    ended = remote("alloc", "xml", allocation["id"], "--template", "amiga")
    assert ended.status == 2
    assert "amiga" in ended.err
    assert "linux-compute" in ended.err


def test_preflight_of_a_domain_that_asks_for_a_gpu_of_the_host(remote: Vgpumgr, tmp_path: Path) -> None:
    file = tmp_path / "vm.xml"
    file.write_text(
        "<domain type='kvm'><name>x</name><devices><hostdev mode='subsystem' type='pci' managed='no'><source>"
        "<address domain='0x0000' bus='0x3b' slot='0x00' function='0x0'/></source></hostdev></devices></domain>"
    )
    ended = remote("domain", "check", file, "-o", "json")
    assert ended.status == 3
    assert set(ended.json) == {"devices", "problems"}
    assert ended.json["devices"][0]["address"] == WHOLE
    assert all({"code", "severity", "message", "addresses"} == set(item) for item in ended.json["problems"])


def test_a_snapshot_by_way_of_the_service(remote: Vgpumgr, vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    file = tmp_path / "host.tar"
    assert remote("host", "snapshot", file).status == 0
    listed = vgpumgr("--sysfs-root", file, "gpu", "list", "-o", "json").json
    assert WHOLE in {gpu["address"] for gpu in listed}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{not json", "malformed-json"),
        (b"[]", "malformed-json"),
        (b'{"vm": "a", "colour": "blue"}', "validation-failed"),
        (b'{"vm": "a", "count": "two"}', "validation-failed"),
        (b'{"vm": "' + b"a" * 2_000_000 + b'"}', "body-too-large"),
    ],
    ids=["no JSON", "no object", "unknown field", "wrong type", "oversized"],
)
def test_a_bad_body_is_wrong_usage_and_not_a_fault(body: bytes, code: str, service: DemoService) -> None:
    client = Client(service.socket)
    with pytest.raises(UsageError) as caught:
        client.raw("POST", "/v1/allocations", body=body, headers={"Content-Type": "application/json"})
    assert caught.value.code == code
    client.close()


def serve(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vgpumgr.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=CHECKOUT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'api'}", **settings},
    )


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        here = {f"VGPUMGR_{name}": str(tmp_path) for name in ("STATE_DIR", "RUNTIME_DIR")}
        ended = serve(
            "--simulate", "vdi-a40", "--socket", str(tmp_path / "s.sock"), "serve", "--listen", listen, **here
        )
    assert ended.returncode == 5
    assert ended.stderr.splitlines()[-1].startswith(f"error: cannot listen on {listen}")
    assert "Traceback" not in ended.stderr


def test_a_socket_in_use_is_one_line(service: DemoService) -> None:
    ended = serve("--simulate", "vdi-a40", "--socket", str(service.socket), "serve")
    assert ended.returncode == 5
    assert "another vgpumgr" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_listening_beyond_loopback_is_refused(tmp_path: Path) -> None:
    ended = serve("--simulate", "vdi-a40", "--socket", str(tmp_path / "s"), "serve", "--listen", "0.0.0.0:8900")
    assert ended.returncode == 2
    assert "loopback" in ended.stderr


def test_the_demo_ends_well_and_shows_what_it_did(program: Vgpumgr) -> None:
    ended = program("demo")
    assert ended.status == 0, ended.err
    assert "All is as it should be" in ended.out
    assert '<hostdev mode="subsystem" type="pci"' in ended.out
    assert '<hostdev mode="subsystem" type="mdev"' in ended.out
    assert "curl -s --unix-socket" in ended.out


def test_a_port_that_the_demo_cannot_have_is_one_line(program: Vgpumgr) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = program("demo", "--keep", "--port", taken.getsockname()[1])
    assert (ended.status, ended.err.count("\n")) == (2, 1), ended.err
    assert "choose another with --port" in ended.err


def test_a_demo_that_cannot_start_says_why(program: Vgpumgr) -> None:
    ended = program("--simulate", "nope", "demo")
    assert ended.status == 2
    assert "nope" in ended.err
    assert "Traceback" not in ended.err
