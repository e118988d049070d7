"""Plans to give a GPU to VFIO and to give it back, its companions with it.

A plan is made from one look at the host. What the host still uses is never taken: the boot display, a
mounted disk, an interface that is up, a GPU with open handles, or a group that holds such a member, unless
the operator names the address and forces it: ``force`` for what uses the GPU itself, ``also`` for other
members of its group, each by its address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from vgpumgr.address import sort_key
from vgpumgr.errors import Reason, UsageError
from vgpumgr.inventory.classes import is_vfio_driver
from vgpumgr.inventory.variants import best_vfio_driver, module_of
from vgpumgr.kernel.port import PCI_DEVICES, Kernel, read_text
from vgpumgr.model.host import Gpu, Holder, HostInventory
from vgpumgr.model.pci import PciFunction
from vgpumgr.model.reasons import INFORMATIVE
from vgpumgr.plans.checks import CheckGroup, CheckIdle, holder_reason
from vgpumgr.plans.pci import BindTo, LoadModule, Probe, SetOverride, Unbind, override_of
from vgpumgr.plans.plan import AfterCrash, Plan, Refusal
from vgpumgr.plans.step import Step

FORCIBLE = frozenset({"boot-display", "in-use-by-host", "framebuffer-held", "kind-not-offered"})
"""Reasons that an operator who named the GPU may overrule; everything else is physics or somebody's VM."""


def plan_bind(
    kernel: Kernel,
    inventory: HostInventory,
    gpu: Gpu,
    *,
    driver: str = "auto",
    force: bool = False,
    also: Sequence[str] = (),
    leaving: Collection[str] = (),
) -> Plan:
    """The plan that puts a GPU and its companions on VFIO drivers.

    ``also``: members of its IOMMU group that this plan takes from the host too. ``leaving``: members that another
    plan takes together with this one; that the group can go to a VM is for the last of them to check.

    ``driver``: ``auto`` (a variant driver where the host has one that fits) or a VFIO driver's name, for the
    GPU's primary function; companions always take ``vfio-pci``. Empty when all are there already. UsageError
    ``driver-invalid`` for another driver: what is meant for a VM is never given to the host's. One that is there
    already and that no VM could have all the same is refused as any other.
    """
    if driver != "auto" and not is_vfio_driver(driver):
        raise UsageError(
            f"{driver!r} is no VFIO driver",
            hint="leave it out, or name vfio-pci or one of its variants, such as xe-vfio-pci",
            code="driver-invalid",
        )
    functions = _functions(inventory, gpu, also)
    wanted = {
        item.address: _driver_for(kernel, item, driver if item.address == gpu.address else "auto")
        for item in functions
    }
    moving = [item for item in functions if not _is_there(item, wanted[item.address][0], driver)]
    refusal = _bind_refusal(inventory, gpu, force, also, leaving)
    if not moving and (refusal is None or _only_about_taking(refusal)):
        return Plan("bind", gpu.address)
    if refusal is not None:
        return Plan("bind", gpu.address, refusal=refusal)
    steps: list[Step] = []
    if not force:
        steps.append(CheckIdle(gpu.address, tuple(item.address for item in moving)))
    for name, module in sorted({wanted[item.address] for item in moving}):
        steps.append(LoadModule(module, name))
    steps += _move(kernel, moving, {item.address: wanted[item.address][0] for item in moving})
    if gpu.function.iommu_group is not None and not _held_back(gpu, {item.address for item in functions}):
        steps.append(CheckGroup(gpu.address, gpu.function.iommu_group))
    return Plan("bind", gpu.address, tuple(steps), warnings=_overruled(gpu, force, also))


def _held_back(gpu: Gpu, taken: set[str]) -> bool:
    """Whether the group cannot go to a VM yet when ``taken`` have moved: others are still to leave the host."""
    shared = (reason for reason in gpu.passthrough.reasons if reason.code == "group-shared")
    return any(not taken >= set(reason.addresses) for reason in shared)


