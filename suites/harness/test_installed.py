"""The wheel by itself: installed beside its base dependencies alone, it drives an engine and writes its report."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from two_cases import TOY

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "engine", "harness", "reports")
ABSENT = ("torch", "mlx", "transformers", "gguf", "tokenizers", "scipy", "pandas", "starlette", "pytest")
POLICY = (
    TOY
    + """\
[arms.whole]
kind = "http"
url = "{url}"

[arms.streamed]
kind = "http"
url = "{url}"
streamed = true

[[cases]]
name = "capital"
prompt = "The capital of France is"
max_tokens = 20

[claims.streamed-is-whole]
kind = "identity"
arms = ["whole", "streamed"]
cases = ["capital"]
"""
)


def needed(names: list[str]) -> set[str]:
    """Base dependencies of packages, with all that these need in turn."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.distribution(name).requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and its base dependencies."""
    base = tmp_path_factory.mktemp("installed")
    source = base / "source"
    source.mkdir()
    for name in SOURCES:
        place = ROOT / name
        if place.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "out", "*.egg-info")
            shutil.copytree(place, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(place, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(base / "wheel"), str(source)],
        check=True,
    )
    (wheel,) = (base / "wheel").glob("*.whl")
    shutil.rmtree(source)
    venv.create(base / "env", with_pip=False)
    python = base / "env" / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], check=True)
    (site,) = (base / "env" / "lib").glob("python*/site-packages")
    names = [Requirement(line) for line in _base_requirements(site)]
    # Linked out of this environment rather than fetched: the same files, without a network.
    for name in needed([requirement.name for requirement in names]):
        distribution = importlib.metadata.distribution(name)
        tops = {Path(str(file)).parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            place = Path(str(distribution.locate_file(top)))
            if place.exists() and not (site / top).exists():
                (site / top).symlink_to(place)
    return python


def _base_requirements(site: Path) -> list[str]:
    (information,) = site.glob("paritygate-*.dist-info")
    lines = importlib.metadata.Distribution.at(information).requires or []
    return [line for line in lines if "extra ==" not in line]


@pytest.fixture
def url() -> Iterator[str]:
    """A server of OpenAI's interface that says twenty words, one an event where it streams."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            words = [f" word{i}" for i in range(20)]
            usage = {"prompt_tokens": 5, "completion_tokens": 20, "total_tokens": 25}
            self.send_response(200)
            self.end_headers()
            if not body.get("stream"):
                choice = {"text": "".join(words), "finish_reason": "length"}
                self.wfile.write(json.dumps({"choices": [choice], "usage": usage}).encode())
                return
            for word in words:
                self.wfile.write(f"data: {json.dumps({'choices': [{'text': word}]})}\n\n".encode())
                time.sleep(0.015)
            last = {"choices": [{"text": "", "finish_reason": "length"}], "usage": usage}
            self.wfile.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PARITYGATE"))}


def test_the_engines_libraries_are_absent_and_every_module_of_the_harness_imports(installed: Path) -> None:
    program = f"""\
import importlib, importlib.util, pkgutil, paritygate
print([name for name in {ABSENT!r} if importlib.util.find_spec(name)])
names = [module.name for module in pkgutil.walk_packages(paritygate.__path__, "paritygate.")]
for name in names:
    if not name.startswith("paritygate.pytest") and "__main__" not in name:
        importlib.import_module(name)
print(len(names) > 60)
"""
    told = subprocess.run(
        [str(installed), "-I", "-c", program], capture_output=True, text=True, env=environment(), check=False
    )
    assert (told.stdout.split("\n")[:2], told.stderr) == (["[]", "True"], "")


def test_verify_drives_a_foreign_server_and_writes_its_page(
    installed: Path, url: str, tmp_path: Path
) -> None:
    (tmp_path / "paritygate.toml").write_text(POLICY.format(url=url), encoding="utf-8")
    program = installed.with_name("paritygate")
    told = subprocess.run(
        [str(program), "verify", "--report", str(tmp_path / "out")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "IDENTICAL       identity/streamed-is-whole/streamed/capital" in told.stdout, told.stderr
    assert "token ids are not given by whole and streamed" in told.stdout
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<style>" in page
    assert json.loads((tmp_path / "out" / "report.json").read_text())["machine"]["python"]
