"""The scheduling policy as NVIDIA's driver takes it when it is loaded: the registry key ``RmPVMRL``.

It stands in the driver's parameters, for all cards (``NVreg_RegistryDwords``) or for one
(``NVreg_RegistryDwordsPerDevice="pci=0000:3b:00.0;RmPVMRL=0x11"``); a card's own entry counts before that for all.
The driver shows what it was loaded with in ``/proc/driver/nvidia/params``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from vgpumgr.address import canonical
from vgpumgr.errors import AddressError
from vgpumgr.kernel.modprobe import OWN_FILE, logical_lines, module_options, pairs
from vgpumgr.kernel.port import Kernel, read_text
from vgpumgr.vgpu.nvml_port import Scheduler

MODULE = "nvidia"
PER_DEVICE = "NVreg_RegistryDwordsPerDevice"
FOR_ALL = "NVreg_RegistryDwords"
KEY = "RmPVMRL"
LOADED = "/proc/driver/nvidia/params"

VALUES = {Scheduler.BEST_EFFORT: "0x00", Scheduler.EQUAL_SHARE: "0x01", Scheduler.FIXED_SHARE: "0x11"}
"""Each policy with its own time slice left to the driver."""
_ON, _POLICY, _EQUAL, _FIXED = 0x1, 0xF0, 0x00, 0x10
_HEADER = "# Written by vgpumgr (gpu mode --scheduler). Read when the driver nvidia is loaded.\n"


class DriverScheduler(NamedTuple):
    """A card's policy by the driver's parameters.

    ``running``: as the driver was loaded, ``None`` when it does not say. ``configured``: as it will be loaded next,
    ``None`` when nothing is configured. ``foreign`` is what else sets the parameter that our file would set.
    ``knows_devices`` is false for a driver that has no parameter for one card.
    """

    running: Scheduler | None = None
    configured: Scheduler | None = None
    foreign: str | None = None
    knows_devices: bool | None = None


def read_driver_scheduler(kernel: Kernel, address: str) -> DriverScheduler:
    """What the parameters say of one card, now and at the next load. Unreadable is not told."""
    options = module_options(kernel, MODULE)
    values = {option.name: option.value for option in options}
    foreign = [item.source for item in options if item.name == PER_DEVICE and item.source != OWN_FILE]
    loaded = read_text(kernel, LOADED)
    running, knows = None, None
    if loaded is not None:
        now = dict(_shown(loaded.splitlines()))
        knows = "RegistryDwordsPerDevice" in now
        texts = now.get("RegistryDwordsPerDevice", ""), now.get("RegistryDwords", "")
        running = _policy(*texts, address) or Scheduler.BEST_EFFORT
    configured = _policy(values.get(PER_DEVICE, ""), values.get(FOR_ALL, ""), address)
    return DriverScheduler(running, configured, foreign[0] if foreign else None, knows)


def _shown(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """``RegistryDwords: "RmPVMRL=0x11"`` as name and text."""
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip(), value.strip().strip('"')


def _policy(per_device: str, for_all: str, address: str) -> Scheduler | None:
    own = next((entries for device, entries in _devices(per_device) if device == address), [])
    for entries in (own, for_all.split(";")):
        for name, value in map(_entry, reversed(entries)):
            if name == KEY:
                return policy_of(value)
    return None


def _entry(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def policy_of(value: str) -> Scheduler | None:
    """What a value of the key means, time slice aside; ``None`` for one that means nothing known."""
    try:
        bits = int(value, 0)
    except ValueError:
        return None
    if not bits & _ON:
        return Scheduler.BEST_EFFORT
    return {_EQUAL: Scheduler.EQUAL_SHARE, _FIXED: Scheduler.FIXED_SHARE}.get(bits & _POLICY)


def _devices(text: str) -> list[tuple[str, list[str]]]:
    """The parameter for single cards, taken apart: each card's address with its entries, all kept as they are."""
    found: list[tuple[str, list[str]]] = []
    for part in filter(None, map(str.strip, text.split(";"))):
        name, value = _entry(part)
        if name == "pci":
            found.append((_address(value), []))
        elif found:
            found[-1][1].append(part)
        else:
            found.append(("", [part]))
    return found


def _address(text: str) -> str:
    """The driver takes an address without its function, or without its domain, too."""
    try:
        return canonical(text if "." in text else f"{text}.0")
    except AddressError:
        return text


def own_value(text: str, address: str) -> str | None:
    """What our file sets the key to for a card; ``None`` when it does not."""
    values = [value for line in logical_lines(text) for name, value in _options(line) if name == PER_DEVICE]
    entries = next((entries for device, entries in _devices(values[-1] if values else "") if device == address), [])
    return next((value for name, value in map(_entry, entries) if name == KEY), None)


def edited(text: str, address: str, value: str | None) -> str:
    """Our file with the key of one card set, or (``None``) taken out; empty when nothing but remarks is left.

    Everything else in it stays: other cards, other keys, other lines.
    """
    kept, current = [], ""
    for line in text.replace("\\\n", " ").splitlines():
        options = _options(line)
        others = [(name, given) for name, given in options if name != PER_DEVICE]
        if len(others) == len(options):
            kept.append(line)
            continue
        current = next(given for name, given in reversed(options) if name == PER_DEVICE)
        if others:
            kept.append(f"options {MODULE} " + " ".join(f'{name}="{given}"' for name, given in others))
    devices = _with_key(_devices(current), address, value)
    if devices:
        texts = [";".join([f"pci={device}"] * bool(device) + entries) for device, entries in devices]
        kept.append(f'options {MODULE} {PER_DEVICE}="{";".join(texts)}"')
    body = "".join(f"{line}\n" for line in kept)
    if not any(logical_lines(body)):
        return ""
    return body if body.startswith(_HEADER) else _HEADER + body


def _options(line: str) -> list[tuple[str, str]]:
    words = line.split(None, 2)
    return pairs(words[2]) if len(words) == 3 and words[:2] == ["options", MODULE] else []


def _with_key(devices: list[tuple[str, list[str]]], address: str, value: str | None) -> list[tuple[str, list[str]]]:
    wanted = [f"{KEY}={value}"] if value is not None else []
    changed = []
    for device, entries in devices:
        kept = entries
        if device == address:
            kept = [entry for entry in entries if _entry(entry)[0] != KEY] + wanted
            wanted = []
        if kept:
            changed.append((device, kept))
    return changed + ([(address, wanted)] if wanted else [])