def plan_release(
    kernel: Kernel,
    inventory: HostInventory,
    gpu: Gpu,
    *,
    originals: Mapping[str, str | None] | None = None,
    force: bool = False,
) -> Plan:
    """The plan that gives a GPU and its companions back to the drivers they had, overrides cleared.

    ``originals`` maps addresses to the drivers recorded at binding (``None``: it had none); for an address that
    is not in it, the kernel chooses. One that had a VFIO driver stays where it is. Empty when nothing else is on
    VFIO and no override for VFIO is left.
    """
    originals = originals or {}
    known = {item.address: item for item in inventory.functions}
    addresses = {gpu.address, *(companion.address for companion in gpu.companions), *originals}
    at_home = {name for name, driver in originals.items() if is_vfio_driver(driver or "")}
    functions = [known[name] for name in sorted((addresses & set(known)) - at_home, key=sort_key)]
    moving = [item for item in functions if item.vfio or (not item.driver and override_of(kernel, item.address))]
    cleared = [SetOverride(item.address, "", prior) for item, prior in _left_reserved(kernel, functions)]
    if not moving:
        return Plan("release", gpu.address, tuple(cleared))
    refusal = release_refusal(gpu, force=force)
    if refusal is not None:
        return Plan("release", gpu.address, refusal=refusal)
    steps: list[Step] = []
    if not force:
        steps.append(CheckIdle(gpu.address, tuple(item.address for item in moving)))
    for item in moving:
        steps += _give_back(kernel, item, originals)
    steps += cleared
    return Plan("release", gpu.address, tuple(steps), after_crash=AfterCrash.FORWARD)


def _left_reserved(kernel: Kernel, functions: Iterable[PciFunction]) -> Iterable[tuple[PciFunction, str]]:
    """Functions on a host driver that the next probe would give to VFIO, with the override that says so."""
    for item in functions:
        override = override_of(kernel, item.address)
        if item.driver and not item.vfio and is_vfio_driver(override):
            yield item, override


def _functions(inventory: HostInventory, gpu: Gpu, also: Sequence[str]) -> list[PciFunction]:
    """The GPU's functions and the members named with it, companions before the GPU they hang on."""
    addresses = [*(companion.address for companion in gpu.companions), *also]
    known = {item.address: item for item in inventory.functions if not item.is_bridge}
    ordered = sorted(set(addresses) - {gpu.address}, key=sort_key)
    return [known[name] for name in ordered if name in known] + [gpu.function]


def _driver_for(kernel: Kernel, function: PciFunction, driver: str) -> tuple[str, str]:
    """``(driver, module)`` that a function shall get."""
    if driver != "auto":
        return driver, module_of(driver)
    return best_vfio_driver(kernel, read_text(kernel, f"{PCI_DEVICES}/{function.address}/modalias"))


def _is_there(function: PciFunction, wanted: str, asked: str) -> bool:
    """True when a function needs no move: on any VFIO driver for ``auto``, on the named one otherwise."""
    return function.vfio and (asked == "auto" or function.driver == wanted)


def _move(kernel: Kernel, functions: Sequence[PciFunction], drivers: Mapping[str, str]) -> list[Step]:
    """Override all, unbind companions before their GPU, probe the GPU before its companions."""
    priors = {item.address: override_of(kernel, item.address) for item in functions}
    overrides = [SetOverride(item.address, drivers[item.address], priors[item.address]) for item in functions]
    unbinds = [Unbind(item.address, item.driver, priors[item.address]) for item in functions if item.driver]
    probes = [Probe(item.address, drivers[item.address]) for item in reversed(functions)]
    return [*overrides, *unbinds, *probes]


def _give_back(kernel: Kernel, function: PciFunction, originals: Mapping[str, str | None]) -> Iterable[Step]:
    """Clear the override, take the function off VFIO, and let its driver have it."""
    prior = override_of(kernel, function.address)
    yield SetOverride(function.address, "", prior)
    if function.driver:
        yield Unbind(function.address, function.driver, prior)
    if function.address not in originals:
        yield Probe(function.address, avoid=function.driver or "")
        return
    original = originals[function.address]
    if original is not None:
        modalias = read_text(kernel, f"{PCI_DEVICES}/{function.address}/modalias")
        yield LoadModule(modalias or original, original)
        yield BindTo(function.address, original)


