"""The hypervisor port on a real libvirt: its in-process test driver, and a libvirtd that restarts and hangs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType

import pytest

from tests.unit.guests import DOMAIN_UUID, MDEV, OTHER_MDEV, OWN, domain, mdev, request
from vgpumgr.domain.composer import compose
from vgpumgr.domain.templates import Templates
from vgpumgr.errors import FailedError, NotFoundError, RefusedError, UnavailableError
from vgpumgr.hypervisor.connection import Connection
from vgpumgr.hypervisor.library import load
from vgpumgr.hypervisor.libvirt_port import LibvirtHypervisor
from vgpumgr.hypervisor.port import Hypervisor
from vgpumgr.model.domain import DomainState, GuestDevice, HostDevice

FOREIGN = "test"
"""The domain that a host of the test driver has to begin with, running."""
FOREIGN_UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
NODE = f"""<node><domain type='test'><name>{FOREIGN}</name><uuid>{FOREIGN_UUID}</uuid><memory>1048576</memory>
<os><type>hvm</type></os></domain></node>"""
GPU = GuestDevice(("0000:3b:00.0", "0000:3b:00.1"))
OURS = compose(Templates().load("windows11-desktop"), request(GPU, GuestDevice(mdev=MDEV)))
DEVICES = (
    HostDevice("pci", address="0000:3b:00.0"),
    HostDevice("pci", address="0000:3b:00.1"),
    HostDevice("mdev", uuid=MDEV),
)


@pytest.fixture
def hypervisor(tmp_path: Path) -> Iterator[Hypervisor]:
    """A host of the test's own: all connections to ``test:///default`` share one."""
    (tmp_path / "node.xml").write_text(NODE)
    port: Hypervisor = LibvirtHypervisor(f"test://{tmp_path}/node.xml")
    yield port
    port.close()


def test_the_life_of_a_vm(hypervisor: Hypervisor) -> None:
    defined = hypervisor.define(OURS)
    assert (defined.name, defined.uuid, defined.allocation) == (OWN, DOMAIN_UUID, "allocation-1")
    assert (defined.state, defined.persistent, defined.devices) == (DomainState.SHUT_OFF, True, DEVICES)
    assert hypervisor.owners() == {}
    hypervisor.start(OWN)
    hypervisor.start(OWN)
    assert hypervisor.domain(OWN).state is DomainState.RUNNING
    assert hypervisor.owners() == {device.key: OWN for device in DEVICES}
    hypervisor.destroy(OWN)
    hypervisor.destroy(OWN)
    assert hypervisor.owners() == {}
    hypervisor.undefine(OWN)
    hypervisor.undefine(OWN)
    assert [info.name for info in hypervisor.domains()] == [FOREIGN]


def test_a_guest_that_is_asked_to_shut_down_goes_off(hypervisor: Hypervisor) -> None:
    hypervisor.define(OURS)
    hypervisor.shutdown(OWN)
    hypervisor.start(OWN)
    hypervisor.shutdown(OWN)
    assert hypervisor.domain(OWN).state is DomainState.SHUT_OFF


def test_defining_again_changes_the_one_domain(hypervisor: Hypervisor) -> None:
    hypervisor.define(OURS)
    changed = compose(Templates().load("linux-compute"), request(GuestDevice(mdev=OTHER_MDEV)))
    assert hypervisor.define(changed).devices == (HostDevice("mdev", uuid=OTHER_MDEV),)
    assert [info.name for info in hypervisor.domains()] == [FOREIGN, OWN]


def test_a_foreign_domain_is_shown_and_never_touched(hypervisor: Hypervisor) -> None:
    before = hypervisor.domain(FOREIGN)
    assert before.allocation is None
    changes = (hypervisor.start, hypervisor.shutdown, hypervisor.destroy, hypervisor.undefine)
    same_name = OURS.replace(f"<name>{OWN}<", f"<name>{FOREIGN}<")
    for change in (*changes, lambda _name: hypervisor.define(same_name)):
        with pytest.raises(RefusedError) as caught:
            change(FOREIGN)
        assert caught.value.code == "vm-foreign"
    assert hypervisor.domain(FOREIGN) == before


