"""Where this machine gets its Debian packages from: its own apt sources say, and nothing here does."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

SUITE = "trixie"
"""The Debian release of the lab, whatever the release of the machine that builds it."""


@dataclass(frozen=True)
class Mirrors:
    """Base addresses of Debian's archive and of its security archive (``None`` when this machine names none)."""

    main: str
    security: str | None

    def sources(self, *, backports: bool = False) -> list[str]:
        """One-line apt sources of the lab's release."""
        suites = [SUITE, f"{SUITE}-updates", *([f"{SUITE}-backports"] if backports else [])]
        lines = [f"deb {self.main} {suite} main" for suite in suites]
        if self.security:
            lines.append(f"deb {self.security} {SUITE}-security main")
        return lines


def find_mirrors() -> Mirrors:
    """Read the mirrors from apt. Raises RuntimeError when apt knows no Debian archive."""
    found = _targets()
    if "Debian" not in found:
        subprocess.run(["apt-get", "-q", "update"], check=True, stdout=subprocess.DEVNULL, timeout=300)
        found = _targets()
    if "Debian" not in found:
        raise RuntimeError("apt on this machine knows no Debian archive; the lab is built from Debian's packages")
    return Mirrors(found["Debian"], found.get("Debian-Security"))


def _targets() -> dict[str, str]:
    command = ["apt-get", "indextargets", "--format", "$(LABEL)\t$(REPO_URI)", "Created-By: Packages"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    pairs = [line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line]
    return {label: uri.rstrip("/") for label, uri in reversed(pairs)}
