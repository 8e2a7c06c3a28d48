"""The machine that something was recorded or measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path

from paritygate.run import Machine


@cache
def _processor() -> str:
    """The processor's marketing name, which decides the kernels that a library picks."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
        if found:
            return found.group(1).strip()
    if platform.system() == "Darwin":
        told = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        if told.stdout.strip():
            return told.stdout.strip()
    return platform.processor() or platform.machine()


def this_machine() -> Machine:
    """The machine that runs this process."""
    processor = _processor()
    slug = re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-")
    return Machine(
        key=f"{platform.system()}-{platform.machine()}-{slug}".lower(),
        system=f"{platform.system()} {platform.release()}",
        processor=processor,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
    )