def test_a_foreign_domain_is_touched_when_it_is_meant(hypervisor: Hypervisor) -> None:
    hypervisor.destroy(FOREIGN, foreign=True)
    assert hypervisor.domain(FOREIGN).state is DomainState.SHUT_OFF
    hypervisor.undefine(FOREIGN, foreign=True)
    assert hypervisor.domains() == []


@pytest.mark.parametrize(
    "xml",
    [
        domain(mdev(attributes="")),
        OURS.replace("<devices>", "<devices><gadget/>"),
        OURS.replace(DOMAIN_UUID, FOREIGN_UUID),
        f"<domain type='test'><name>{OWN}</name></domain>",
    ],
    ids=["no-model", "unknown-element", "uuid-of-another", "incomplete"],
)
def test_what_libvirt_does_not_take_is_refused_in_its_words(hypervisor: Hypervisor, xml: str) -> None:
    with pytest.raises(RefusedError, match="libvirt does not take the domain") as caught:
        hypervisor.define(xml.replace("type='kvm'", "type='test'"))
    assert caught.value.code == "domain-invalid"


def test_an_unknown_domain_has_a_code_of_its_own(hypervisor: Hypervisor) -> None:
    for ask in (hypervisor.domain, hypervisor.xml, hypervisor.start, hypervisor.shutdown, hypervisor.destroy):
        with pytest.raises(NotFoundError, match="no-such") as caught:
            ask("no-such")
        assert caught.value.code == "vm-unknown"


def test_versions_and_nodes_are_told() -> None:
    hypervisor = LibvirtHypervisor("test:///default")
    found = hypervisor.capabilities()
    assert found.driver == "TEST"
    assert found.version >= (9, 0, 0)
    assert hypervisor.version() == ".".join(str(part) for part in found.version)
    assert found.node_cpus == {0: "0-7", 1: "8-15"}
    hypervisor.close()


def test_many_threads_share_one_connection(hypervisor: Hypervisor) -> None:
    hypervisor.define(OURS)
    seen: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: seen.append([info.name for info in hypervisor.domains()]))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[FOREIGN, OWN]] * 16


def test_libvirt_prints_nothing_by_itself(hypervisor: Hypervisor, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFoundError):
        hypervisor.domain("no-such")
    assert capfd.readouterr() == ("", "")


def test_a_domain_that_cannot_be_read_may_own_anything(
    hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpumgr.domain.document.SIZE_LIMIT", 16)
    assert [(info.name, info.devices_known) for info in hypervisor.domains()] == [(FOREIGN, False)]
    with pytest.raises(UnavailableError) as caught:
        hypervisor.owners()
    assert caught.value.code == "owners-unknown"


# -- libvirt that is not there, or does not answer --------------------------------------------------------
def test_a_missing_library_is_said_when_it_is_needed() -> None:
    def missing() -> ModuleType:
        raise UnavailableError("the libvirt library cannot be used", code="libvirt-missing")

    port = LibvirtHypervisor("test:///default", library=missing)
    with pytest.raises(UnavailableError) as caught:
        port.domains()
    assert caught.value.code == "libvirt-missing"
    port.close()


def test_a_missing_module_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "libvirt", None)
    with pytest.raises(UnavailableError, match="apt-get install") as caught:
        load()
    assert caught.value.code == "libvirt-missing"


