"""The kernel contract, unchanged, on Linux and on the simulation: where they differ, the simulation is wrong."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import yaml

from tests.lab import boards
from tests.lab.host import DEVICES, Host
from tests.lab.machine import LabError
from tests.lab.project import CHECKOUT, HOME

PLACE = "/opt/contract"
RIG = {
    "function": boards.RTX3090,
    "driver": "nvidia",
    "shared": list(boards.BEHIND_BRIDGE),
    "shared_driver": "bochs-drm",
    "sriov": boards.PLAIN_NVME,
    "sriov_total": 4,
    "no_sriov_driver": boards.L40S,
    "mdev_parent": boards.T4,
    "mdev_type": "nvidia-233",
    "mdev_capacity": 2,
    "removable": boards.A100,
}


def test_linux_keeps_the_contract_of_the_simulation(host: Host, tmp_path: Path) -> None:
    machine = host.machine
    machine.put(CHECKOUT / "tests" / "contract", f"{PLACE}/tests/contract")
    machine.put(CHECKOUT / "tests" / "__init__.py", f"{PLACE}/tests")
    machine.put(CHECKOUT / "pyproject.toml", PLACE)
    machine.write(f"{PLACE}/rig.yaml", yaml.safe_dump(RIG))
    machine.ok(f"echo {boards.L40S} >/sys/bus/pci/drivers/nvidia/unbind; modprobe vfio-pci")
    said = machine.run(
        f"cd {PLACE} && VGPUMGR_CONTRACT_RIG=rig.yaml PYTHONDONTWRITEBYTECODE=1 {HOME}/bin/python -m pytest"
        " -p no:cacheprovider -o addopts= -q -x --maxfail=20 --junitxml=contract.xml tests/contract",
        deadline=300,
    )
    machine.ok(f"echo 1 >/sys/bus/pci/rescan; echo {boards.L40S} >/sys/bus/pci/drivers_probe")
    if said.status > 1:
        raise LabError(f"the contract did not run: {said.out}\n{said.err}")
    suite = ElementTree.fromstring(machine.ok(f"cat {PLACE}/contract.xml")).find("testsuite")
    assert suite is not None
    broken = {
        case.get("name"): problem.get("message")
        for case in suite.iter("testcase")
        for problem in (*case.findall("failure"), *case.findall("error"))
    }
    assert broken == {}
    assert int(suite.get("tests", "0")) == _collected_outside(), "an ability of the rig was lost"
    assert host.read(f"{DEVICES}/{boards.A100}/vendor") == "0x10de"


def test_the_simulation_keeps_it_too() -> None:
    done = _contract_outside()
    assert done.returncode == 0, done.stdout


def _collected_outside() -> int:
    """How many tests the contract has on a rig with every ability: the simulated one."""
    return sum("::" in line for line in _contract_outside("--collect-only").stdout.splitlines())


def _contract_outside(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", *options, "tests/contract"]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=180)
