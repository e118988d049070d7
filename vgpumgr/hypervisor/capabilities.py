"""What a libvirt can do: its versions, its kinds of domains, the processors of each NUMA node."""

from __future__ import annotations

from typing import Any

from lxml import etree

from vgpumgr.model.domain import HypervisorCapabilities


def read_capabilities(connection: Any) -> HypervisorCapabilities:
    """Ask a ``virConnect``. What its XML does not tell is left empty."""
    root = _capabilities(connection)
    kinds = {item.get("type", "") for item in root.iterfind("guest/arch/domain")}
    cells = {cell.get("id", ""): _cpus(cell) for cell in root.iterfind("host/topology/cells/cell")}
    return HypervisorCapabilities(
        driver=str(connection.getType()),
        libvirt=_dotted(connection.getLibVersion()),
        emulator=_dotted(connection.getVersion()),
        domain_types=tuple(sorted(kinds - {""})),
        node_cpus={int(number): cpus for number, cpus in cells.items() if number.isdecimal() and cpus},
    )


def _capabilities(connection: Any) -> etree._Element:
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    return etree.fromstring(connection.getCapabilities().encode(), parser)


def _cpus(cell: etree._Element) -> str:
    """The processors of a NUMA cell as a list of ranges: ``0-15,32-47``."""
    numbers = sorted(int(cpu.get("id", "-1")) for cpu in cell.iterfind("cpus/cpu"))
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _dotted(number: int) -> str:
    """libvirt counts versions as major * 1,000,000 + minor * 1,000 + release."""
    return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"
