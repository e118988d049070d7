"""Python packages that Debian does not have: fetched once by pip, kept beside the image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.lab.image.cache import key_of, stage

_NOT_IN_DEBIAN = ["flask-openapi3>=4.0,<5", "flask-openapi3-swagger>=5.18,<6", "nvidia-ml-py>=12.535,<14"]
"""Pure Python, so the outer machine's Python may fetch them for the lab's."""


def build_wheelhouse() -> Path:
    """A folder of wheels, installed in the lab together with the project's."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version=3.13", "--dest", str(folder), *_NOT_IN_DEBIAN]
        subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL)

    return stage("wheelhouse", key_of(" ".join(_NOT_IN_DEBIAN)), build)
