"""Pure functions from inventories and a request to ranked candidates and reasons."""

from vgpumgr.placement.place import place

__all__ = ["place"]
