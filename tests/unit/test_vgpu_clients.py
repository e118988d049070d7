"""Four clients that make and delete vGPUs at the same time: no card is ever exceeded, nothing is ever lost."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.vgpu_hosts import T4, nvidia
from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr.errors import VgpumgrError
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.model.allocation import AllocationRequest, AllocationState
from vgpumgr.service import Service

A2 = {
    "prefix": "NVIDIA A2",
    "Q": {"first": 744, "gib": [1, 2, 4, 8, 16]},
    "C": {"first": 754, "gib": [4, 8, 16]},
}
CARDS = {
    "0000:3b:00.0": nvidia("mdev-vf", A2, 16384) | {"sriov": {"total": 6, "enabled": 6, "vf_driver": "nvidia"}},
    "0000:5e:00.0": nvidia("vendor-vfio", A2, 16384, bad_vfs=["0000:5e:00.5"])
    | {"address": "0000:5e:00.0", "sriov": {"total": 6, "enabled": 6, "vf_driver": "nvidia"}},
    "0000:af:00.0": nvidia("mdev", T4, 16384) | {"address": "0000:af:00.0", "id": "10de:1eb8"},
}
PROFILES = ("A2-2Q", "A2-4Q", "A2-4C", "A2-8Q", "A2-16Q", "T4-4Q", "T4-8C")
CLIENTS = 4

wish = st.tuples(
    st.sampled_from(("allocate", "release", "make", "delete")), st.sampled_from(PROFILES), st.integers(1, 3)
)


class Clients(RuleBasedStateMachine):
    """Each rule is one moment: every client does one thing, all at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="vgpu-clients-")
        folder = Path(self._folder.name)
        (folder / "host.yaml").write_text(yaml.safe_dump({"functions": list(CARDS.values())}))
        config = Config(state_dir=folder, runtime_dir=folder, simulate=str(folder / "host.yaml"))
        self.service: Service = open_service(config, libvirt=False)
        self._clients = ThreadPoolExecutor(CLIENTS)
        self._names = 0

    @initialize()
    def start(self) -> None:
        self.service.start()

    @rule(wishes=st.lists(wish, min_size=CLIENTS, max_size=CLIENTS))
    def moment(self, wishes: list[tuple[str, str, int]]) -> None:
        ready = self._allocations(AllocationState.READY)
        by_hand = [view.vgpu.id for view in self.service.slices.vgpus() if view.allocation_id is None]
        jobs: list[Callable[[], str | None]] = []
        for action, profile, number in wishes:
            self._names += 1
            jobs.append(self._job(action, profile, number, f"vm-{self._names}", ready, by_hand))
        for operation_id in self._clients.map(_try, jobs):
            if operation_id is not None:
                self.service.wait(operation_id, None)

    def _job(
        self, action: str, profile: str, number: int, vm: str, ready: list[str], by_hand: list[str]
    ) -> Callable[[], str | None]:
        if action == "allocate":
            return lambda: self.service.allocate(AllocationRequest(vm, profile=profile, count=number)).operation_id
        if action == "make":
            return lambda: self.service.slices.create(profile, number).id
        if action == "release":
            return lambda: (
                self.service.release_allocation(ready[number % len(ready)]).operation_id if ready else None
            )
        return lambda: self.service.slices.delete(by_hand[number % len(by_hand)]).id if by_hand else None

    def _allocations(self, *states: AllocationState) -> list[str]:
        found = self.service.allocations(limit=500).items
        return [item.id for item in found if not states or item.state in states]

    @invariant()
    def no_card_is_exceeded(self) -> None:
        kernel = self.service.kernel
        assert isinstance(kernel, SimulatedKernel)
        for card in kernel.machine.cards.values():
            kinds = [card.type(type_id) for _, type_id in card.live.values()]
            sizes = [kind.size for kind in kinds if kind is not None]
            assert sum(sizes) <= card.total
            assert len(set(sizes)) <= 1
            if card.scheme != "mdev":
                parents = [parent for parent, _ in card.live.values()]
                assert len(parents) == len(set(parents))

    @invariant()
    def what_was_accepted_had_its_room(self) -> None:
        ended = self.service.operations(state="failed", limit=500).items
        assert [item.error for item in ended if item.error and item.error["code"] == "no-capacity"] == []

    @invariant()
    def nothing_is_promised_when_nothing_runs(self) -> None:
        promises = self.service._at_desk.promises()
        ready = {claim.allocation_id for claim in self.service._at_desk.store.allocations.claims()}
        assert (promises.pending_vgpus, ready) == ({}, set(self._allocations(AllocationState.READY)))

    @invariant()
    def what_lives_is_what_is_remembered(self) -> None:
        views = self.service.slices.vgpus()
        assert [view for view in views if not view.live or not view.ours] == []

    @invariant()
    def ready_allocations_have_their_vgpus_and_others_have_none(self) -> None:
        having: dict[str, set[str]] = {}
        for view in self.service.slices.vgpus():
            if view.allocation_id is not None:
                having.setdefault(view.allocation_id, set()).add(view.vgpu.id)
        wanted = {
            item.id: {device.handle for device in item.devices}
            for item in self.service.allocations(limit=500).items
            if item.state is AllocationState.READY
        }
        assert having == wanted

    def teardown(self) -> None:
        for allocation_id in self._allocations(AllocationState.READY):
            released = self.service.release_allocation(allocation_id)
            self.service.wait(str(released.operation_id), None)
        for view in self.service.slices.vgpus():
            self.service.wait(self.service.slices.delete(view.vgpu.id).id, None)
        most = Counter[str]()
        for offer in self.service.profiles():
            most[offer.profile.name] += offer.creatable
        self._clients.shutdown()
        self.service.close()
        self._folder.cleanup()
        assert (most["NVIDIA A2-4Q"], most["NVIDIA A2-16Q"], most["GRID T4-8C"]) == (8, 2, 2)


def _try(job: Callable[[], str | None]) -> str | None:
    """A refusal is an answer like another; anything else is a fault."""
    try:
        return job()
    except VgpumgrError as error:
        assert error.http_status < 500, error
        return None


Clients.TestCase.settings = settings(
    max_examples=6, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
)
TestClients = Clients.TestCase
