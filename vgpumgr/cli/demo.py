"""``vgpumgr demo``: the whole journey on a simulated host."""

from __future__ import annotations

import click

from vgpumgr.cli.base import VerbCommand, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.errors import EXIT_OK

HOST = "vdi-a40"


@click.command("demo", cls=VerbCommand, examples="vgpumgr demo\nvgpumgr demo --keep --port 8900")
@click.option("--keep", is_flag=True, help="Start the service and leave it running until Ctrl-C.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="With --keep: TCP port on loopback. [default: 8900, or a free one]",
)
@pass_invocation
def demo(invocation: Invocation, keep: bool, port: int | None) -> int:
    """Drive the whole journey through the REST API of a service on a simulated host.

    The service runs in a temporary folder, on a simulated VDI host and libvirt's test driver; nothing of this
    machine is touched. Exit status 4 when a step does not do what it should.
    """
    from vgpumgr.cli.demo_journey import Journey
    from vgpumgr.cli.demo_service import free_port, running_service, stay
    from vgpumgr.kernel.open import open_kernel

    host = invocation.simulate or HOST
    # What is wrong with a description is said here, not in the log of a service that does not come up.
    open_kernel(simulate=host)
    if keep:
        listen = f"127.0.0.1:{free_port(port)}"
        with running_service(host, listen) as service:
            stay(service, listen)
        return EXIT_OK
    with running_service(host) as service:
        Journey(service, invocation).run()
    return EXIT_OK
