"""The REST service: one file per resource, over the use-cases of :mod:`vgpumgr.service`."""
