"""The only door to /sys, /proc and /dev: one small port, and three kinds of kernel behind it."""
