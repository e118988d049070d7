"""``vgpumgr host``: this host in short, what stands in its way, and a file to send."""

from __future__ import annotations

import sys
from collections import Counter
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile

import click

from vgpumgr.cli.backend import Backend, JsonObject, Needs, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit, note
from vgpumgr.cli.table import facts
from vgpumgr.errors import SourceError, UsageError

_STDOUT = Path("-")

MARKS = {"blocking": ("✗", "red"), "warning": ("!", "yellow"), "info": ("·", None)}


@click.command("host", cls=NounGroup, examples="vgpumgr host doctor\nvgpumgr host snapshot host.tar")
def host() -> None:
    """The host: in short, its ailments, a snapshot of it."""


def summary(inventory: JsonObject) -> JsonObject:
    """The inventory's host with its GPUs and groups counted."""
    gpus = inventory["gpus"]
    return {
        **inventory["host"],
        "gpus": len(gpus),
        "assignable": sum(1 for item in gpus if item["passthrough"]["assignable"]),
        "states": dict(Counter(item["passthrough"]["state"] for item in gpus)),
        "vgpus": sum(len(item["vgpu"]["instances"]) for item in [*gpus, *inventory["virtual_parents"]]),
        "iommu_groups": len(inventory["iommu_groups"]),
        "warnings": len(inventory["warnings"]),
    }


def _summary_text(data: JsonObject, invocation: Invocation) -> str:
    states = ", ".join(f"{count} {state}" for state, count in data["states"].items())
    return facts(
        [
            ("host", data["hostname"] or "unknown"),
            ("kernel", data["kernel"] or "unknown"),
            ("IOMMU", "active" if data["iommu"]["active"] else "not active"),
            *(("hint", hint) for hint in data["iommu"]["hints"]),
            ("GPUs", f"{data['gpus']} ({states})" if states else data["gpus"]),
            ("assignable", data["assignable"]),
            ("vGPUs", data["vgpus"]),
            ("IOMMU groups", data["iommu_groups"]),
            ("warnings", f"{data['warnings']} (see 'vgpumgr inventory')" if data["warnings"] else 0),
        ]
    )


@host.verb("show", examples="vgpumgr host show\nvgpumgr host show -o json")
@pass_invocation
def show(invocation: Invocation) -> None:
    """Show the host in short: kernel, IOMMU, how many GPUs in which state."""
    with open_backend(invocation, Needs.READING) as backend:
        emit(invocation, summary(backend.inventory()), _summary_text)


def doctor_text(report: JsonObject, invocation: Invocation) -> str:
    """The host's findings, then GPU by GPU: ✓ or ✗, each finding and its remedies."""
    parts = []
    if report["host"]["findings"]:
        parts.append("\n".join(["Host", *_findings(report["host"]["findings"], invocation)]))
    for item in report["gpus"]:
        good = item["assignable"]
        mark = _styled("✓" if good else "✗", "green" if good else "red", invocation)
        verdict = "can be given to a VM" if good else "cannot be given to a VM"
        head = f"{mark} {item['address']}  {item['name']}: {verdict} ({item['state']})"
        parts.append("\n".join([head, *_findings(item["findings"], invocation)]))
    return "\n\n".join(parts) or "no GPUs found, and nothing wrong with the host"


def _findings(findings: list[JsonObject], invocation: Invocation) -> list[str]:
    lines = []
    for item in findings:
        mark, color = MARKS[item["severity"]]
        lines.append(f"  {_styled(mark, color, invocation)} {item['message']} [{item['code']}]")
        lines += [f"      → {remedy['text']}" for remedy in item["remedies"]]
    return lines


def _styled(text: str, color: str | None, invocation: Invocation) -> str:
    return click.style(text, fg=color) if invocation.color and color else text


@host.verb("doctor", examples="vgpumgr host doctor\nvgpumgr --sysfs-root host.tar host doctor -o json")
@pass_invocation
def doctor(invocation: Invocation) -> None:
    """Explain, per GPU, what stands between it and a VM, and how to remedy it."""
    with open_backend(invocation, Needs.READING) as backend:
        emit(invocation, backend.doctor(), doctor_text)


@host.verb("snapshot", examples="vgpumgr host snapshot host.tar\nvgpumgr --sysfs-root host.tar inventory")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@pass_invocation
def snapshot(invocation: Invocation, file: Path, overwrite: bool) -> None:
    """Write what vgpumgr reads of this host to a tar FILE (- for standard output) that --sysfs-root takes. No
    serials, no MACs.
    """
    if file == _STDOUT:
        with open_backend(invocation, Needs.READING) as backend:
            _write_out(backend)
        return
    _check_place(file, overwrite)
    with open_backend(invocation, Needs.READING) as backend:
        _write_whole(backend, file)
    emit(invocation, {"file": str(file), "bytes": file.stat().st_size}, lambda data, _: str(data["file"]))
    if not invocation.machine_readable:
        note(f"read it with: vgpumgr --sysfs-root {file} inventory")


def _write_out(backend: Backend) -> None:
    """Into a pipe or a file, as a whole or not at all."""
    if sys.stdout.isatty():
        raise UsageError("a tar is nothing for a terminal", hint="name a file, or add > host.tar")
    out = BytesIO()
    backend.snapshot(out)
    sys.stdout.buffer.write(out.getvalue())


def _check_place(file: Path, overwrite: bool) -> None:
    """Nothing is replaced unasked; and a device or pipe never: as root that would take /dev/null from the host."""
    try:
        there, plain = file.exists(), file.is_file()
    except OSError as error:
        raise _unwritable(file, error) from error
    if there and not plain:
        raise UsageError(f"{file} is no regular file", hint="name a file, or - for standard output")
    if there and not overwrite:
        raise UsageError(
            f"{file} is there already", hint="choose another name, or add --overwrite", code="file-exists"
        )


def _unwritable(file: Path, error: OSError) -> SourceError:
    return SourceError(
        f"cannot write {file}: {error.strerror}",
        hint="name a file in a folder you can write to",
        code="file-unwritable",
    )


def _write_whole(backend: Backend, file: Path) -> None:
    """Write beside the file first, so that a file cut short never bears its name."""
    try:
        file = file.resolve()  # A link stays one: what it leads to is written.
        with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as out:
            part = Path(out.name)
            try:
                backend.snapshot(out)
                out.close()
                part.chmod(0o644)
                part.replace(file)
            except BaseException:
                part.unlink()
                raise
    except OSError as error:
        raise _unwritable(file, error) from error
