"""``python -m vgpumgr.cli`` is the same program as ``vgpumgr``."""

from vgpumgr.cli import main

main()
