"""Health of a GPU as far as sysfs tells: does it answer, did its link come up, what did it report.

A failed GPU is never offered. Link speed says nothing (an idle GPU lowers it), nor does a power state of
``unknown`` (what the kernel shows for every unbound function).
"""

from __future__ import annotations

from collections.abc import Mapping

from vgpumgr.errors import Reason
from vgpumgr.inventory import config_space
from vgpumgr.inventory.detail import Detail
from vgpumgr.inventory.reader import whole
from vgpumgr.model.host import Health, HealthStatus
from vgpumgr.model.pci import Bar, Link

_BENIGN = frozenset({"UnsupReq", "Unsupported Request"})
"""Counted while firmware and kernel probe for devices; no sign of a fault."""

POWER_CYCLE = "rebinding, reset and rescan do not help: power-cycle the host, then check power and seating"


def judge_health(
    detail: Detail,
    link: Link,
    slot_width: int | None,
    bars: tuple[Bar, ...],
    companion_configs: Mapping[str, bytes],
) -> Health:
    """Worst first: unreadable configuration space fails; what was reported or did not fit degrades.

    ``slot_width`` is the number of lanes that the port above has, ``None`` where that is unknown.
    """
    config = detail.config()
    reasons = []
    if config is not None and config_space.is_dead(config):
        reasons.append(_dead(detail.address))
    reasons += [_dead(name) for name, data in companion_configs.items() if config_space.is_dead(data)]
    if reasons:
        return Health(HealthStatus.FAILED, tuple(reasons))
    reasons += [
        *_errors(detail),
        *_narrow_link(detail.address, link, slot_width),
        *_homeless_bars(detail.address, bars),
    ]
    if reasons:
        return Health(HealthStatus.DEGRADED, tuple(reasons))
    if config is None or len(config) < 4:
        message = "configuration space is not readable here, so nothing can be said"
        return Health(HealthStatus.UNKNOWN, (Reason("config-absent", message, (detail.address,)),))
    return Health(HealthStatus.OK)


def _dead(name: str) -> Reason:
    return Reason("config-unreadable", f"config space unreadable (ff) on {name}: {POWER_CYCLE}", (name,))


def _errors(detail: Detail) -> list[Reason]:
    reasons = []
    for name, code in (("aer_dev_fatal", "aer-fatal"), ("aer_dev_nonfatal", "aer-nonfatal")):
        counted = _counters(detail.text(name) or "")
        if counted:
            what = ", ".join(f"{key} {count}" for key, count in counted.items())
            kind = code.removeprefix("aer-")
            reasons.append(Reason(code, f"{kind} PCIe errors were reported: {what}", (detail.address,)))
    return reasons


def _counters(text: str) -> dict[str, int]:
    """Non-zero counters of an AER file; names may hold blanks, the number comes last."""
    found = {}
    for line in text.splitlines():
        name, _, number = line.strip().rpartition(" ")
        count = whole(number)
        if count and count > 0 and name and name not in _BENIGN and not name.startswith("TOTAL_ERR"):
            found[name] = count
    return found


def _narrow_link(name: str, link: Link, slot_width: int | None) -> list[Reason]:
    """A quarter of the lanes that both ends have, or fewer, is a contact or training fault; half is common."""
    if link.width is None or link.max_width is None:
        return []
    possible = min(link.max_width, slot_width or link.max_width)
    if link.width * 4 > possible:
        return []
    message = f"the PCIe link runs with {link.width} of {possible} lanes: check the slot and the riser"
    return [Reason("link-narrow", message, (name,))]


def _homeless_bars(name: str, bars: tuple[Bar, ...]) -> list[Reason]:
    homeless = [str(bar.number) for bar in bars if not bar.assigned]
    if not homeless:
        return []
    message = f"BAR {', '.join(homeless)} got no address: enable 'Above 4G decoding' (64-bit MMIO) in the firmware"
    return [Reason("bar-unassigned", message, (name,))]
