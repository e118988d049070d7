"""The verbs of ``vgpumgr gpu`` that cut a card: ``slice`` and ``mode``."""

from __future__ import annotations

from typing import Any

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject, Needs, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.changes import PLAN, YES, carry_out, confirm, show_plan
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit
from vgpumgr.cli.table import facts
from vgpumgr.errors import EXIT_OK, UsageError

SWITCH = click.Choice(("on", "off"))
SCHEDULERS = ("best-effort", "equal-share", "fixed-share")


def add_slicing_verbs(gpu: NounGroup) -> None:
    """Give the noun its verbs."""

    @gpu.verb(
        "slice",
        examples="""
            vgpumgr gpu slice 3b:00.0 --plan
            vgpumgr gpu slice 3b:00.0
            vgpumgr gpu slice 4b:00.0 --vfs 8
            vgpumgr gpu slice 4b:00.0 --vfs 0
        """,
    )
    @click.argument("address", shell_complete=complete.gpus)
    @click.option(
        "--vfs", type=click.IntRange(min=0), help="How many virtual functions; all by default, 0 for none."
    )
    @PLAN
    @YES
    @pass_invocation
    def slice_gpu(invocation: Invocation, address: str, vfs: int | None, plan: bool, yes: bool) -> int:
        """Cut a GPU into virtual functions, now and after each reboot. vGPUs live on them."""
        request = {"vfs": vfs}
        with open_backend(invocation, Needs.READING if plan else Needs.SERVICE) as backend:
            if plan:
                return show_plan(invocation, backend.plan_slice(address, request))
            if vfs == 0:
                confirm(f"take all virtual functions from {address}", yes)
            carry_out(invocation, backend, backend.slice_gpu(address, request))
        return EXIT_OK

    @gpu.verb(
        "mode",
        examples="""
            vgpumgr gpu mode 3b:00.0
            vgpumgr gpu mode 3b:00.0 --mig on --plan
            vgpumgr gpu mode 3b:00.0 --layout 3g.40gb,2g.20gb,1g.10gb
            vgpumgr gpu mode 3b:00.0 --mixed-size on --scheduler equal-share
            vgpumgr gpu mode 3b:00.0 --scheduler fixed-share --at-load --plan
        """,
    )
    @click.argument("address", shell_complete=complete.gpus)
    @click.option("--mig", type=SWITCH, help="Multi-Instance GPU mode.")
    @click.option(
        "--layout", metavar="SHAPES", help="The GPU instances to hold in MIG mode, with commas; '' for none."
    )
    @click.option("--mixed-size", type=SWITCH, help="vGPUs of several sizes on the card.")
    @click.option("--scheduler", type=click.Choice(SCHEDULERS), help="Who runs when.")
    @click.option(
        "--at-load",
        is_flag=True,
        help="Set the scheduler as a parameter of the driver, for its next load; so it is where NVML cannot.",
    )
    @click.option("--ecc", type=SWITCH, help="Error correction, from the next reset on.")
    @PLAN
    @YES
    @pass_invocation
    def mode(
        invocation: Invocation, address: str, plan: bool, yes: bool, at_load: bool, **wanted: str | None
    ) -> int:
        """Show the modes of an NVIDIA GPU, or change those that are named."""
        request = modes_from(wanted)
        if at_load:
            if "scheduler" not in request:
                raise UsageError("--at-load says how the scheduler is set", hint="add --scheduler")
            request["scheduler_at_load"] = True
        with open_backend(invocation, Needs.READING if plan or not request else Needs.SERVICE) as backend:
            if not request:
                emit(invocation, backend.modes(address), modes_text)
            elif plan:
                return show_plan(invocation, backend.plan_modes(address, request))
            else:
                if "mig" in request or "layout" in request:
                    confirm(f"change how {address} is cut (GPU instances that are not wanted go)", yes)
                carry_out(invocation, backend, backend.set_modes(address, request))
        return EXIT_OK


def modes_from(wanted: dict[str, str | None]) -> dict[str, Any]:
    """The modes that were named, as the API takes them."""
    request: dict[str, Any] = {}
    for key in ("mig", "mixed_size", "ecc"):
        if wanted.get(key) is not None:
            request[key] = wanted[key] == "on"
    layout = wanted.get("layout")
    if layout is not None:
        request["layout"] = [shape.strip() for shape in layout.split(",") if shape.strip()]
    if wanted.get("scheduler") is not None:
        request["scheduler"] = wanted["scheduler"]
    return request


def modes_text(modes: JsonObject, invocation: Invocation) -> str:
    """One mode a line; what the card has not, or nobody tells, is left out."""
    instances = ", ".join(f"{item['shape']} at slice {item['start']}" for item in modes["gpu_instances"])
    return facts(
        [
            ("GPU", modes["address"]),
            ("told by", modes["source"]),
            ("MIG", _switch(modes["mig"], modes["mig_pending"])),
            ("GPU instances", instances),
            ("mixed sizes", _switch(modes["mixed_size"])),
            ("scheduler", _scheduler(modes)),
            ("schedulers", ", ".join(modes["schedulers"])),
            ("frame-rate limiter", {False: "does not work under this scheduler"}.get(modes["frame_rate_limiter"])),
            ("ECC", _switch(modes["ecc"], modes["ecc_pending"])),
        ]
    )


def _scheduler(modes: JsonObject) -> str | None:
    """The policy that runs, and the one that is configured, where they differ."""
    now, configured = modes["scheduler"], modes["scheduler_configured"]
    if configured in (None, now):
        return str(now) if now else None
    return f"{now or 'unknown'} ({configured} when the driver is loaded again, or after a reboot)"


def _switch(now: bool | None, pending: bool | None = None) -> str | None:
    if now is None:
        return None
    text = "on" if now else "off"
    if pending is not None and pending is not now:
        text += f" ({'on' if pending else 'off'} after the next reset)"
    return text
