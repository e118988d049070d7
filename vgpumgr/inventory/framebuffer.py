"""Boot framebuffers that still own part of a GPU's BAR, from ``/proc/iomem``, else from the kernel log.

A guest sees such a GPU and cannot use it: vfio-pci "can't reserve" the BAR. Ordinary users read zeros for all
addresses; the nesting still tells whose BAR it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vgpumgr import address
from vgpumgr.inventory.kernel_log import KernelLogText, lost_bars
from vgpumgr.inventory.reader import Reader, hex_id
from vgpumgr.model.host import Holder
from vgpumgr.model.pci import PciFunction

_GENERIC = "BOOTFB"
UNKNOWN = "unknown"
"""A framebuffer that the log does not name."""
FRAMEBUFFERS = frozenset(
    {
        _GENERIC,
        "efifb",
        "efidrm",
        "ofdrm",
        "offb",
        "simple-framebuffer",
        "simpledrm",
        "simplefb",
        "vesadrm",
        "vesafb",
        "vga16fb",
    }
)

Resources = Sequence[tuple[int, int, int]]


class _Region(NamedTuple):
    depth: int
    start: int
    end: int
    name: str


class _Claim(NamedTuple):
    region: _Region
    function: str | None
    """The function whose line the claim is nested under."""


def find_framebuffers(
    reader: Reader, bars: Mapping[str, Resources], functions: Mapping[str, PciFunction], log: KernelLogText
) -> list[Holder]:
    """Framebuffers on the BARs (``(start, end, flags)`` by index) of the given functions, innermost owner each."""
    text = reader.text("/proc/iomem", "host") if bars else None
    if text is not None and any(region.end for region in _regions(text)):
        return _in_map(text, bars)
    # No map here, or one without addresses: what the kernel said when the driver wanted the BAR tells, too.
    found = _in_map(text, bars) if text is not None else _in_map("\n".join(log.lines), bars) if bars else []
    seen = {holder.address for holder in found}
    vfio = (functions[name] for name in bars if name not in seen and functions[name].vfio)
    return found + [
        Holder("framebuffer", UNKNOWN, function.address, detail=f"BAR {index}")
        for function in vfio
        for index in sorted(lost_bars(log.lines, function))
    ]


def _in_map(text: str, bars: Mapping[str, Resources]) -> list[Holder]:
    if not any(owner in text for owner in FRAMEBUFFERS):
        return []
    regions = list(_regions(text))
    best: dict[tuple[str, int | None], _Region] = {}
    for claim in _claims(regions):
        for owner, seen in _hit(claim, bars):
            # A recording without ``resource`` that shows one region of the function shows its first BAR.
            first = not bars[owner] and sum(region.name == owner for region in regions) == 1
            index = 0 if seen is None and first else seen
            held = best.get((owner, index))
            if held is None or held.name == _GENERIC or claim.region.depth > held.depth:
                best[owner, index] = claim.region
    return [
        Holder("framebuffer", region.name, owner, detail="a BAR" if index is None else f"BAR {index}")
        for (owner, index), region in best.items()
    ]


def _regions(text: str) -> Iterator[_Region]:
    # The reader strips the text as a whole, so the first line's own indentation (none) is intact.
    for line in text.splitlines():
        span, separator, name = line.partition(" : ")
        start, _, end = span.strip().partition("-")
        first, last = hex_id(start, 16), hex_id(end, 16)
        if separator and first is not None and last is not None:
            yield _Region(len(span) - len(span.lstrip()), int(first, 16), int(last, 16), name.strip())


def _claims(regions: Iterable[_Region]) -> Iterator[_Claim]:
    open_regions: list[_Region] = []
    for region in regions:
        while open_regions and open_regions[-1].depth >= region.depth:
            open_regions.pop()
        if region.name in FRAMEBUFFERS:
            functions = [outer.name for outer in open_regions if address.is_address(outer.name)]
            yield _Claim(region, functions[-1] if functions else None)
        open_regions.append(region)


def _hit(claim: _Claim, bars: Mapping[str, Resources]) -> Iterator[tuple[str, int | None]]:
    """The function and BAR that a claim lies on: by address where addresses are shown, else by nesting."""
    region = claim.region
    if region.end > 0:
        for owner, resources in bars.items():
            for index, (start, end, _) in enumerate(resources):
                if end > 0 and start <= region.end and region.start <= end:
                    yield owner, index
                    return
    if claim.function is not None and claim.function in bars:
        yield claim.function, None
