"""``python -m tests.lab.image``: build what is missing, print the folders."""

from __future__ import annotations

import sys

from tests.lab.image.build import build_image
from tests.lab.image.cache import only_one


def main() -> int:
    with only_one():
        image = build_image()
    print(image.disk.parent)
    return 0


sys.exit(main())
