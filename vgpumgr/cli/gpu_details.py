"""Everything readable about one GPU, for a person."""

from __future__ import annotations

from vgpumgr.cli.backend import JsonObject
from vgpumgr.cli.gpu_slicing import modes_text
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import reason_text
from vgpumgr.cli.profile import profile_table
from vgpumgr.cli.table import Column, facts, table


def gpu_details(gpu: JsonObject, invocation: Invocation) -> str:
    """Facts first, then one section for each thing it has."""
    sections = [_identity(gpu), _passthrough(gpu, invocation), _companions(gpu, invocation)]
    sections += [_holders(gpu), _vgpu(gpu, invocation), _topology(gpu), _health(gpu)]
    return "\n\n".join(section for section in sections if section)


def _identity(gpu: JsonObject) -> str:
    link = gpu.get("link") or {}
    return f"{gpu['address']}  {gpu['name']}\n" + facts(
        [
            ("kind", gpu["kind"]),
            ("id", f"{gpu['vendor_id']}:{gpu['device_id']}" if gpu["vendor_id"] else None),
            ("subsystem", gpu.get("subsystem_id")),
            ("class", gpu["class_id"]),
            ("driver", gpu["driver"] or "none"),
            ("driver override", gpu.get("driver_override")),
            ("IOMMU group", gpu["iommu_group"]),
            ("NUMA node", gpu["numa_node"]),
            ("boot display", gpu["boot_display"]),
            ("power state", gpu.get("power_state")),
            ("reset methods", " ".join(gpu.get("reset_methods") or []) or None),
            ("link", _lanes(link.get("width"), link.get("speed_gts"))),
            ("link at most", _lanes(link.get("max_width"), link.get("max_speed_gts"))),
            ("memory regions", ", ".join(_bar(bar) for bar in gpu.get("bars") or [])),
        ],
        indent="  ",
    )


def _lanes(width: int | None, speed: float | None) -> str | None:
    if width is None and speed is None:
        return None
    return f"x{'?' if width is None else width} at {'?' if speed is None else speed} GT/s"


def _bar(bar: JsonObject) -> str:
    size = int(bar["size"])
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size //= 1024
    return f"{bar['index']}: {size} {unit}"


def _passthrough(gpu: JsonObject, invocation: Invocation) -> str:
    state = gpu["passthrough"]
    verdict = "can be given to a VM" if state["assignable"] else "cannot be given to a VM"
    lines = [f"Passthrough: {state['state']}, {verdict}"]
    lines += [f"  - {reason_text(reason)} [{reason['code']}]" for reason in state["reasons"]]
    return "\n".join(lines)


def _companions(gpu: JsonObject, invocation: Invocation) -> str:
    if not gpu["companions"]:
        return ""
    columns = (Column("COMPANION"), Column("CLASS"), Column("DRIVER"), Column("REQUIRED"), Column("REASON"))
    keys = ("address", "class_id", "driver", "required", "reason")
    return table(columns, [[item[key] for key in keys] for item in gpu["companions"]], invocation)


def _holders(gpu: JsonObject) -> str:
    if gpu.get("holders"):
        lines = ["In use by:"]
        for item in gpu["holders"]:
            pid = f" (pid {item['pid']})" if item["pid"] else ""
            lines.append(f"  - {item['kind']} {item['name']}{pid} on {item['address']} {item['detail']}".rstrip())
        return "\n".join(lines)
    return "" if gpu.get("holders_known") else "In use by: unknown (open handles can be looked at only by root)"


def _vgpu(gpu: JsonObject, invocation: Invocation) -> str:
    lines = []
    if gpu["sriov"]:
        sriov = gpu["sriov"]
        lines.append(f"SR-IOV: {sriov['num_vfs']} of {sriov['total_vfs']} virtual functions enabled")
    vgpu = gpu["vgpu"]
    if vgpu["capable"] or vgpu["reasons"]:
        lines.append(
            f"vGPU: {'capable' if vgpu['capable'] else 'not capable'}, backend {vgpu['backend'] or 'none'}"
        )
        lines += [f"  - {reason_text(reason)} [{reason['code']}]" for reason in vgpu["reasons"]]
    if vgpu.get("modes"):
        lines.append(modes_text(vgpu["modes"], invocation))
    if vgpu["profiles"]:
        lines.append(profile_table(vgpu["profiles"], invocation))
    if vgpu["instances"]:
        columns = (Column("VGPU"), Column("PROFILE"), Column("PARENT"), Column("OWNER"))
        rows = [
            (item["id"], item["profile"] or item["profile_id"], item["parent"], item["owner"])
            for item in vgpu["instances"]
        ]
        lines.append(table(columns, rows, invocation))
    return "\n".join(lines)


def _topology(gpu: JsonObject) -> str:
    topology = gpu.get("topology")
    if not topology:
        return ""
    body = facts(
        [
            ("root port", topology["root_port"]),
            ("switches", ", ".join(topology["switches"])),
            ("NICs on the same switch", ", ".join(topology["nearby_nics"])),
            ("isolated by ACS", topology["acs"]),
        ],
        indent="  ",
    )
    return f"Topology:\n{body}" if body else ""


def _health(gpu: JsonObject) -> str:
    health = gpu["health"]
    return "\n".join(
        [f"Health: {health['status']}", *(f"  - {item['message']} [{item['code']}]" for item in health["reasons"])]
    )
