"""A card's modes as users see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgpumgr.model.vgpu import CardModes

if TYPE_CHECKING:
    from vgpumgr.vgpu.driver_scheduler import DriverScheduler
    from vgpumgr.vgpu.nvml_port import NvmlCard


def card_modes(
    address: str, source: str, card: NvmlCard | None, parameters: DriverScheduler | None = None
) -> CardModes:
    """What NVML (``source`` is who answered) and the driver's parameters say of a card's modes."""
    configured = str(parameters.configured) if parameters is not None and parameters.configured else None
    if card is None:
        running = str(parameters.running) if parameters is not None and parameters.running else None
        return CardModes(address, source, scheduler=running, scheduler_configured=configured)
    return CardModes(
        address=address,
        source=source,
        mig=card.mig,
        mig_pending=card.mig_pending,
        gpu_instances=tuple((item.shape, item.start) for item in card.gpu_instances),
        mixed_size=card.mixed_size,
        scheduler=str(card.scheduler) if card.scheduler is not None else None,
        schedulers=tuple(map(str, card.schedulers)),
        ecc=card.ecc,
        ecc_pending=card.ecc_pending,
        scheduler_configured=configured,
    )
