"""GPU manager for KVM hosts."""

__version__ = "0.1.0"
