"""An oracle: llama.cpp's own samplers, called in this process through the library that xllamacpp ships.

They need no model: each takes an array of candidates and changes it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, byref, c_bool, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from importlib.util import find_spec
from pathlib import Path

import numpy as np

_package = find_spec("xllamacpp")
assert _package is not None, "pip install xllamacpp"
assert _package.origin is not None
# Not imported, and bound to its own symbols first: torch's are global here, and its C++ is another.
_library = ctypes.CDLL(
    str(Path(_package.origin).parent / "xllamacpp.abi3.so"),
    mode=os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0),
)


class _Candidate(ctypes.Structure):
    _fields_ = [("id", c_int32), ("logit", c_float), ("p", c_float)]


class _Candidates(ctypes.Structure):
    _fields_ = [
        ("data", POINTER(_Candidate)),
        ("size", c_size_t),
        ("selected", c_int64),
        ("sorted", c_bool),
    ]


class _Vector(ctypes.Structure):
    """A std::vector that is only read."""

    _fields_ = [("begin", c_void_p), ("end", c_void_p), ("capacity", c_void_p)]

    @classmethod
    def over(cls, array: ctypes.Array) -> _Vector:
        start = ctypes.addressof(array)
        return cls(start, start + ctypes.sizeof(array), start + ctypes.sizeof(array))


_library.llama_sampler_apply.argtypes = [c_void_p, POINTER(_Candidates)]
_library.llama_sampler_apply.restype = None
_library.llama_sampler_accept.argtypes = [c_void_p, c_int32]
_library.llama_sampler_accept.restype = None


class Sampler:
    """One of llama.cpp's samplers; `Sampler("top_k", (c_int32, 5))` is llama_sampler_init_top_k(5)."""

    def __init__(self, name: str, *arguments: tuple[type, float], symbol: str | None = None) -> None:
        make = getattr(_library, symbol or f"llama_sampler_init_{name}")
        make.argtypes, make.restype = [kind for kind, _ in arguments], c_void_p
        self._sampler = make(*(value for _, value in arguments))

    def accept(self, tokens: Sequence[int]) -> Sampler:
        for token in tokens:
            _library.llama_sampler_accept(self._sampler, token)
        return self

    def apply(self, logits: Sequence[float]) -> tuple[np.ndarray, int]:
        """Logits by token id, what was removed at -infinity, and which token was drawn (-1 if none was)."""
        data = (_Candidate * len(logits))(*((i, float(logit), 0.0) for i, logit in enumerate(logits)))
        left = _Candidates(ctypes.cast(data, POINTER(_Candidate)), len(logits), -1, False)
        _library.llama_sampler_apply(self._sampler, byref(left))
        changed = np.full(len(logits), -np.inf, np.float32)
        for candidate in left.data[: left.size]:
            changed[candidate.id] = candidate.logit
        drawn = left.data[left.selected].id if left.selected >= 0 else -1
        return changed, drawn


def penalties(vocabulary: int, window: int, repetition: float, frequency: float, presence: float) -> Sampler:
    sizes = ((c_int32, vocabulary), (c_int32, window))
    return Sampler("penalties", *sizes, (c_float, repetition), (c_float, frequency), (c_float, presence))


def dry(
    multiplier: float, base: float, allowed_length: int, window: int, breakers: Sequence[Sequence[int]]
) -> Sampler:
    """With breakers given as tokens, as llama.cpp's own test does."""
    lists = [(c_int32 * len(breaker))(*breaker) for breaker in breakers]
    inner = (_Vector * len(lists))(*(_Vector.over(each) for each in lists))
    return Sampler(
        "dry_testing",
        (c_float, multiplier),
        (c_float, base),
        (c_int, allowed_length),
        (c_int, window),
        (POINTER(_Vector), byref(_Vector.over(inner))),
        symbol="_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE",
    )


def top_k(k: int) -> Sampler:
    return Sampler("top_k", (c_int32, k))


def top_p(p: float, min_keep: int = 1) -> Sampler:
    return Sampler("top_p", (c_float, p), (c_size_t, min_keep))


def min_p(p: float, min_keep: int = 1) -> Sampler:
    return Sampler("min_p", (c_float, p), (c_size_t, min_keep))


def typical(p: float, min_keep: int = 1) -> Sampler:
    return Sampler("typical", (c_float, p), (c_size_t, min_keep))


def top_n_sigma(n: float) -> Sampler:
    return Sampler("top_n_sigma", (c_float, n))


def xtc(probability: float, threshold: float, min_keep: int = 1) -> Sampler:
    return Sampler("xtc", (c_float, probability), (c_float, threshold), (c_size_t, min_keep), (c_uint32, 1))


def temperature(value: float, span: float, exponent: float) -> Sampler:
    return Sampler("temp_ext", (c_float, value), (c_float, span), (c_float, exponent))


def mirostat(vocabulary: int, seed: int, tau: float, eta: float, estimated_from: int) -> Sampler:
    steering = ((c_float, tau), (c_float, eta), (c_int32, estimated_from))
    return Sampler("mirostat", (c_int32, vocabulary), (c_uint32, seed), *steering)


def mirostat_2(seed: int, tau: float, eta: float) -> Sampler:
    return Sampler("mirostat_v2", (c_uint32, seed), (c_float, tau), (c_float, eta))
