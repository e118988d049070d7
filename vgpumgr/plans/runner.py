"""Runs operations one after the other in the background: a host has one writer at a time."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from vgpumgr.errors import ConflictError, VgpumgrError
from vgpumgr.plans.executor import execute
from vgpumgr.plans.journal import Journal
from vgpumgr.plans.lock import HostLock
from vgpumgr.plans.plan import Plan
from vgpumgr.plans.step import StepContext

Outcome = VgpumgrError | None
"""How an operation ended: ``None`` is success."""

log = logging.getLogger(__name__)


@dataclass
class _Task:
    operation_id: str
    plan: Callable[[], Plan]
    ended: Callable[[Outcome], None]
    done: threading.Event = field(default_factory=threading.Event)


class Runner:
    """A queue and one thread. The thread sleeps without wake-ups while there is nothing to do."""

    def __init__(self, context: StepContext, journal: Journal, lock: HostLock) -> None:
        self._context = context
        self._journal = journal
        self._lock = lock
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._open: dict[str, _Task] = {}
        self._guard = threading.Lock()
        self._closing = False
        self._thread: threading.Thread | None = None

    def submit(self, operation_id: str, plan: Callable[[], Plan], ended: Callable[[Outcome], None]) -> None:
        """Queue an operation. ``plan`` is called when its turn comes, under the host lock, so that it sees the
        host as it is then; ``ended`` is told the outcome before waiters wake.
        """
        task = _Task(operation_id, plan, ended)
        with self._guard:
            if self._closing:
                raise ConflictError("the service is stopping", hint="try again when it is back", code="stopping")
            self._open[operation_id] = task
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="operations", daemon=True)
                self._thread.start()
        self._tasks.put(task)

    def wait(self, operation_id: str, seconds: float | None) -> None:
        """Return when the operation ended, or after ``seconds``; at once when it is not one of ours."""
        with self._guard:
            task = self._open.get(operation_id)
        if task is not None:
            task.done.wait(seconds)

    def close(self) -> None:
        """Let what is queued end; take nothing new."""
        with self._guard:
            self._closing = True
            thread = self._thread
        self._tasks.put(None)
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._run(task)
            with self._guard:
                del self._open[task.operation_id]
            task.done.set()

    def _run(self, task: _Task) -> None:
        try:
            outcome: Outcome = None
            try:
                with self._lock.held():
                    execute(task.operation_id, _planned(task), self._context, self._journal)
            except VgpumgrError as error:
                outcome = error
            task.ended(outcome)
        except VgpumgrError:
            # The store would not take the outcome. It is in the journal, or the next start finds it open.
            log.exception("operation %s ended, but its outcome could not be recorded", task.operation_id)
        except Exception:
            # A fault of ours, maybe halfway: the next start takes the operation up. Others are not to wait for it.
            log.exception("operation %s met a fault of vgpumgr itself", task.operation_id)


def _planned(task: _Task) -> Plan:
    """The operation's plan. A fault of ours ends it here, with nothing touched."""
    try:
        return task.plan()
    except VgpumgrError:
        raise
    except Exception as fault:
        log.exception("operation %s could not be planned", task.operation_id)
        message = f"vgpumgr met a fault of its own before it changed anything: {type(fault).__name__}"
        raise VgpumgrError(message, hint="its log has the details; please report it") from fault
