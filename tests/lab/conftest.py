"""Starts one machine for the whole run, hands it to the tests, and writes the one-page table of results."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.lab.host import Host
from tests.lab.image.build import Image, build_image
from tests.lab.image.cache import only_one, say
from tests.lab.machine import ATTACH, Machine
from tests.lab.project import build_project, install
from tests.lab.results import Results

RESTART = "systemctl stop vgpumgr.service vgpumgr.socket; systemctl start vgpumgr.socket vgpumgr.service"
_HERE = Path(__file__).parent
_VERSIONS = pytest.StashKey[dict[str, str]]()
_results = Results()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("lab")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _HERE in item.path.parents:
        # Reports travel from the workers to the run that writes the table, and into the JUnit file.
        report.user_properties += list(item.config.stash.get(_VERSIONS, {}).items())
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "/lab/" in report.nodeid:
        _results.add(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    page = _results.write(config.rootpath / "build" / "lab")
    if page is not None:
        terminalreporter.write_line(f"lab: table of results: {page}")


@pytest.fixture(scope="session")
def image() -> Image:
    """The image, built if need be: by one of the workers, while the others wait."""
    with only_one():
        return build_image()


@pytest.fixture(scope="session")
def project(image: Image) -> Path:
    """The project, ready to be copied into a machine."""
    with only_one():
        return build_project(image)


@pytest.fixture(scope="session")
def machine(image: Image, project: Path, pytestconfig: pytest.Config) -> Iterator[Machine]:
    """A machine that is up, with the project installed and its service running. Each worker has its own."""
    named = os.environ.get(ATTACH)
    machine = Machine(image, Path(named) if named else None)
    try:
        if named is None:
            machine.start()
            say(f"machine up after {machine.boot_seconds:.0f} s")
        install(machine, project)
        machine.ok(RESTART, deadline=180)
        pytestconfig.stash[_VERSIONS] = versions(machine)
        yield machine
    finally:
        machine.stop()


@pytest.fixture
def host(machine: Machine, request: pytest.FixtureRequest) -> Iterator[Host]:
    """The lab's host, through vgpumgr; put back in order when a test leaves it otherwise."""
    host = Host(machine)
    yield host
    host.put_back()


def versions(machine: Machine) -> dict[str, str]:
    """What the results hold for."""
    lines = machine.ok("uname -r; libvirtd --version; qemu-system-x86_64 --version | head -n 1").splitlines()
    return {"kernel": lines[0], "libvirt": lines[1].split()[-1], "QEMU": lines[2].split()[3]}
