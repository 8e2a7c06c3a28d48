"""What a caller asks for: one typed request, the same for the CLI, the server and Python."""

from tokenline.request.named import request_of
from tokenline.request.request import CONSTRAINTS, LoopDetection, Request, constraints_of, validate
from tokenline.request.sampling import PRESETS, STAGES, Sampling
from tokenline.request.tools import named_tool

__all__ = [
    "CONSTRAINTS",
    "PRESETS",
    "STAGES",
    "LoopDetection",
    "Request",
    "Sampling",
    "constraints_of",
    "named_tool",
    "request_of",
    "validate",
]
