"""The lab's host as its administrator sees it: the command line, the service, guests, and plain sysfs."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import boards
from tests.lab.image.cache import say
from tests.lab.machine import LabError, Machine, Said

DEVICES = "/sys/bus/pci/devices"
_PUT_BACK = Path(__file__).parent / "put-back.sh"
GUEST_LOG = "/var/log/lab-guest.log"
GUEST_DEADLINE = 150.0
"""Seconds that a guest under an emulated host may take to come up; about 30 on an idle machine."""

HOME_DRIVERS = {
    boards.GPU_WITH_AUDIO: "bochs-drm",
    boards.GPU_AUDIO: "snd_hda_intel",
    boards.VIRTIO_GPU: "virtio-pci",
    boards.GPU_WITH_DISK: "bochs-drm",
    boards.DISK_BESIDE_GPU: "nvme",
    boards.A40: "nvidia",
    boards.L40S: "nvidia",
    boards.T4: "nvidia",
    boards.RTX3090: "nvidia",
    boards.A100: "nvidia",
}
"""The driver that each function has when the machine comes up."""


@dataclass(frozen=True)
class Answer:
    """What a command of vgpumgr answered with ``-o json``."""

    said: Said
    data: Any

    @property
    def status(self) -> int:
        """The exit status."""
        return self.said.status

    def done(self) -> Any:
        """The data of a command that must have succeeded."""
        if self.status:
            raise LabError(f"`{self.said.command}` ended with {self.status}: {self.said.out}{self.said.err}")
        return self.data


class Host:
    """Speaks to one machine's vgpumgr, and looks behind its back."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    # -- vgpumgr -----------------------------------------------------------------------------------------
    def vgpumgr(self, *words: str, deadline: float = 180.0) -> Answer:
        """Run a command with ``-o json``."""
        said = self.machine.run(shlex.join(["vgpumgr", *words, "-o", "json"]), deadline=deadline)
        try:
            return Answer(said, json.loads(said.out) if said.out.strip() else None)
        except json.JSONDecodeError as error:
            raise LabError(f"`{said.command}` printed no JSON: {said.out}{said.err}") from error

    def gpu(self, address: str) -> dict[str, Any]:
        """One GPU, as the service shows it. Raises LabError when it is not there."""
        gpu: dict[str, Any] = self.get(f"/v1/gpus/{address}")
        return gpu

    def allocate(self, vm: str, *words: str) -> dict[str, Any]:
        """Allocate, wait until it is ready, and return the allocation."""
        allocation: dict[str, Any] = self.vgpumgr("alloc", "create", "--vm", vm, *words).done()
        return allocation

    def get(self, path: str) -> Any:
        """What the REST service shows; the items of a list. Here, the command line takes ten times as long."""
        status, body = self.rest("GET", path)
        if status != 200:
            raise LabError(f"GET {path} was answered with {status}: {body}")
        return body["items"] if isinstance(body, dict) and "items" in body else body

    def rest(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """One exchange with the REST service on its socket: status and JSON."""
        words = ["curl", "-s", "--max-time", "150", "--unix-socket", "/run/vgpumgr/vgpumgr.sock", "-X", method]
        for name, value in headers.items():
            words += ["-H", f"{name.replace('_', '-')}: {value}"]
        if body is not None:
            words += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        words += ["-w", "\n%{http_code}", f"http://localhost{path}"]
        text, _, status = self.machine.ok(shlex.join(words), deadline=160).rpartition("\n")
        return int(status), json.loads(text) if text.strip() else None

    def wait_ready(self) -> None:
        """Wait until the service says that it is ready (systemd starts it again by itself)."""
        self.machine.wait("systemctl is-active -q vgpumgr.service", deadline=150, what="the service is ready")

    # -- behind its back -----------------------------------------------------------------------------------
    def driver(self, address: str) -> str | None:
        """The driver that a function is bound to."""
        link = self.machine.run(f"readlink {DEVICES}/{address}/driver").out.strip()
        return link.rpartition("/")[2] or None

    def override(self, address: str) -> str:
        """Its ``driver_override``, ``(null)`` when unset."""
        return self.machine.ok(f"cat {DEVICES}/{address}/driver_override")

    def read(self, path: str) -> str:
        """A file's stripped text."""
        return self.machine.ok(f"cat {shlex.quote(path)}")

    def at_home(self, *addresses: str) -> bool:
        """Whether functions are on the drivers that they had at boot, with no override left."""
        return all(
            self.driver(address) == HOME_DRIVERS[address] and self.override(address) == "(null)"
            for address in addresses
        )

    # -- guests --------------------------------------------------------------------------------------------
    def guest_says(self, word: str = "GUEST done") -> list[str]:
        """Wait for a line of the running guest's serial console, and return all its ``GUEST`` lines."""
        self.machine.wait(f"grep -q '{word}' {GUEST_LOG}", deadline=GUEST_DEADLINE, what=f"the guest says {word}")
        text = self.machine.ok(f"tr -d '\\r' <{GUEST_LOG}")
        return [line.removeprefix("GUEST ") for line in text.splitlines() if line.startswith("GUEST ")]

    def run_guest(self, allocation: dict[str, Any], template: str) -> list[str]:
        """Define and start the VM of an allocation, and return what its guest says."""
        self.machine.ok(f"rm -f {GUEST_LOG}")
        self.vgpumgr(
            "vm", "define", allocation["id"], "--template", template, "--memory", "256", "--vcpus", "1"
        ).done()
        self.vgpumgr("vm", "start", allocation["request"]["vm"]).done()
        return self.guest_says()

    def end_guest(self, allocation: dict[str, Any]) -> None:
        """Stop and undefine the VM of an allocation, and release it."""
        name = allocation["request"]["vm"]
        self.vgpumgr("vm", "stop", name, "--force", "--yes").done()
        self.vgpumgr("vm", "undefine", name, "--yes").done()
        self.vgpumgr("alloc", "release", allocation["id"], "--yes").done()

    # -- order ---------------------------------------------------------------------------------------------
    def put_back(self) -> None:
        """Leave the host as it was at boot, by vgpumgr's own means first, by force where they failed."""
        pairs = " ".join(f"{address}={driver}" for address, driver in HOME_DRIVERS.items())
        done = self.machine.ok(f"bash -s {pairs}", stdin=_PUT_BACK.read_bytes(), deadline=180)
        if done:
            say(done)
