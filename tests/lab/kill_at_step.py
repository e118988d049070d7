"""Runs in the lab: kills the service without warning at a given step of the next operation.

``python3 kill_at_step.py POSITION`` waits until the journal says that the step at POSITION (from 0) of an operation
newer than all that are there has begun, then kills the whole control group at once, as a power cut would. Prints
the steps as the journal had them. Ends with 3 when the operation came to its end without such a step.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path

DATABASE = "file:/var/lib/vgpumgr/vgpumgr.db?mode=ro"
KILL = Path("/sys/fs/cgroup/system.slice/vgpumgr.service/cgroup.kill")
DEADLINE = 120.0
FINAL = ("succeeded", "failed", "stuck")


def main(position: int) -> int:
    """Watch and kill; the exit status."""
    with sqlite3.connect(DATABASE, uri=True, isolation_level=None) as store:
        known = {row[0] for row in store.execute("SELECT id FROM operations")}
        print("watching", flush=True)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            fresh = [row for row in store.execute("SELECT id, state FROM operations") if row[0] not in known]
            for operation, state in fresh:
                steps = steps_of(store, operation)
                if len(steps) > position and steps[position] != "pending":
                    KILL.write_text("1")
                    print("killed", *steps, flush=True)
                    return 0
                if state in FINAL:
                    print("ended", *steps, flush=True)
                    return 3
            time.sleep(0.002)
    print("nothing happened", flush=True)
    return 4


def steps_of(store: sqlite3.Connection, operation: str) -> list[str]:
    """The states of an operation's steps, in order."""
    query = "SELECT state FROM operation_steps WHERE operation_id = ? ORDER BY position"
    return [row[0] for row in store.execute(query, (operation,))]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
