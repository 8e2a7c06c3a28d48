"""What a caller asks for: one typed request, the same for the CLI, the server and Python."""

from tokenline.request.request import MAX_TOP_LOGPROBS, LoopDetection, Request, validate
from tokenline.request.sampling import PRESETS, STAGES, Sampling

__all__ = ["MAX_TOP_LOGPROBS", "PRESETS", "STAGES", "LoopDetection", "Request", "Sampling", "validate"]
