"""Builds the lab's disk image, kernel, initial RAM disks and QEMU from Debian's packages alone.

``python -m tests.lab.image`` builds what is missing and prints the folder. Every stage lies in the cache under
a name made of its inputs, so an unchanged stage is never built twice and a changed one never reused.
"""
