"""libvirt domain XML: composer, parser, preflight."""
