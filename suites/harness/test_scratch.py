"""What a process that was killed with -9 left is removed by the next one, and nothing that somebody still uses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from paritygate.scratch import scratch

OWNER = """
import sys, time
from pathlib import Path
from paritygate.scratch import scratch
with scratch("fault", under=Path(sys.argv[1])) as folder:
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_of_a_living_process_is_left_alone_and_of_a_dead_one_removed(
    tmp_path: Path, owner: tuple[subprocess.Popen[str], Path]
) -> None:
    process, folder = owner
    with scratch("report", under=tmp_path) as ours:
        assert (folder / "deep" / "file").exists()
        process.kill()
        process.wait()
        with scratch("report", under=tmp_path) as other:
            assert sorted(tmp_path.iterdir()) == sorted((ours, other))
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_not_removed(tmp_path: Path) -> None:
    for name in ("paritygate-report", "paritygate-mine-x", "paritygate-making-now", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "paritygate-held-file-x").touch()
    target = tmp_path / "other" / "kept"
    target.mkdir()
    (tmp_path / "paritygate-held-link-x").symlink_to(target)
    old = tmp_path / "paritygate-making-old"
    old.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    before = set(tmp_path.iterdir())
    with scratch("report", under=tmp_path):
        assert before - set(tmp_path.iterdir()) == {old}
    assert target.exists()


def test_faults_that_are_killed_leave_nothing_to_the_next(tmp_path: Path) -> None:
    """`paritygate faults`, killed with -9 while it judges a copy, and then a run that only lists."""
    place, root = tmp_path / "tmp", tmp_path / "root"
    place.mkdir()
    root.mkdir()
    (root / "slow.py").write_text("import time\ntime.sleep(60)\n")
    (root / "faults.toml").write_text(
        '[[fault]]\nid = "f"\nroom = "engine"\ndefect = "d"\nnames = "x"\ntests = ["t.py"]\n'
        'edits = [{ file = "t.py", append = "import time; time.sleep(60)" }]\n'
    )
    (root / "paritygate.toml").write_text(
        'schema = 1\n[checkpoint]\nname = "m"\nmodel = "m"\n[faults]\ncatalogue = ["faults.toml"]\n'
    )
    words = [sys.executable, "-m", "paritygate", "faults", "--clean", "0", "--root", str(root)]
    process = subprocess.Popen(
        words,
        env=os.environ | {"TMPDIR": str(place)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list(place.glob("paritygate-held-fault-*/t.py")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(place.iterdir()) != []
    subprocess.run(
        [*words, "--list"], env=os.environ | {"TMPDIR": str(place)}, check=True, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while list(place.glob("paritygate-*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_by_default_it_lies_where_temporary_files_lie() -> None:
    with scratch("report") as folder:
        assert folder.parent == Path(tempfile.gettempdir()).resolve()
        assert folder.is_dir()
