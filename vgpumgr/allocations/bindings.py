"""Bindings that last: plans of ``binding.py`` with the memory that a reboot and a release need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from vgpumgr.allocations.desk import Desk
from vgpumgr.allocations.look import look
from vgpumgr.allocations.steps import ForgetBinding, RememberBinding
from vgpumgr.binding import plan_bind, plan_release, release_refusal
from vgpumgr.inventory.classes import is_vfio_driver
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.host import Gpu, GpuKind, HostInventory
from vgpumgr.model.operation import Operation
from vgpumgr.model.records import OPERATOR, Binding
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.store.store import Store


def fingerprint(gpu: Gpu) -> str:
    """What a card is, wherever it is: its vendor and device; of a virtual one, its driver."""
    if gpu.kind is GpuKind.VIRTUAL:
        return f"virtual:{gpu.function.driver}"
    return f"{gpu.function.vendor_id}:{gpu.function.device_id}"


def plan_lasting_bind(
    kernel: Kernel,
    inventory: HostInventory,
    gpu: Gpu,
    store: Store,
    *,
    driver: str = "auto",
    force: bool = False,
    also: Sequence[str] = (),
    leaving: Collection[str] = (),
    owner: str = OPERATOR,
) -> Plan:
    """Bind, and remember. A binding that an operator made is never taken over by an allocation."""
    plan = plan_bind(kernel, inventory, gpu, driver=driver, force=force, also=also, leaving=leaving)
    known = store.bindings.get(gpu.address)
    settled = known is not None and not plan.steps and known.owner in (owner, OPERATOR)
    if plan.refusal is not None or settled:
        return plan
    if known is None and (foreign := _in_use(gpu)):
        return replace(plan, steps=(), refusal=foreign)
    originals = _originals(inventory, gpu, also, known, owner)
    keep = owner if known is None or known.owner != OPERATOR else OPERATOR
    remember = RememberBinding(gpu.address, fingerprint(gpu), driver, keep, dict(originals))
    return replace(plan, steps=(*plan.steps, remember))


def _in_use(gpu: Gpu) -> Refusal | None:
    """A GPU that somebody brought to VFIO and uses there is theirs: it is not made ours behind their back."""
    reasons = tuple(reason for reason in gpu.passthrough.reasons if reason.code == "in-use")
    if not reasons:
        return None
    return Refusal("in-use", reasons[0].message, reasons, "ask again when the VM that has it is gone")


def _originals(
    inventory: HostInventory, gpu: Gpu, also: Sequence[str], known: Binding | None, owner: str
) -> Mapping[str, str | None]:
    """The drivers to give back: as recorded before, else as they are now.

    What was on VFIO before an allocation came is left there when it goes. An operator who releases wants it on a
    host driver, and which one is not known.
    """
    moved = {gpu.address, *(companion.address for companion in gpu.companions), *also}
    found = {item.address: item.driver for item in inventory.functions if item.address in moved}
    found |= known.originals if known is not None else {}
    return {name: driver for name, driver in found.items() if owner != OPERATOR or not is_vfio_driver(driver or "")}


def plan_lasting_release(
    kernel: Kernel, inventory: HostInventory, gpu: Gpu, store: Store, *, force: bool = False
) -> Plan:
    """Give back to the drivers recorded, and forget. Where no driver moves, forgetting is still a change."""
    known = store.bindings.get(gpu.address)
    plan = plan_release(kernel, inventory, gpu, originals=known.originals if known else None, force=force)
    if plan.refusal is not None or known is None:
        return plan
    if not plan.steps:
        # Forgetting touches no device, so one that does not work may be forgotten: only an owner speaks against it.
        refusal = release_refusal(gpu, force=True)
        if refusal is not None:
            return replace(plan, refusal=refusal)
    return replace(plan, steps=(*plan.steps, ForgetBinding(gpu.address)))


def restore_bindings(desk: Desk) -> Sequence[Operation]:
    """Bind again all that is recorded, and wait for the end; one that cannot be bound is a failed operation."""
    kernel, bindings = desk.context.kernel, desk.store.bindings.all()
    bound = {name for binding in bindings for name in (binding.address, *binding.originals)}

    def plan(binding: Binding) -> Plan:
        return plan_restore(kernel, look(kernel), binding, leaving=bound)

    operations = []
    for binding in bindings:
        now = plan(binding)
        if now.steps or now.refusal is not None:
            operations.append(desk.submit(now.kind, binding.address, partial(plan, binding)))
    return [desk.wait(operation.id, None) for operation in operations]


def plan_restore(
    kernel: Kernel, inventory: HostInventory, binding: Binding, *, leaving: Collection[str] = ()
) -> Plan:
    """Bind again after a reboot, if the card is still the one that was bound.

    No forcing is needed: whoever could use the GPU has not been started yet. What the operator forced once,
    such as the boot display, was forced for good. ``leaving`` are the functions of all bindings: they leave the
    host in their turn.
    """
    gpu = next((item for item in inventory.gpus if item.address == binding.address), None)
    if gpu is None:
        message = f"there is no GPU at {binding.address} any more"
        return Plan("restore", binding.address, refusal=Refusal("gpu-missing", message, hint="was the card moved?"))
    if fingerprint(gpu) != binding.fingerprint:
        message = f"{binding.address} is {fingerprint(gpu)} now, not the {binding.fingerprint} that was bound"
        hint = "cards were moved: bind anew what shall be bound"
        return Plan("restore", binding.address, refusal=Refusal("gpu-changed", message, hint=hint))
    own = {gpu.address, *(companion.address for companion in gpu.companions)}
    also = [name for name in binding.originals if name not in own]
    plan = plan_bind(kernel, inventory, gpu, driver=binding.driver, force=True, also=also, leaving=leaving)
    return replace(plan, kind="restore")
