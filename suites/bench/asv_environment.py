"""Point asv's environment at a checkout's engine and at the libraries that are already installed.

asv's own way is to install the project with all its dependencies into each environment: gigabytes, and two commits
could then differ by their torch. A .pth file makes the checkout importable and the libraries shared.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def main(checkout: str, libraries: str) -> None:
    """Write the .pth file into the environment of the Python that runs this."""
    here = Path(sysconfig.get_path("purelib"))
    shared = list(Path(libraries).glob("lib/python3.*/site-packages"))
    engine = Path(checkout) / "engine"
    if not engine.is_dir() or len(shared) != 1:
        sys.exit(
            f"no engine in {checkout}, or no single site-packages under {libraries}: run make setup first"
        )
    # The libraries' own .pth files are not read from there, so the editable install of the working tree stays out.
    (here / "tokenline_checkout.pth").write_text(f"{engine}\n{shared[0]}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
