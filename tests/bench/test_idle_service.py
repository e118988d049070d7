"""What the service costs while nobody asks it anything: memory of all its processes, and how often it wakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import sleep

from vgpumgr.cli.client import Client
from vgpumgr.cli.demo_service import running_service

MOST_MEMORY_MIB = 120
WATCHED_SECONDS = 10
MOST_WAKEUPS = 2
PATHS = ("/v1/host/inventory", "/v1/gpus", "/v1/profiles", "/v1/vms", "/v1/allocations", "/openapi.json")


def _family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        yield from _family(int(child))


def _status(path: Path, name: str) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def _memory_mib(pids: list[int]) -> int:
    return sum(_status(Path(f"/proc/{pid}/status"), "VmRSS") for pid in pids) // 1024


def _wakeups(pids: list[int]) -> int:
    threads = [status for pid in pids for status in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(_status(status, "voluntary_ctxt_switches") for status in threads)


def test_the_idle_service_is_small_and_asleep() -> None:
    with running_service("vdi-a40") as service:
        client = Client(service.socket)
        for path in PATHS:
            client.get(path)
        client.close()
        pids = list(_family(service.process.pid))
        sleep(6)  # connections that were kept alive end
        before = _wakeups(pids)
        sleep(WATCHED_SECONDS)
        wakeups, memory = _wakeups(pids) - before, _memory_mib(pids)
    print(
        f"\nidle service: {memory} MiB in {len(pids)} processes (at most {MOST_MEMORY_MIB}), "
        f"{wakeups} wake-ups in {WATCHED_SECONDS} s (at most {MOST_WAKEUPS})"
    )
    assert memory <= MOST_MEMORY_MIB
    assert wakeups <= MOST_WAKEUPS
