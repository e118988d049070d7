"""The desk: the one place where the store, the worker and the host's plans come together.

Everything that changes a host goes over it as an operation: written down first, carried out by the one
worker under the host lock, and planned anew when its turn comes, on the host as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from vgpumgr.allocations.look import Promises
from vgpumgr.allocations.promises import promised
from vgpumgr.errors import ConflictError, FailedError, VgpumgrError
from vgpumgr.model.operation import Operation
from vgpumgr.model.records import Reservation
from vgpumgr.plans.executor import resume
from vgpumgr.plans.lock import HostLock
from vgpumgr.plans.plan import Plan
from vgpumgr.plans.runner import Outcome, Runner
from vgpumgr.plans.step import StepContext
from vgpumgr.store.store import Store

ADMISSION_SECONDS = 20.0
"""How long a request waits for the one before it to be placed."""


class Desk:
    """Operations of one host."""

    def __init__(self, store: Store, context: StepContext, lock: HostLock, new_id: Callable[[], str]) -> None:
        self.store = store
        self.context = context
        self.new_id = new_id
        self._lock = lock
        self._runner = Runner(context, store.operations, lock)
        self._admission = Lock()

    def promises(self, but_for: str | None = None) -> Promises:
        """What the store has promised to all ``but_for`` one allocation or operation, for the inventory to show."""
        return promised(self.store, but_for)

    @contextmanager
    def admission(self) -> Iterator[None]:
        """To be held from the look that says that something fits until its reservation is in the store.

        ConflictError ``host-busy`` when an earlier request does not come to its end: a look waits for libvirt and
        for NVIDIA's driver, and what hangs there must not gather all others behind it.
        """
        if not self._admission.acquire(timeout=ADMISSION_SECONDS):
            raise ConflictError(
                f"an earlier request has been looking at this host for more than {ADMISSION_SECONDS:g} s",
                hint="libvirt or a driver does not answer; ask again when it does",
                code="host-busy",
            )
        try:
            yield
        finally:
            self._admission.release()

    # -- operations -----------------------------------------------------------------------------------
    def submit(
        self,
        kind: str,
        subject: str,
        plan: Callable[[], Plan],
        ended: Callable[[Outcome], None] = lambda outcome: None,
        *,
        operation_id: str | None = None,
        reserved: Sequence[Reservation] = (),
    ) -> Operation:
        """Write a new operation down, with what it reserves, and queue it; ``ended`` is told how it ended."""
        operation = self.store.operations.create(operation_id or self.new_id(), kind, subject, reserved=reserved)
        self.enqueue(operation.id, plan, ended)
        return operation

    def enqueue(self, operation_id: str, plan: Callable[[], Plan], ended: Callable[[Outcome], None]) -> None:
        """Queue an operation that is written down already; ``ended`` is told how it ended."""

        def finish(outcome: Outcome) -> None:
            if outcome is not None:
                # A refusal never reached the journal; whatever did is final there and stays as it is.
                self.store.operations.fail(operation_id, outcome.to_json())
            ended(outcome)

        try:
            self._runner.submit(operation_id, plan, finish)
        except ConflictError as error:
            self.store.operations.fail(operation_id, error.to_json())
            raise

    def wait(self, operation_id: str, seconds: float | None) -> Operation:
        """The operation once it is final, or as it is after ``seconds``."""
        self._runner.wait(operation_id, seconds)
        return self.store.operations.get(operation_id)

    def recover(self) -> Sequence[Operation]:
        """Finish or take back what a crash cut short. Returns those operations as they ended."""
        recovered = []
        with self._lock.held():
            for operation in self.store.operations.unfinished():
                try:
                    if operation.steps:
                        resume(operation, self.context, self.store.operations)
                    else:
                        self.store.operations.fail(operation.id, _interrupted().to_json())
                except FailedError as error:
                    self.store.operations.fail(operation.id, error.to_json())
                recovered.append(self.store.operations.get(operation.id))
        return recovered

    def close(self) -> None:
        """Let running work end."""
        self._runner.close()
        self.store.close()


def _interrupted() -> VgpumgrError:
    return FailedError(
        "the service stopped before this operation began", hint="ask for it again", code="interrupted"
    )