@pytest.mark.parametrize("uri", ["nonsense", "nonsense:///x", "test:///no/such/file.xml"])
def test_a_libvirt_that_cannot_be_opened_is_unavailable(uri: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        LibvirtHypervisor(uri).domains()
    assert caught.value.code == "libvirt-unavailable"
    assert uri in caught.value.message


class Daemon:
    """A libvirtd of the test's own, with the test driver behind its socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "libvirt-sock"
        self.uri = f"test+unix:///default?socket={self.socket}"
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "libvirtd.conf").write_text(
            f'unix_sock_dir = "{folder}"\nauth_unix_ro = "none"\nauth_unix_rw = "none"\n'
            f'log_outputs = "3:file:{folder}/log"\n'
        )

    def start(self) -> None:
        home = {name: str(self.folder) for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
        nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        program = shutil.which("libvirtd", path="/usr/sbin:/sbin:/usr/bin") or "libvirtd"
        self._process = subprocess.Popen(
            [program, "-f", str(self.folder / "libvirtd.conf"), "-p", str(self.folder / "pid")],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **nobody,
        )
        until = time.monotonic() + 30
        while not self.socket.exists() and time.monotonic() < until:
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    folder = Path(mkdtemp(prefix="vgpumgr-libvirtd-"))
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    server = Daemon(folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_restarted_libvirtd_is_found_again(daemon: Daemon) -> None:
    port = LibvirtHypervisor(daemon.uri)
    assert [info.name for info in port.domains()] == [FOREIGN]
    daemon.stop()
    daemon.start()
    assert [info.name for info in port.domains()] == [FOREIGN]
    daemon.stop()
    with pytest.raises(UnavailableError) as caught:
        port.domains()
    assert caught.value.code == "libvirt-unavailable"
    daemon.start()
    assert port.define(OURS).name == OWN
    port.close()


def test_a_libvirtd_that_hangs_does_not_hang_its_callers(daemon: Daemon) -> None:
    port = LibvirtHypervisor(daemon.uri, deadline=0.5, call_deadline=0.5)
    assert [info.name for info in port.domains()] == [FOREIGN]
    daemon.hang()
    for _ in ("the call", "the new connection"):
        with pytest.raises(UnavailableError, match=r"no answer within 0\.5 s"):
            port.domains()
    daemon.go_on()
    patient = LibvirtHypervisor(daemon.uri)
    assert [info.name for info in patient.domains()] == [FOREIGN]
    patient.close()
    port.close()


def test_waiting_threads_do_not_wait_one_after_the_other(tmp_path: Path) -> None:
    """A socket that takes connections and never answers: what a libvirtd in trouble looks like."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(16)
        port = LibvirtHypervisor(f"test+unix:///default?socket={tmp_path}/s", deadline=0.3)
        errors: list[str] = []

        def ask() -> None:
            try:
                port.domains()
            except UnavailableError as error:
                errors.append(error.code)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        opened = sum(thread.name == "libvirt" for thread in threading.enumerate())
    assert errors == ["libvirt-unavailable"] * 8
    assert opened <= 2


def test_only_one_waits_for_a_libvirtd_that_hangs_and_all_know_when_it_goes_on() -> None:
    """Else each look at the host would wait anew, and leave a thread behind."""
    opened: list[threading.Thread] = []
    answers = threading.Event()

    def open_it(uri: str) -> str:
        opened.append(threading.current_thread())
        answers.wait()
        return uri

    library = ModuleType("libvirt")
    vars(library).update(libvirtError=load().libvirtError, open=open_it)
    connection = Connection("x:///", lambda: library, open_deadline=0.05)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="no answer within"):
            connection.call(str)
    assert len(opened) == 1
    answers.set()
    opened[0].join()
    assert connection.call(str) == "x:///"


def test_a_start_that_fails_says_so(hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    library = load()
    hypervisor.define(OURS)

    def refuse(_domain: object) -> None:
        raise library.libvirtError("vfio 0000:3b:00.0: group 6 is not viable")

    monkeypatch.setattr(library.virDomain, "create", refuse)
    with pytest.raises(FailedError, match="group 6 is not viable") as caught:
        hypervisor.start(OWN)
    assert caught.value.code == "vm-start-failed"
