"""From a kernel to a host inventory, in one read-only pass."""
