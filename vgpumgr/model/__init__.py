"""The project's words as frozen dataclasses. Nothing in here reads, writes or waits."""