def _bind_refusal(
    inventory: HostInventory, gpu: Gpu, force: bool, also: Sequence[str], leaving: Collection[str]
) -> Refusal | None:
    taken = {*also, *leaving, *(companion.address for companion in gpu.companions)}
    reasons = [reason for reason in gpu.passthrough.reasons if not _overruled_by(reason, force, taken)]
    reasons += _bad_companions(inventory, gpu, also)
    reasons += [] if force else [_in_use(holder) for holder in gpu.holders if holder.address in also]
    if not reasons:
        return None
    first = reasons[0]
    return Refusal(
        first.code, f"{gpu.address} cannot be given to a VM: {first.message}", tuple(reasons), _hint(gpu, reasons)
    )


_USELESS = frozenset({"failed", "iommu-inactive", "no-iommu-group", "group-shared", "framebuffer-held"})
"""Reasons that keep a GPU from every VM, on a VFIO driver too; all others are about taking it from somebody."""


def _only_about_taking(refusal: Refusal) -> bool:
    return not any(reason.code in _USELESS for reason in refusal.reasons)


def _overruled_by(reason: Reason, force: bool, taken: set[str]) -> bool:
    """True when a reason does not stop this plan. ``taken`` are the functions that leave the host with the GPU."""
    if reason.code in INFORMATIVE or reason.code == "owner-unknown":
        return True  # Functions on VFIO stay where they are; only others move.
    if reason.code == "group-shared":
        return set(reason.addresses) <= taken
    return force and reason.code in FORCIBLE


def _bad_companions(inventory: HostInventory, gpu: Gpu, also: Sequence[str]) -> list[Reason]:
    """Functions named with ``also`` that may not be taken along: unknown, bridges, or of another group."""
    known = {item.address: item for item in inventory.functions}
    reasons = []
    for name in also:
        function = known.get(name)
        if function is None:
            reasons.append(Reason("address-unknown", f"there is no function {name}", (name,)))
        elif function.is_bridge:
            reasons.append(Reason("bridge", f"{name} is a bridge; bridges are never bound", (name,)))
        elif function.iommu_group != gpu.function.iommu_group:
            reasons.append(Reason("other-group", f"{name} is not in the IOMMU group of {gpu.address}", (name,)))
    return reasons


def _in_use(holder: Holder) -> Reason:
    """Naming a member takes it along; what the host does with it is overruled by force only."""
    reason = holder_reason(holder)
    return Reason("in-use-by-host", reason.message, reason.addresses)


def _hint(gpu: Gpu, reasons: Sequence[Reason]) -> str:
    own = {companion.address for companion in gpu.companions}
    shared = [name for reason in reasons if reason.code == "group-shared" for name in reason.addresses]
    if shared:
        named = " ".join(f"--also {name}" for name in shared if name not in own)
        used = any(holder.address in shared for holder in gpu.holders)
        force = " --force" if used or any(reason.code in FORCIBLE for reason in reasons) else ""
        return f"to take these from the host too, name each of them: {named}{force}"
    if all(reason.code in FORCIBLE for reason in reasons):
        return "if the host can do without it, repeat with --force"
    return f"'vgpumgr host doctor' says what to change for {gpu.address}"


def _overruled(gpu: Gpu, force: bool, also: Sequence[str]) -> tuple[Reason, ...]:
    """What force takes from the host, of the GPU and of the members that are named with it."""
    if not force:
        return ()
    own = [reason for reason in gpu.passthrough.reasons if reason.code in FORCIBLE]
    return (*own, *(_in_use(holder) for holder in gpu.holders if holder.address in also))


RELEASE_STOPPERS = frozenset({"in-use", "reserved"})
"""Reasons against giving a GPU back: a VM or an allocation has it."""


def release_refusal(gpu: Gpu, *, force: bool = False) -> Refusal | None:
    """A VM's or an allocation's GPU is never pulled away; force does not change that.

    One that does not work is left alone: unbinding it can hang, and rebinding does not mend it.
    """
    stoppers = RELEASE_STOPPERS if force else RELEASE_STOPPERS | {"failed"}
    reasons = tuple(reason for reason in gpu.passthrough.reasons if reason.code in stoppers)
    if not reasons:
        return None
    if reasons[0].code == "failed":
        return Refusal("failed", reasons[0].message, reasons, "power-cycle the host; --force tries it all the same")
    return Refusal(
        reasons[0].code,
        f"{gpu.address} cannot be given back: {reasons[0].message}",
        reasons,
        "stop the VM, or release the allocation, that has it",
    )
