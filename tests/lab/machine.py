"""The lab's machine: QEMU started, waited for, spoken to over ssh and QMP, and stopped without leftovers."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab.boards import BESIDE_DISK, HOT_BOARD, PLAYED_BOARDS, qemu_devices
from tests.lab.image.build import Image
from tests.lab.qmp import Qmp

ATTACH = "VGPUMGR_LAB_MACHINE"
"""Environment variable: the folder of a machine that runs already (``make lab-shell`` names it)."""
BOOT_DEADLINE = 240.0
"""Seconds until the machine must say that it is up; an idle two-core host needs about 30."""
COMMAND_DEADLINE = 120.0
_MEMORY_MIB = 3072
_CPU = "qemu64,+svm,+npt,+x2apic,+rdrand,+sse4.2,+ssse3,+sse4.1,+popcnt,+cx16,+lahf-lm"
_KERNEL_OPTIONS = (
    "console=ttyS0 loglevel=4 intel_iommu=on iommu=pt tsc=reliable no_timer_check random.trust_cpu=on"
    " mitigations=off apparmor=0 audit=0 cryptomgr.notests systemd.show_status=0 net.ifnames=0"
)
_READY = "LAB-READY"


class LabError(RuntimeError):
    """The machine did not do what it must; the text says where to look."""


@dataclass(frozen=True)
class Said:
    """What a command in the lab answered."""

    command: str
    status: int
    out: str
    err: str

    def check(self) -> str:
        """Its output. Raises LabError when the command failed."""
        if self.status:
            raise LabError(
                f"in the lab, `{self.command}` ended with {self.status}:\n{self.out}\n{self.err}".rstrip()
            )
        return self.out


class Machine:
    """One machine, from :meth:`start` to :meth:`stop`."""

    def __init__(self, image: Image, folder: Path | None = None) -> None:
        """A new machine; or, with the ``folder`` of one that another process runs, that one."""
        self.image = image
        self.folder = folder or Path(tempfile.mkdtemp(prefix="vgpumgr-lab-"))
        self._ours = folder is None
        self._key = self.folder / "id"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._qmp: Qmp | None = None
        self.boot_seconds = 0.0
        port = self.folder / "port"
        if self._ours:
            port.write_text(str(_free_port()))
        self._port = int(port.read_text())

    @property
    def console(self) -> str:
        """All that the machine wrote on its serial console."""
        path = self.folder / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def qmp(self) -> Qmp:
        """QEMU's control connection."""
        if self._qmp is None:
            self._qmp = Qmp(self.folder / "qmp.sock")
        return self._qmp

    def start(self) -> None:
        """Boot, and return when sshd and libvirtd are up. Raises LabError."""
        started = time.monotonic()
        make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(self._key)]
        subprocess.run(make_key, check=True, timeout=30)
        with (self.folder / BESIDE_DISK).open("wb") as disk:
            disk.truncate(64 << 20)
        subprocess.run(["mke2fs", "-q", "-F", str(self.folder / BESIDE_DISK)], check=True, timeout=30)
        self._play_boards()
        self._spawn("qemu", self._qemu())
        self._wait_ready(1)
        self.boot_seconds = time.monotonic() - started

    def run(self, command: str, *, deadline: float = COMMAND_DEADLINE, stdin: bytes | None = None) -> Said:
        """Run a shell command as root in the lab. Raises LabError when it does not end in ``deadline`` seconds."""
        try:
            done = subprocess.run(
                [*self.ssh(), f"timeout -k 5 {deadline:.0f} bash -c {shlex.quote(command)}"],
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                timeout=deadline + 30,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(f"in the lab, `{command}` did not end in {deadline:.0f} s") from error
        if done.returncode == 124:
            raise LabError(f"in the lab, `{command}` did not end in {deadline:.0f} s:\n{_text(done.stdout)}")
        return Said(command, done.returncode, _text(done.stdout), _text(done.stderr))

    def ok(self, command: str, *, deadline: float = COMMAND_DEADLINE, stdin: bytes | None = None) -> str:
        """The stripped output of a command that must succeed."""
        return self.run(command, deadline=deadline, stdin=stdin).check().strip()

    def wait(self, command: str, *, deadline: float = 60.0, what: str = "") -> str:
        """Repeat a command until it succeeds: its output. Raises LabError, naming ``what``, at the deadline."""
        end = time.monotonic() + deadline
        while True:
            said = self.run(command)
            if said.status == 0:
                return said.out.strip()
            if time.monotonic() > end:
                raise LabError(f"after {deadline:.0f} s still not: {what or command}\n{said.out}\n{said.err}")
            time.sleep(0.3)

    def put(self, source: Path, target: str, *, leave: str = "__pycache__") -> None:
        """Copy a file, or a folder's content, into ``target``, a folder of the lab; what ``leave`` names stays."""
        names = [source.name] if source.is_file() else ["."]
        base = source.parent if source.is_file() else source
        packed = subprocess.run(
            ["tar", "-C", base, f"--exclude={leave}", "-cf", "-", *names],
            capture_output=True,
            check=True,
            timeout=60,
        )
        place = shlex.quote(target)
        self.ok(f"mkdir -p {place} && tar -C {place} --no-same-owner -xf -", stdin=packed.stdout)

    def write(self, path: str, content: str) -> None:
        """Write a text file in the lab."""
        place = shlex.quote(path)
        self.ok(f"mkdir -p $(dirname {place}) && cat >{place}", stdin=content.encode())

    def reboot(self) -> None:
        """Restart the lab's kernel in good order; its disk stays as it is. Raises LabError."""
        boots = self.console.count(_READY)
        self.run("systemctl --no-block reboot")
        self._wait_ready(boots + 1)

    def crash(self) -> None:
        """Reset the machine without warning, as a power cut does, and wait until it is up again."""
        boots = self.console.count(_READY)
        self.ok("sync")
        self.qmp.command("system_reset")
        self._wait_ready(boots + 1)

    def plug(self) -> None:
        """Plug a GPU into the spare slot."""
        self.qmp.command("device_add", **HOT_BOARD.qemu_device(self.folder))

    def pull(self) -> None:
        """Ask for the spare slot's GPU back, and wait until it is out."""
        self.qmp.command("device_del", id=HOT_BOARD.name)
        self.qmp.wait_event("DEVICE_DELETED", 60, device=HOT_BOARD.name)

    def picture(self, device: str) -> bytes:
        """What a display device shows now, as a binary PPM."""
        path = self.folder / f"{device}.ppm"
        self.qmp.command("screendump", filename=str(path), device=device)
        return path.read_bytes()

    def ssh(self) -> list[str]:
        """The ssh command that reaches the lab, without the remote command."""
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "ControlMaster": "auto",
            "ControlPath": str(self.folder / "ssh.sock"),
            "ControlPersist": "600",
            "ConnectTimeout": "60",
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", "-i", str(self._key), "-p", str(self._port), *flags, "root@127.0.0.1"]

    def stop(self) -> None:
        """Power off at once and remove everything this machine left on the host; one of others runs on."""
        if self._qmp is not None:
            self._qmp.close()
            self._qmp = None
        if not self._ours:
            return
        self._hang_up()
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- how it is done --------------------------------------------------------------------------------
    def _hang_up(self) -> None:
        if (self.folder / "ssh.sock").exists():
            subprocess.run(
                [*self.ssh()[:-1], "-O", "exit", self.ssh()[-1]], capture_output=True, timeout=20, check=False
            )

    def _play_boards(self) -> None:
        boards = [*PLAYED_BOARDS, HOT_BOARD]
        self._spawn(
            "boards", [sys.executable, "-m", "tests.lab.vfio_user", *(item.spec(self.folder) for item in boards)]
        )
        end = time.monotonic() + 20
        while not all(board.socket(self.folder).exists() for board in boards):
            if time.monotonic() > end or self._processes[-1].poll() is not None:
                raise LabError(f"the played boards did not start: {self._log('boards')}")
            time.sleep(0.05)

    def _spawn(self, name: str, command: list[str]) -> None:
        """Start a process that ends with this one, however this one ends."""
        log = (self.folder / f"{name}.log").open("wb")
        checkout = Path(__file__).resolve().parents[2]
        with log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=checkout,
            )
        self._processes.append(process)

    def _log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def _qemu(self) -> list[str]:
        root = self.image.qemu_root
        libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
        loader = [str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
        own_files = ["-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")]
        # The environment variable names the folder of QEMU's own loadable parts in that tree.
        program = [
            "env",
            f"QEMU_MODULE_DIR={libraries / 'qemu'}",
            *loader,
            str(root / "usr/bin/qemu-system-x86_64"),
        ]
        return [*program, *own_files, *self._base(), *self._host_devices(), *qemu_devices(self.folder)]

    def _base(self) -> list[str]:
        half = _MEMORY_MIB // 2
        public = self._key.with_suffix(".pub").read_text().split()
        key = f"lab.key={public[0]},{public[1]}"
        arguments = [
            *("-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none"),
            *("-machine", "q35,kernel-irqchip=off,vmport=off", "-accel", "tcg,thread=multi,tb-size=1024"),
            *("-cpu", _CPU, "-smp", "2,sockets=2,cores=1", "-m", str(_MEMORY_MIB)),
        ]
        for node in (0, 1):
            arguments += ["-object", f"memory-backend-memfd,id=ram{node},size={half}M,share=on"]
            arguments += ["-numa", f"node,nodeid={node},cpus={node},memdev=ram{node}"]
        # The IOMMU must be the first device; vfio-user needs its caching mode.
        arguments += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
        arguments += ["-kernel", str(self.image.vmlinux), "-initrd", str(self.image.initrd)]
        arguments += ["-append", f"{_KERNEL_OPTIONS} {key}"]
        arguments += ["-serial", f"file:{self.folder / 'console.log'}"]
        return [*arguments, "-qmp", f"unix:{self.folder / 'qmp.sock'},server=on,wait=off"]

    def _host_devices(self) -> list[str]:
        return [
            *("-drive", f"if=none,id=disk,file={self.image.disk},format=raw,snapshot=on,cache=unsafe"),
            *("-device", "virtio-blk-pci,drive=disk,addr=1e.0"),
            *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self._port}-:22"),
            *("-device", "virtio-net-pci,netdev=net,mac=52:54:00:00:00:01,addr=1d.0,romfile="),
            *("-device", "virtio-rng-pci,addr=1b.0"),
        ]

    def _wait_ready(self, boots: int) -> None:
        end = time.monotonic() + BOOT_DEADLINE
        while self.console.count(_READY) < boots:
            dead = [process.args for process in self._processes if process.poll() is not None]
            if dead:
                raise LabError(f"a process of the lab ended: {self._log('qemu')}{self._log('boards')}")
            if time.monotonic() > end:
                raise LabError(f"not up after {BOOT_DEADLINE:.0f} s; the console's end:\n{self.console[-3000:]}")
            time.sleep(0.2)
        self._hang_up()
        self.wait("true", deadline=60, what="ssh answers")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
