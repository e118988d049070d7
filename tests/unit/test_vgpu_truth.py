"""Whatever others made on a card, the answer is what its driver still takes; a promise is never given twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.unit.test_vgpu_rows import A2, A16, L40S, M60, Prepare, a100, as_it_is, cut, in_mig, mixed
from tests.unit.vgpu_hosts import A40, CARD, T4, blackwell, gvt, h100, host, nvidia
from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.card import SimType
from vgpumgr.telemetry.nvml import open_nvml
from vgpumgr.vgpu.nvml_port import NvmlPort
from vgpumgr.vgpu.observe import observe_vgpus

GIB = 1024
CARDS = [
    pytest.param(nvidia("mdev", T4, 16 * GIB), as_it_is, id="T4"),
    pytest.param(nvidia("mdev", M60, 8 * GIB), as_it_is, id="M60"),
    pytest.param(nvidia("mdev-vf", A2, 16 * GIB), cut, id="A2"),
    pytest.param(nvidia("vendor-vfio", A16, 16 * GIB), cut, id="A16"),
    pytest.param(nvidia("vendor-vfio", A40, bad_vfs=["0000:3b:00.4"]), cut, id="A40-bad-VF"),
    pytest.param(nvidia("mdev-vf", A40, mixed=True), mixed, id="A40-mixed"),
    pytest.param(nvidia("vendor-vfio", L40S, mixed=True), mixed, id="L40S-mixed"),
    pytest.param(a100(), cut, id="A100"),
    pytest.param(a100(), in_mig("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"), id="A100-mig"),
    pytest.param(h100(), mixed, id="H100-mixed"),
    pytest.param(h100("mdev-vf"), in_mig("1g.20gb", "1g.20gb", "2g.20gb", "1g.10gb"), id="H100-mig"),
    pytest.param(blackwell(), in_mig("1g.24gb", "1g.24gb", "2g.48gb"), id="time-sliced-mig"),
    pytest.param(gvt(), as_it_is, id="GVT-g"),
]


class Others:
    """Somebody else on the host: makes and deletes vGPUs past us, at random."""

    def __init__(self, kernel: SimulatedKernel, chance: random.Random) -> None:
        self._kernel = kernel
        self._chance = chance
        (self.card,) = kernel.machine.cards.values()

    @property
    def on_card(self) -> bool:
        return self.card.scheme in ("mdev", "gvt")

    def free(self) -> list[str]:
        taken = {parent for parent, _ in self.card.live.values()}
        functions = self._kernel.machine.functions.values()
        vfs = [item.address for item in functions if item.physfn == CARD and item.address not in taken]
        return [CARD] if self.on_card else vfs

    def truth(self) -> dict[str, int]:
        """Type id → how many more; a VF that refuses counts until somebody tries it."""
        most = self.card.total if self.on_card else len(self.free())
        return {item.id: min(self.card.left(item), most) for item in self.card.types}

    def make(self) -> SimType | None:
        fitting = [item for item in self.card.types if self.card.left(item)]
        parents = [parent for parent in self.free() if parent not in self.card.bad_vfs]
        if not fitting or not parents:
            return None
        made, parent = self._chance.choice(fitting), self._chance.choice(parents)
        if self.card.scheme == "vendor-vfio":
            self._kernel.write(f"/sys/bus/pci/devices/{parent}/nvidia/current_vgpu_type", made.id)
        else:
            uuid = UUID(int=self._chance.getrandbits(128), version=4)
            self._kernel.write(f"/sys/class/mdev_bus/{parent}/mdev_supported_types/{made.id}/create", str(uuid))
        return made

    def delete(self, vgpu: str) -> None:
        if self.card.scheme == "vendor-vfio":
            self._kernel.write(f"/sys/bus/pci/devices/{vgpu}/nvidia/current_vgpu_type", "0")
        else:
            self._kernel.write(f"/sys/bus/mdev/devices/{vgpu}/remove", "1")

    def live_a_while(self) -> None:
        for _ in range(self._chance.randrange(12)):
            if self.card.live and self._chance.random() < 0.3:
                self.delete(self._chance.choice(list(self.card.live)))
            else:
                self.make()


def answer(kernel: SimulatedKernel, nvml: NvmlPort, pending: dict[str, int] | None = None) -> dict[str, int]:
    promised = {CARD: pending or {}}
    (gpu,) = observe_vgpus(kernel, take_inventory(kernel), promised, nvml=nvml).gpus
    return {profile.id: profile.creatable for profile in gpu.vgpu.profiles}


@pytest.fixture(params=range(4))
def lived(request: pytest.FixtureRequest) -> Callable[[dict[str, Any], Prepare], tuple[Others, SimulatedKernel]]:
    def prepare(entry: dict[str, Any], prepare: Prepare) -> tuple[Others, SimulatedKernel]:
        kernel = host(entry)
        prepare(kernel, open_nvml(kernel))
        others = Others(kernel, random.Random(request.param))
        others.live_a_while()
        return others, kernel

    return prepare


Lived = Callable[[dict[str, Any], Prepare], tuple[Others, SimulatedKernel]]


@pytest.mark.parametrize(("entry", "prepare"), CARDS)
def test_the_answer_is_what_the_driver_would_take(entry: dict[str, Any], prepare: Prepare, lived: Lived) -> None:
    others, kernel = lived(entry, prepare)
    assert answer(kernel, open_nvml(kernel)) == others.truth()


@pytest.mark.parametrize(("entry", "prepare"), CARDS)
def test_a_promise_leaves_no_more_than_what_is_left_once_it_is_kept(
    entry: dict[str, Any], prepare: Prepare, lived: Lived
) -> None:
    others, kernel = lived(entry, prepare)
    before = set(others.card.live)
    promised = Counter(made.id for made in (others.make(), others.make()) if made is not None)
    left = others.truth()
    for vgpu in set(others.card.live) - before:
        others.delete(vgpu)
    found = answer(kernel, open_nvml(kernel), promised)
    assert {key: count for key, count in found.items() if count > left[key]} == {}
