"""What the result of a unit of work depends on, as digests: while none of them changes, a pass stays a pass."""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import shutil
import sys
import urllib.parse
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

import paritygate
from paritygate.arms.base import ArmError
from paritygate.arms.registry import arm_class
from paritygate.case import Case
from paritygate.digest import file_digest
from paritygate.gates.units import Unit
from paritygate.machine import this_machine
from paritygate.policy import ArmPolicy, Policy
from paritygate.structure.glob import matches
from paritygate.structure.source import project_paths

# Variables that change what a numeric library or an engine computes, or which code is loaded.
ENVIRONMENT = (
    "TOKENLINE_*", "PARITYGATE_*", "PYTHON*", "LD_*", "DYLD_*", "OMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "KMP_*",
    "GOMP_*", "ONEDNN_*", "DNNL_*", "ATEN_*", "TORCH*", "PYTORCH_*", "MLX_*", "METAL_*", "MTL_*", "CUDA_*", "CUBLAS_*",
    "NVIDIA_*", "GGML_*", "LLAMA_*", "HF_*", "TRANSFORMERS_*", "TOKENIZERS_*", "VLLM_*", "SGLANG_*",
)  # fmt: skip


class NotKeyed(Exception):
    """Why a unit has no key, so that it runs every time."""


def _digest(value: Any) -> str:
    text = json.dumps(msgspec.to_builtins(value), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _files_digest(root: Path, paths: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        place = root / path
        if place.is_file():
            digest.update(f"{path}\0{file_digest(place)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _python_under(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*.py")]


def _plugin_digest(cls: type) -> str:
    """The source of the package that brings an arm; the harness's own is in every key already."""
    top = cls.__module__.partition(".")[0]
    if top == paritygate.__name__:
        return ""
    folders = getattr(sys.modules[top], "__path__", None)
    if folders is None:
        return file_digest(Path(inspect.getfile(cls)))
    return _digest([_files_digest(Path(folder), _python_under(Path(folder))) for folder in folders])


class Keys:
    """The keys of one policy at one moment. What cannot be read is NotKeyed, and nothing of it is reused."""

    def __init__(self, policy: Policy, root: Path) -> None:
        self.policy = policy
        self.root = root
        self.cases = policy.all_cases(root)
        paths = project_paths(root)
        for wanted in policy.reuse.sources:
            if not any(matches(path, (wanted,)) for path in paths):
                raise NotKeyed(f"[reuse] sources: no file matches {wanted}")
        machine = this_machine()
        self._paths = paths
        self._shared = {
            "sources": _files_digest(root, (path for path in paths if matches(path, policy.reuse.sources))),
            "harness": self._harness(),
            "checkpoint": self._checkpoint(),
            "libraries": self._libraries(),
            "machine": _digest([machine.key, machine.cores, platform.python_version()]),
            "environment": self._environment(),
        }

    def of(self, unit: Unit) -> dict[str, str]:
        """Every part of a unit's key by name. Raises NotKeyed."""
        policy = self.policy
        claims = {name: policy.claims[name] for name in unit.claims}
        envelopes = {name: policy.envelopes.get(name) for name in
                     sorted({getattr(claim, "envelope", "") for claim in claims.values()} - {""})}  # fmt: skip
        return self._shared | {
            "claim": _digest([unit.name, unit.expected, claims, envelopes]),
            "arms": _digest([self._arm(policy.arms[name]) for name in unit.arms]),
            "cases": _digest([self._case(name) for name in unit.cases]),
            "goldens": _digest([policy.goldens, [self._golden(unit, name) for name in unit.cases]]),
            "folder": _digest([unit.folder, self._folder(unit.folder)]),
        }

    def _folder(self, folder: str) -> str:
        return _files_digest(self.root, (p for p in self._paths if folder and p.startswith(f"{folder}/")))

    def _case(self, name: str) -> Case:
        if name not in self.cases:
            raise NotKeyed(f"no case is named {name!r}")
        return self.cases[name]

    def _golden(self, unit: Unit, name: str) -> str:
        if unit.gate not in ("golden", "envelope"):
            return ""
        # Of every layer: one that is added may take the place of the one that was replayed.
        directory = self.root / self.policy.goldens.directory
        files = [
            path.relative_to(directory).as_posix() for path in directory.rglob(f"{glob.escape(name)}.jsonl")
        ]
        return _files_digest(directory, files) if files else "missing"

    def _harness(self) -> str:
        package = Path(paritygate.__file__).parent
        return _files_digest(package, _python_under(package))

    def _checkpoint(self) -> str:
        checkpoint = self.policy.checkpoint
        place = Path(checkpoint.location)
        if not place.exists():
            # A name that the engine resolves: where that leads to is not for the harness to guess.
            if not self.policy.reuse.weights:
                raise NotKeyed(
                    f"{checkpoint.location} is no file or folder, so nothing tells which weights it is: "
                    "name them in [reuse] weights"
                )
            place = Path(self.policy.reuse.weights).expanduser()
        if place.is_file():
            weights = file_digest(place)
        elif place.is_dir():
            files = sorted(path for path in place.rglob("*") if path.is_file())
            weights = _digest([[path.relative_to(place).as_posix(), file_digest(path)] for path in files])
        else:
            raise NotKeyed(f"the weights are not at {place}")
        return _digest([checkpoint, checkpoint.location, self.policy.reuse.weights, weights])

    def _libraries(self) -> str:
        found = []
        for distribution in importlib.metadata.distributions():
            found.append(
                [distribution.metadata["Name"] or "", distribution.version, self._editable(distribution)]
            )
        return _digest(sorted(found))

    def _editable(self, distribution: importlib.metadata.Distribution) -> str:
        # What is installed in place changes without a new version; the checkout under test is in `sources`.
        told = json.loads(distribution.read_text("direct_url.json") or "{}")
        if not told.get("dir_info", {}).get("editable"):
            return ""
        place = Path(urllib.parse.unquote(urllib.parse.urlparse(told["url"]).path))
        if place == self.root.resolve():
            return "the checkout"
        return _files_digest(place, (path for path in project_paths(place) if path.endswith(".py")))

    def _environment(self) -> str:
        wanted = (*ENVIRONMENT, *self.policy.reuse.environment)
        seen = {
            name: value
            for name, value in os.environ.items()
            if any(fnmatchcase(name, each) for each in wanted)
        }
        return _digest([seen, sys.prefix, sys.executable])

    def _arm(self, arm: ArmPolicy) -> list[Any]:
        if arm.options.get("url"):
            raise NotKeyed(f"arm {arm.name} is a server by URL: nothing tells what runs there")
        try:
            cls = arm_class(arm.kind)
        except ArmError as error:
            raise NotKeyed(str(error)) from error
        return [arm.name, arm.kind, arm.options, _plugin_digest(cls), self._programs(arm)]

    def _programs(self, arm: ArmPolicy) -> list[str]:
        """Digests of the files that an arm's command names."""
        words = arm.options.get("command") or ()
        found = []
        for number, word in enumerate(words):
            place = shutil.which(word) if number == 0 else None
            path = Path(place) if place else self.root / word
            if path.is_file():
                found.append(file_digest(path))
        return found
