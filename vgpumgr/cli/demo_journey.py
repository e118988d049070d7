"""The demo's journey: see, bind, allocate, define, start, stop, release; then the proof that nothing is left."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import click

from vgpumgr.cli.alloc import allocation_table
from vgpumgr.cli.changes import FINAL
from vgpumgr.cli.client import Client
from vgpumgr.cli.demo_service import DemoService, program_name
from vgpumgr.cli.gpu import gpu_table
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.op import STEP_COLUMNS
from vgpumgr.cli.profile import profile_table
from vgpumgr.cli.table import table
from vgpumgr.cli.vm import vm_table
from vgpumgr.errors import FailedError

JsonObject = dict[str, Any]
WAIT_SECONDS = 30
SHOWN_PROFILES = 6


class Journey:
    """One walk through the REST API. Raises FailedError at the first answer that is not as it should be."""

    def __init__(self, service: DemoService, invocation: Invocation) -> None:
        self._client = Client(service.socket)
        self._service = service
        self._invocation = invocation
        self._number = 0

    def run(self) -> None:
        """The whole of it."""
        self._say(
            f"A service runs on the simulated host {self._service.host}. Lines with $ are requests you could make."
        )
        self._say(f"S={self._service.socket}")
        before = self._host()
        gpu = self._see()
        self._bind_and_give_back(gpu)
        self._life_of_a_vm("trainer-1", {"gpu": gpu}, "linux-compute")
        profile = self._see_profiles()
        if profile:
            self._life_of_a_vm("desk-17", {"profile": profile}, "windows11-desktop")
        self._prove_clean(before)
        self._client.close()

    # -- the stations ---------------------------------------------------------------------------------
    def _see(self) -> str:
        self._title("See: which GPUs are there, who has them, and why some cannot be given away")
        gpus = self._items("/v1/gpus")
        self._show(gpu_table(gpus, self._invocation))
        free = [item["address"] for item in gpus if item["passthrough"]["assignable"]]
        self._check(bool(free), "no GPU can be given to a VM")
        return str(free[0])

    def _bind_and_give_back(self, gpu: str) -> None:
        self._title(f"Bind: give {gpu} to VFIO; first the plan, then the deed, then back")
        plan = self._request("POST", f"/v1/gpus/{gpu}/bind", {}, {"dry_run": "true"})
        self._show("\n".join(f"would {step['describe']}" for step in plan["steps"]))
        self._operation(self._request("POST", f"/v1/gpus/{gpu}/bind", {}))
        bound = self._request("GET", f"/v1/gpus/{gpu}")
        self._show(f"{gpu}: driver {bound['driver']}, state {bound['passthrough']['state']}")
        self._check(bound["driver"] == "vfio-pci", f"{gpu} is not on vfio-pci")
        self._operation(self._request("POST", f"/v1/gpus/{gpu}/release", {}))
        back = self._request("GET", f"/v1/gpus/{gpu}")
        self._show(f"{gpu}: driver {back['driver']}, state {back['passthrough']['state']}")
        self._check(back["passthrough"]["state"] == "host", f"{gpu} did not go back to its host driver")

    def _see_profiles(self) -> str | None:
        self._title("Slice: which vGPU profiles are there, and how many more of each fit")
        profiles = self._items("/v1/profiles")
        creatable = [item for item in profiles if item["creatable"]]
        self._show(profile_table(creatable[:SHOWN_PROFILES], self._invocation) or "none on this host")
        if len(creatable) > SHOWN_PROFILES:
            self._show(f"and {len(creatable) - SHOWN_PROFILES} more profiles")
        desktops = [item["name"] for item in creatable if item["name"].endswith("-8Q")]
        return next(iter([*desktops, *(item["name"] for item in creatable)]), None)

    def _life_of_a_vm(self, name: str, wanted: JsonObject, template: str) -> None:
        what = wanted.get("profile") or f"the whole GPU {wanted.get('gpu')}"
        self._title(f"Allocate: {what} for the VM {name}")
        allocation = self._allocate(name, wanted)
        self._domain_xml(allocation["id"], template)

        self._title(f"Run: define {name} in libvirt, start it, stop it")
        self._request("POST", "/v1/vms", {"allocation_id": allocation["id"], "template": template})
        started = self._request("POST", f"/v1/vms/{name}/start", {})
        self._check(started["state"] == "running", f"{name} does not run")
        self._show(vm_table(self._items("/v1/vms"), self._invocation))
        attached = self._request("GET", f"/v1/allocations/{allocation['id']}")
        self._check(attached["state"] == "attached", f"the allocation is {attached['state']}, not attached")
        stopped = self._request("POST", f"/v1/vms/{name}/stop", {"force": True})
        self._check(stopped["state"] == "shut-off", f"{name} is {stopped['state']}, not shut off")
        self._request("DELETE", f"/v1/vms/{name}")

        self._title(f"Release: take back what {name} had")
        released = self._request("DELETE", f"/v1/allocations/{allocation['id']}")
        self._finish(released)
        released = self._request("GET", f"/v1/allocations/{allocation['id']}")
        self._check(released["state"] == "released", f"the allocation is {released['state']}, not released")
        self._show(allocation_table([released], self._invocation))

    def _allocate(self, name: str, wanted: JsonObject) -> JsonObject:
        body = {"vm": name, **wanted}
        placement = self._request("POST", "/v1/candidates", body)
        best = placement["candidates"][0]
        self._show(
            f"{len(placement['candidates'])} candidates; the best: {', '.join(best['notes']) or best['score']}"
        )
        allocation = self._request("POST", "/v1/allocations", body)
        self._finish(allocation)
        ready = self._request("GET", f"/v1/allocations/{allocation['id']}")
        self._show(allocation_table([ready], self._invocation))
        self._check(ready["state"] == "ready", f"the allocation is {ready['state']}, not ready")
        return ready

    def _domain_xml(self, allocation_id: str, template: str) -> None:
        path = f"/v1/allocations/{allocation_id}/xml"
        self._curl("GET", path, None, {"template": template})
        content, _ = self._client.raw("GET", path, {"template": template}, headers={"Accept": "application/xml"})
        devices = _hostdevs(content.decode())
        self._check(bool(devices), "the domain XML holds no host device")
        self._show("\n".join(devices))

    def _prove_clean(self, before: JsonObject) -> None:
        self._title("Prove: the host is as it was")
        after = self._host()
        for part in before:
            self._check(after[part] == before[part], f"{part} are not as they were before the demo")
            self._show(f"{part}: as before ({len(before[part])})")
        active = [item for item in self._items("/v1/allocations") if item["state"] not in ("released", "failed")]
        self._check(not active, f"{len(active)} allocations are left")
        unfinished = [item for item in self._items("/v1/operations") if item["state"] != "succeeded"]
        self._check(not unfinished, f"{len(unfinished)} operations did not succeed")
        self._show("allocations: none left; operations: all succeeded")
        self._say(
            "\nAll is as it should be. To go on: 'make serve' leaves such a service running and prints the\n"
            f"address of its API documentation; '{program_name()} gpu list' looks at this machine."
        )

    def _host(self) -> JsonObject:
        """What must be the same before and after: everything the kernel and libvirt show."""
        inventory = self._client.get("/v1/host/inventory")
        return {
            "GPUs": inventory["gpus"],
            "IOMMU groups": inventory["iommu_groups"],
            "warnings": inventory["warnings"],
            "VMs": list(self._client.pages("/v1/vms")),
        }

    # -- requests -------------------------------------------------------------------------------------
    def _items(self, path: str) -> list[JsonObject]:
        self._curl("GET", path, None, {})
        return list(self._client.pages(path))

    def _request(
        self, method: str, path: str, body: JsonObject | None = None, query: dict[str, str] | None = None
    ) -> JsonObject:
        self._curl(method, path, body, query or {})
        if method == "POST":
            answer = self._client.post(path, body or {}, query)
        elif method == "DELETE":
            answer = self._client.delete(path, query)
        else:
            answer = self._client.get(path, query)
        return answer or {}

    def _finish(self, allocation: JsonObject) -> None:
        if allocation.get("operation_id"):
            self._operation({"id": allocation["operation_id"], "state": "running", "steps": []})

    def _operation(self, operation: JsonObject) -> None:
        """Wait for an operation, and show its steps."""
        if operation["state"] not in FINAL:
            operation = self._request("GET", f"/v1/operations/{operation['id']}", query={"wait": str(WAIT_SECONDS)})
        rows = [(step["state"], step["describe"]) for step in operation["steps"]]
        self._show(table(STEP_COLUMNS, rows, self._invocation, empty="nothing had to be done"))
        error = operation.get("error") or {}
        self._check(operation["state"] == "succeeded", f"operation {operation['state']}: {error.get('message')}")

    def _curl(self, method: str, path: str, body: JsonObject | None, query: dict[str, str]) -> None:
        address = f"http://localhost{quote(path, safe='/:')}" + (f"?{urlencode(query)}" if query else "")
        parts = ['curl -s --unix-socket "$S"', *([f"-X {method}"] if method != "GET" else []), f"'{address}'"]
        if body is not None:
            parts += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(body)}'"]
        self._show(
            click.style("$ " + " ".join(parts), dim=True) if self._invocation.color else "$ " + " ".join(parts)
        )

    # -- telling --------------------------------------------------------------------------------------
    def _title(self, text: str) -> None:
        self._number += 1
        title = f"{self._number}. {text}"
        self._say("\n" + (click.style(title, bold=True) if self._invocation.color else title))

    def _show(self, text: str) -> None:
        self._say("\n".join(f"   {line}" for line in text.splitlines()))

    def _say(self, text: str) -> None:
        click.echo(text, color=self._invocation.color)

    def _check(self, good: bool, otherwise: str) -> None:
        if not good:
            raise FailedError(f"the demo went wrong: {otherwise}", code="demo-failed")


def _hostdevs(xml: str) -> list[str]:
    """The lines of the domain XML that hand devices to the guest."""
    lines, inside = [], False
    for line in xml.splitlines():
        inside = inside or "<hostdev" in line
        if inside:
            lines.append(line)
        inside = inside and "</hostdev>" not in line
    return lines
