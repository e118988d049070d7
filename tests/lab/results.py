"""The one-page table of a lab run: scenario, outcome, kernel, libvirt, QEMU, seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Results:
    """Rows as they come in, and what machine they hold for."""

    versions: dict[str, str] = field(default_factory=dict)
    rows: dict[str, tuple[str, float]] = field(default_factory=dict)

    def add(self, report: pytest.TestReport) -> None:
        """Take in one phase of one test: the worst outcome counts, the seconds of the test itself."""
        file, _, test = report.nodeid.rpartition("/")[2].partition(".py::")
        name = f"{file.removeprefix('test_')}: {test.removeprefix('test_').replace('_', ' ')}"
        outcome, seconds = self.rows.get(name, ("passed", 0.0))
        if report.outcome != "passed":
            outcome = report.outcome
        if report.when == "call":
            seconds = report.duration
        self.rows[name] = (outcome, seconds)
        self.versions |= {str(key): str(value) for key, value in report.user_properties}

    def write(self, folder: Path) -> Path | None:
        """Write ``results.md``; ``None`` when nothing ran."""
        if not self.rows:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "results.md"
        page.write_text(self.page())
        return page

    def page(self) -> str:
        """The table as Markdown."""
        kernel, libvirt, qemu = (self.versions.get(key, "-") for key in ("kernel", "libvirt", "QEMU"))
        lines = [
            "| scenario | outcome | kernel | libvirt | QEMU | seconds |",
            "| --- | --- | --- | --- | --- | ---: |",
        ]
        for name, (outcome, seconds) in self.rows.items():
            lines.append(f"| {name} | {outcome} | {kernel} | {libvirt} | {qemu} | {seconds:.1f} |")
        passed = sum(outcome == "passed" for outcome, _ in self.rows.values())
        total = sum(seconds for _, seconds in self.rows.values())
        return "\n".join([*lines, "", f"{passed} of {len(self.rows)} scenarios passed, {total:.0f} s.", ""])
