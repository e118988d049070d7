"""What a shell offers for a command's values: addresses, ids and names of the host that the command line is about.

A shell that waits for Tab wants no errors: what cannot be asked is completed by nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from vgpumgr.cli.backend import Backend, Needs, open_backend
from vgpumgr.cli.invocation import invocation_of
from vgpumgr.errors import VgpumgrError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

Completer: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"
Found = Iterable[tuple[str, str]]


def _completer(needs: Needs, find: Callable[[Backend], Found]) -> Completer:
    """Completion by what ``find`` names on the backend: ``(value, help)`` each."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            with open_backend(invocation_of(context.find_root()), needs) as backend:
                found = list(find(backend))
        except VgpumgrError:
            return []
        spelled = ((_spelled(value, incomplete), note) for value, note in found)
        return [CompletionItem(value, help=note) for value, note in spelled if value.startswith(incomplete)]

    return complete


def _spelled(value: str, incomplete: str) -> str:
    """An address without its PCI domain, where somebody began to type it without."""
    return value if value.startswith(incomplete) else value.removeprefix("0000:")


def _gpus(backend: Backend) -> Found:
    return ((item["address"], item["name"]) for item in backend.gpus())


def _groups(backend: Backend) -> Found:
    return ((str(item["id"]), ", ".join(item["members"])) for item in backend.groups())


def _profiles(backend: Backend) -> Found:
    return {item["name"] or item["id"]: item["id"] for item in backend.profiles(None).profiles}.items()


def _vgpus(backend: Backend) -> Found:
    return ((item["id"], f"{item['profile']} on {item['gpu']}") for item in backend.vgpus(None))


def _allocations(backend: Backend) -> Found:
    return ((item["id"], f"{item['vm']}, {item['state']}") for item in backend.allocations({}))


def _operations(backend: Backend) -> Found:
    return ((item["id"], f"{item['kind']} {item['subject']}, {item['state']}") for item in backend.operations({}))


def _subjects(backend: Backend) -> Found:
    """What operations and events are about."""
    yield from _gpus(backend)
    yield from _allocations(backend)


def _vms(backend: Backend) -> Found:
    return ((item["name"], item["state"]) for item in backend.vms())


gpus = _completer(Needs.READING, _gpus)
groups = _completer(Needs.READING, _groups)
profiles = _completer(Needs.READING, _profiles)
vgpus = _completer(Needs.READING, _vgpus)
allocations = _completer(Needs.SERVICE, _allocations)
operations = _completer(Needs.SERVICE, _operations)
subjects = _completer(Needs.SERVICE, _subjects)
vms = _completer(Needs.SERVICE, _vms)


def simulated_hosts(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Shipped host descriptions, else files."""
    from click.shell_completion import CompletionItem

    from vgpumgr.kernel.simulated.hosts import shipped_hosts

    found = [CompletionItem(name) for name in shipped_hosts() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def templates(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Templates of domains, shipped and the administrator's own."""
    from click.shell_completion import CompletionItem

    from vgpumgr.domain.templates import Templates

    try:
        names = Templates(invocation_of(context.find_root()).config().template_dir).names()
    except VgpumgrError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
