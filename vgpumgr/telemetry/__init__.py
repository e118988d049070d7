"""NVML and other sources of what a GPU is doing."""
