"""The kernel lab: a real Linux kernel in QEMU, with emulated IOMMU, GPUs, SR-IOV, mdev, NUMA and libvirt."""
