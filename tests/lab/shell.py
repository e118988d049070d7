"""``python -m tests.lab.shell [COMMAND]``: a machine with the project installed, and a shell in it."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.lab.image.build import build_image
from tests.lab.image.cache import only_one
from tests.lab.machine import ATTACH, Machine
from tests.lab.project import build_project, install


def main(words: list[str]) -> int:
    """Boot, run the command or an interactive shell, power off; the exit status is the shell's."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with only_one():
        image = build_image()
        project = build_project(image)
    machine = Machine(image)
    try:
        machine.start()
        install(machine, project)
        machine.ok("systemctl --no-block start vgpumgr.socket vgpumgr.service")
        print(f"lab: up after {machine.boot_seconds:.0f} s; leave the shell to power off", file=sys.stderr)
        print(f"lab: tests can run in it: {ATTACH}={machine.folder} .venv/bin/pytest tests/lab", file=sys.stderr)
        terminal = [] if words else ["-t"]
        shell = [*machine.ssh()[:-1], *terminal, machine.ssh()[-1], *words]
        return subprocess.run(shell, check=False).returncode
    finally:
        machine.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
