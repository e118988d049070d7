"""Hosts, domains and requests for the tests of the domain XML."""

from __future__ import annotations

from vgpumgr.address import parse
from vgpumgr.domain.document import parse_domain
from vgpumgr.domain.preflight import check
from vgpumgr.model.domain import CheckResult, DomainRequest, GuestDevice, GuestShape
from vgpumgr.model.host import (
    Blocker,
    Companion,
    Gpu,
    GpuKind,
    Health,
    HealthStatus,
    HostInventory,
    IommuGroup,
    IommuState,
    Passthrough,
    PassthroughState,
    Sriov,
    Topology,
)
from vgpumgr.model.pci import VFIO_STUB_DRIVERS, PciFunction
from vgpumgr.model.vgpu import Backend, Vgpu, VgpuState

MDEV = "c2177883-f1bb-47f0-914d-32a22e3a8804"
OTHER_MDEV = "4a8cf2a1-26bf-4b3e-9d0f-86d8bd4f2a53"
DOMAIN_UUID = "9e6b3a37-6ff4-4d3d-8f0f-0d7a3b1c2e44"
OWN = "vm-17"


def hostdev(address: str, managed: str = "no", **attributes: str) -> str:
    """A PCI ``<hostdev>`` as libvirt prints it."""
    pci = parse(address)
    extra = "".join(f" {key}='{value}'" for key, value in attributes.items())
    return (
        f"<hostdev mode='subsystem' type='pci' managed='{managed}'{extra}><source>"
        f"<address domain='0x{pci.domain:04x}' bus='0x{pci.bus:02x}' slot='0x{pci.slot:02x}' "
        f"function='0x{pci.function:x}'/></source></hostdev>"
    )


def mdev(uuid: str = MDEV, attributes: str = "model='vfio-pci'") -> str:
    """An mdev ``<hostdev>``."""
    return f"<hostdev mode='subsystem' type='mdev' {attributes}><source><address uuid='{uuid}'/></source></hostdev>"


def domain(devices: str, before: str = "", name: str = OWN) -> str:
    """A domain around devices."""
    return (
        f"<domain type='kvm'><name>{name}</name><memory unit='GiB'>8</memory>{before}"
        f"<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{devices}</devices></domain>"
    )


def checked(
    xml: str,
    host: HostInventory | None = None,
    owners: dict[str, str] | None = None,
    libvirt: tuple[int, int, int] | None = None,
) -> CheckResult:
    """The preflight of some XML."""
    return check(parse_domain(xml.encode()), host, owners, libvirt=libvirt)


def codes(result: CheckResult, severity: str = "error") -> list[str]:
    """The codes of a severity, in order."""
    return [problem.code for problem in result.problems if problem.severity == severity]


def function(
    address: str, driver: str | None = "vfio-pci", group: int | None = 6, class_id: str = "030000", **more: str
) -> PciFunction:
    """A PCI function; ``more`` holds ``physfn``."""
    vfio = driver is not None and "vfio" in driver
    return PciFunction(address, class_id, "10de", "2204", driver, group, 0, physfn=more.get("physfn"), vfio=vfio)


def gpu(primary: PciFunction, *companions: PciFunction) -> Gpu:
    """A GPU with its companions, with nothing against it."""
    return Gpu(
        function=primary,
        kind=GpuKind.GPU,
        name="test GPU",
        boot_display=False,
        companions=tuple(
            Companion(item.address, item.class_id, item.driver, True, "same slot") for item in companions
        ),
        passthrough=Passthrough(True, PassthroughState.READY),
        health=Health(HealthStatus.OK),
        topology=Topology(None),
    )


def inventory(
    *functions: PciFunction, gpus: tuple[Gpu, ...] = (), others: dict[int, str] | None = None
) -> HostInventory:
    """A host of these functions. ``others`` are members of groups that are no PCI functions."""
    numbers = {item.iommu_group for item in functions if item.iommu_group is not None} | set(others or {})
    groups = tuple(_group(number, functions, (others or {}).get(number)) for number in sorted(numbers))
    return HostInventory("host", "6.1", IommuState(bool(groups)), functions, groups, gpus)


def _group(number: int, functions: tuple[PciFunction, ...], other: str | None) -> IommuGroup:
    members = [item for item in functions if item.iommu_group == number]
    blockers = tuple(
        Blocker(item.address, item.driver, f"bound to {item.driver}")
        for item in members
        if not (item.is_bridge or item.vfio or item.driver is None or item.driver in VFIO_STUB_DRIVERS)
    )
    return IommuGroup(number, tuple(item.address for item in members), blockers, (other,) if other else ())


def vendor_card() -> HostInventory:
    """A card whose driver makes vGPUs on its VFs: 26:00.4 has none, 26:00.5 has one."""
    parent = function("0000:26:00.0", "nvidia", 60, "030200")
    free = function("0000:26:00.4", "nvidia", 61, "030200", physfn=parent.address)
    typed = function("0000:26:00.5", "nvidia", 62, "030200", physfn=parent.address)
    card = gpu(parent)._replace(
        sriov=Sriov(32, 2, (free.address, typed.address)),
        vgpu=VgpuState(
            capable=True,
            backend=Backend.VENDOR_VFIO,
            instances=(Vgpu(typed.address, "1148", "NVIDIA L40S-2Q", parent.address),),
        ),
    )
    return inventory(parent, free, typed, gpus=(card,))


def request(*devices: GuestDevice, shape: GuestShape | None = None) -> DomainRequest:
    """A request for these devices."""
    return DomainRequest(OWN, DOMAIN_UUID, "allocation-1", shape or GuestShape(), devices)
