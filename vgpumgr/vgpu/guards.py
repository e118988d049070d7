"""Cards that must be left as they are: broken, in quarantine, or promised to a VM as a whole."""

from __future__ import annotations

from vgpumgr.errors import Reason
from vgpumgr.model.host import Gpu, HealthStatus, PassthroughState
from vgpumgr.plans.plan import Refusal

_SPOKEN_FOR = (PassthroughState.FAILED, PassthroughState.RESERVED, PassthroughState.IN_USE)


def not_to_be_cut(gpu: Gpu) -> Refusal | None:
    """The refusal to make vGPUs on a card, or to change how it is cut; ``None`` when nothing speaks against it."""
    broken = gpu.health.status is HealthStatus.FAILED
    if not broken and gpu.passthrough.state not in _SPOKEN_FOR:
        return None
    codes = {str(gpu.passthrough.state), "failed"} if broken else {str(gpu.passthrough.state)}
    reasons = tuple(reason for reason in gpu.passthrough.reasons if reason.code in codes) or (
        Reason(str(gpu.passthrough.state), f"{gpu.address} is {gpu.passthrough.state}", (gpu.address,)),
    )
    hint = "release the allocation, or stop the VM, that has the whole GPU"
    if reasons[0].code == "failed":
        hint = "mend it, then lift its quarantine"
    return Refusal(reasons[0].code, f"{gpu.address} is left as it is: {reasons[0].message}", reasons, hint)
