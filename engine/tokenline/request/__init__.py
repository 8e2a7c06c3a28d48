"""What a caller asks for: one typed request, the same for the CLI, the server and Python."""

from tokenline.request.request import CONSTRAINTS, MAX_TOP_LOGPROBS, LoopDetection, Request, validate
from tokenline.request.sampling import PRESETS, STAGES, Sampling
from tokenline.request.tools import named_tool

__all__ = [
    "CONSTRAINTS",
    "MAX_TOP_LOGPROBS",
    "PRESETS",
    "STAGES",
    "LoopDetection",
    "Request",
    "Sampling",
    "named_tool",
    "validate",
]
