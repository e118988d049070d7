"""Where a GPU sits in the PCIe tree, who sits near it, and whether the ports above it isolate it."""

from __future__ import annotations

from collections.abc import Mapping

from vgpumgr.inventory import config_space
from vgpumgr.inventory.classes import is_network
from vgpumgr.inventory.reader import Reader
from vgpumgr.kernel.port import PCI_DEVICES
from vgpumgr.model.host import Topology
from vgpumgr.model.pci import PciFunction


class TopologyMap:
    """Answers for many GPUs: every bridge is read once, and NICs are sorted by switch once."""

    def __init__(self, reader: Reader, functions: Mapping[str, PciFunction]) -> None:
        self._reader = reader
        self._configs: dict[str, bytes | None] = {}
        self._nics: dict[str, list[str]] = {}
        for function in functions.values():
            if is_network(function.class_id) and function.physfn is None and len(function.bridges) > 1:
                self._nics.setdefault(function.bridges[1], []).append(function.address)

    def of(self, function: PciFunction) -> Topology:
        """The place of one function. ``switches`` holds all switch ports on the way, outermost first."""
        bridges = function.bridges
        return Topology(
            root_port=bridges[0] if bridges else None,
            switches=bridges[1:],
            nearby_nics=tuple(self._nics.get(bridges[1], ())) if len(bridges) > 1 else (),
            acs=self._isolated(bridges),
        )

    def _isolated(self, bridges: tuple[str, ...]) -> bool | None:
        """False as soon as one downstream port is known not to isolate; ``None`` when one cannot be told."""
        answers: list[bool | None] = []
        for bridge in bridges:
            config = self._config(bridge)
            if config is None or config_space.port_type(config) is None:
                answers.append(None)
            elif config_space.is_downstream_port(config):
                answers.append(config_space.acs_isolates(config))
        if False in answers:
            return False
        return None if None in answers or not answers else True

    def _config(self, bridge: str) -> bytes | None:
        if bridge not in self._configs:
            self._configs[bridge] = self._reader.raw(f"{PCI_DEVICES}/{bridge}/config", bridge)
        return self._configs[bridge]
