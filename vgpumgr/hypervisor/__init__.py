"""The only door to libvirt."""
