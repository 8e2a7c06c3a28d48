"""Errors that a caller can mend: each carries what is wrong and what to do about it."""

from __future__ import annotations


class TokenlineError(Exception):
    """Base of every error that is the caller's to mend; `str(error)` is one line, mend included."""

    def __init__(self, what: str, mend: str = "") -> None:
        self.what = what
        self.mend = mend
        super().__init__(f"{what}: {mend}" if mend else what)


class CheckpointError(TokenlineError):
    """A checkpoint that is missing, truncated, corrupt, or of a family that is not supported."""


class BackendError(TokenlineError):
    """A backend that is not installed or cannot do what was asked of it."""


class RequestError(TokenlineError):
    """A request that cannot be run; `param` names the field at fault, as the wire spells it."""

    def __init__(self, what: str, mend: str = "", *, param: str | None = None) -> None:
        super().__init__(what, mend)
        self.param = param


class OverBudget(RequestError):
    """A request whose layer caches would not fit the byte budget even if it ran alone."""


class QueueFull(TokenlineError):
    """As many rows wait as may; trying again after `retry_after_s` seconds is reasonable."""

    def __init__(self, what: str, mend: str = "", *, retry_after_s: int) -> None:
        super().__init__(what, mend)
        self.retry_after_s = retry_after_s


class CacheFileError(TokenlineError):
    """A prompt cache's file that cannot be used, or cannot be written: the model runs without."""


class RowError(TokenlineError):
    """A failure inside the engine that ended one row; the other rows go on."""
