"""What a command reads: a file that cannot be used is one line, under the field that it was for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tokenline.errors import RequestError


@contextlib.contextmanager
def reading(path: Path, param: str) -> Iterator[None]:
    """RequestError for what reading the path as UTF-8 raises."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path} is not UTF-8 (byte {error.start})", "convert it to UTF-8", param=param
        ) from None
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read ({error.strerror})", "check the path", param=param
        ) from None
