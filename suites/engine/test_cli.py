"""The command line as a person meets it: bytes on stdout, one line on stderr, an exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tokenline.cli import main
from tokenline.client import Model
from tokenline.generation import Generation
from tokenline.request import Request
from tokenline.row import Event

TOKENLINE = [sys.executable, "-c", "from tokenline.cli import main; main()"]
PROMPT = "Once upon a time 日本"
KEYS = {
    "text", "prompt_token_ids", "token_ids", "logprobs", "finish_reason", "finish_cause", "stop_sequence",
    "truncated", "usage",
    "timings", "manifest", "counters",
}  # fmt: skip


@pytest.fixture
def model(tiny_checkpoint: Path) -> list[str]:
    return ["-m", str(tiny_checkpoint), "--backend", "torch", "--threads", "1"]


class Ran:
    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out, err.decode()


@pytest.fixture
def tokenline(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        return Ran(ended.value.code, *capfdbinary.readouterr())  # type: ignore[arg-type]

    return run


def refused(ran: Ran, message: str) -> None:
    """Exit 2 and one line that says what and how to mend it; nothing on stdout, no traceback."""
    assert ran.code == 2
    assert ran.out == b""
    assert ran.err == f"tokenline: {message}\n"


def test_generate_writes_the_text_and_nothing_else(
    tokenline: Any, model: list[str], tiny_torch: Model
) -> None:
    expected = tiny_torch.generate(PROMPT, max_tokens=40)
    ran = tokenline("generate", *model, "-p", PROMPT, "--max-tokens", "40")
    assert (ran.code, ran.out, ran.err) == (0, expected["text"].encode(), "")


@pytest.mark.parametrize(
    ("options", "params"),
    [
        (["--temp", "0.9", "--seed", "5"], {"temperature": 0.9, "seed": 5}),
        (["--temp", "1", "--seed", "5", "--top-k", "9"], {"temperature": 1.0, "seed": 5, "top_k": 9}),
        (["--temp", "1", "--seed", "5", "--top-p", "0.3"], {"temperature": 1.0, "seed": 5, "top_p": 0.3}),
        (["--temp", "1", "--seed", "5", "--min-p", "0.3"], {"temperature": 1.0, "seed": 5, "min_p": 0.3}),
        (["--repetition-penalty", "1.8"], {"repetition_penalty": 1.8}),
        (
            ["--presence-penalty", "2", "--penalty-window", "-1"],
            {"presence_penalty": 2.0, "penalty_window": -1},
        ),
        (["--frequency-penalty", "1.5"], {"frequency_penalty": 1.5}),
        (["--logit-bias", "65=100", "--logit-bias", "66=-5"], {"logit_bias": {65: 100.0, 66: -5.0}}),
        (["--ignore-eos", "--loop-detection"], {"ignore_eos": True, "loop_detection": True}),
        (["--logprobs", "2", "--no-cache-prompt"], {"logprobs": 2, "cache_prompt": False}),
        (
            ["--temp", "1", "--seed", "5", "--samplers", "temperature,xtc", "--xtc-probability", "1"],
            {"temperature": 1.0, "seed": 5, "samplers": ["temperature", "xtc"], "xtc_probability": 1.0},
        ),
        (["--dry-multiplier", "3", "--dry-breaker", "e"], {"dry_multiplier": 3.0, "dry_breakers": ["e"]}),
        (["--temp", "1", "--seed", "5", "--mirostat", "2"], {"temperature": 1.0, "seed": 5, "mirostat": 2}),
    ],
)
def test_options_mean_what_they_mean_in_python(
    tokenline: Any, model: list[str], tiny_torch: Model, options: list[str], params: dict[str, Any]
) -> None:
    expected = tiny_torch.generate(PROMPT, max_tokens=30, **params)
    ran = tokenline("generate", *model, "-p", PROMPT, "-n", "30", "--json", *options)
    result = json.loads(ran.out)
    assert set(result) == KEYS
    for key in ("text", "token_ids", "prompt_token_ids", "finish_reason", "finish_cause", "logprobs"):
        assert result[key] == expected[key], key
    assert result["manifest"]["sampling"]["temperature"] == params.get("temperature", 0.0)


def test_fewer_bits_are_what_they_are_in_python(
    tokenline: Any, model: list[str], tiny_checkpoint: Path
) -> None:
    with Model(str(tiny_checkpoint), backend="torch", threads=1, weight_bits=4, weight_group=32) as few:
        expected = few.generate(PROMPT, max_tokens=20, logprobs=1)
    bits = ["--weight-bits", "4", "--weight-group", "32"]
    ran = tokenline("generate", *model, "-p", PROMPT, "-n", "20", "--logprobs", "1", "--json", *bits)
    result = json.loads(ran.out)
    assert result["logprobs"] == expected["logprobs"]
    said = {key: result["manifest"][key] for key in ("weight_bits", "weight_group", "kv_bits")}
    assert said == {"weight_bits": 4, "weight_group": 32, "kv_bits": None}
    refused(
        tokenline("generate", *model, "-p", PROMPT, "--kv-bits", "8"),
        "keys or values of 16 entries cannot be kept in groups of 32: leave kv_bits out for this model",
    )
    refused(
        tokenline("generate", *model, "-p", PROMPT, "--kv-bits", "5"),
        "kv_bits 5 is not supported: use 4 or 8",
    )


def test_stop_strings(tokenline: Any, model: list[str], tiny_torch: Model) -> None:
    text = tiny_torch.generate(PROMPT, max_tokens=40)["text"]
    ran = tokenline("generate", *model, "-p", PROMPT, "-n", "40", "--stop", "unseen", "--stop", text[8:10])
    assert ran.out.decode() == text[: text.index(text[8:10])]


def test_every_way_to_give_a_prompt(
    tokenline: Any, model: list[str], tiny_torch: Model, tmp_path: Path
) -> None:
    text = "a line\r\nand another\n"
    (tmp_path / "prompt.txt").write_bytes(text.encode())
    ids = tiny_torch.tokenizer.encode(text)
    expected = tiny_torch.generate(text, max_tokens=9)["text"].encode()
    for way in (
        ["-p", text],
        ["--prompt-file", str(tmp_path / "prompt.txt")],
        ["--token-ids", ",".join(map(str, ids))],
    ):
        assert tokenline("generate", *model, "-n", "9", *way).out == expected
    piped = subprocess.run(
        [*TOKENLINE, "generate", *model, "-n", "9", "--prompt-file", "-"],
        input=text.encode(), capture_output=True, check=True,
    )  # fmt: skip
    assert piped.stdout == expected


def test_repeat_prints_cold_and_hit(tokenline: Any, model: list[str]) -> None:
    ran = tokenline("generate", *model, "-p", PROMPT, "-n", "8", "--json", "--repeat", "3")
    cold, hit, again = (json.loads(line) for line in ran.out.decode().splitlines())
    assert cold["text"] == hit["text"] == again["text"]
    assert cold["usage"]["cached_tokens"] == 0
    assert hit["usage"]["cached_tokens"] == again["usage"]["cached_tokens"] > 0


def test_run_goes_through_the_chat_template(tokenline: Any, model: list[str], tiny_torch: Model) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    expected = tiny_torch.generate(messages=messages, max_tokens=12)
    ran = tokenline("run", *model, "-p", "hi", "--system", "Be brief.", "-n", "12")
    assert (ran.code, ran.out, ran.err) == (0, expected["text"].encode(), "")


def test_chat_remembers_until_it_is_told_to_forget(model: list[str], tiny_torch: Model) -> None:
    first = tiny_torch.generate(messages=[{"role": "user", "content": "hi"}], max_tokens=6)["text"]
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "日本"},
    ]
    second = tiny_torch.generate(messages=history, max_tokens=6)["text"]
    talked = subprocess.run(
        [*TOKENLINE, "chat", *model, "-n", "6"],
        input="hi\n日本\n/reset\n\nhi\n/exit\nhi\n".encode(), capture_output=True, check=True,
    )  # fmt: skip
    assert talked.stdout.decode() == f"{first}\n{second}\n{first}\n"
    assert talked.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command: see tokenline --help"),
        (["sing"], "No such command 'sing': see tokenline --help"),
        (["generate"], "Missing option '-m' / '--model': see tokenline generate --help"),
        (["generate", "--zzzzzz"], "No such option: --zzzzzz: see tokenline generate --help"),
        (
            ["generate", "-m", "x"],
            "0 prompts were given: give exactly one of --prompt, --prompt-file, --token-ids",
        ),
        (
            ["run", "-m", "x", "-p", "a", "--prompt-file", "b"],
            "2 prompts were given: give exactly one of --prompt, --prompt-file",
        ),
        (
            ["generate", "-m", "x", "--prompt-file", "/nowhere"],
            "/nowhere cannot be read (No such file or directory): check the path",
        ),
        (
            ["generate", "-m", "x", "--token-ids", "1,b"],
            "--token-ids '1,b' is not a list of token ids: write it like 1,2,3",
        ),
        (
            ["generate", "-m", "x", "-p", "a", "--temp", "-1"],
            "temperature -1.0 is negative: use 0 (greedy) or more",
        ),
        (["generate", "-m", "x", "-p", "a", "-n", "-1"], "max_tokens -1 is negative: use 0 or more"),
        (
            ["generate", "-m", "x", "-p", "a", "--stop", ""],
            "a string of stop is empty: leave it out, or give it text",
        ),
        (
            ["generate", "-m", "x", "-p", "a", "--logit-bias", "7"],
            "--logit-bias '7' is not TOKEN_ID=BIAS: write it like 42=-100",
        ),
        (
            ["generate", "-m", "x", "-p", "a", "--repeat", "2"],
            "--repeat needs --json: add --json, or leave --repeat out",
        ),
        (
            ["generate", "-m", "x", "-p", "a"],
            "there is no model 'x': give a directory, a .gguf file or an alias (smollm2-135m)",
        ),
        (["generate", "-m", "./x.gguf", "-p", "a"], "there is no checkpoint at ./x.gguf: check the path"),
        (
            ["chat", "-m", "x", "--json-schema", "[]"],
            "--json-schema is not an object: give an object",
        ),
        (
            ["chat", "-m", "x", "--grammar", "@/nowhere"],
            "/nowhere cannot be read (No such file or directory): check the path",
        ),
        (["run", "-m", "x", "-p", "a", "--tools", "[1]"], "tools[0] is no object: write a list of objects"),
        (["models", "rm", "x"], "'x' has not been fetched: fetched so far: nothing"),
        (
            ["models", "pull", ""],
            "there is no model '': give a directory, a .gguf file or an alias (smollm2-135m)",
        ),
    ],
)
def test_bad_input_is_one_line(
    tokenline: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("TOKENLINE_HOME", str(tmp_path))
    refused(tokenline(*arguments), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", ""], "the prompt is empty: give it at least one token"),
        (
            ["-p", "a" * 2048],
            "the prompt has 2048 tokens, the context 2048: shorten the prompt: at least one token must fit after it",
        ),
        (
            ["--token-ids", "259"],
            "token 259 is outside the vocabulary of 259: use the checkpoint's token ids",
        ),
        (
            ["-p", "a\udcff"],
            "the text has half a character (a lone surrogate) at position 1: send valid Unicode",
        ),
    ],
)
def test_bad_prompts_are_one_line(
    tokenline: Any, model: list[str], arguments: list[str], message: str
) -> None:
    refused(tokenline("generate", *model, *arguments), message)


def test_a_prompt_file_that_is_no_text(tokenline: Any, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"ab\xff")
    refused(
        tokenline("generate", "-m", "x", "--prompt-file", str(tmp_path / "binary")),
        f"{tmp_path / 'binary'} is not UTF-8 (byte 2): convert it to UTF-8",
    )


def test_a_truncated_gguf_is_one_line(tokenline: Any, checkpoint_path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with checkpoint_path.open("rb") as whole:
        cut.write_bytes(whole.read(10_000_000))
    ran = tokenline("generate", "-m", str(cut), "-p", "a")
    assert ran.code == 2
    assert ran.out == b""
    assert ran.err.startswith("tokenline: ")
    assert ran.err.count("\n") == 1
    assert "cut.gguf" in ran.err


def test_help_needs_no_engine() -> None:
    program = (
        "import sys\nfrom tokenline.cli import main\n"
        "try: main(['generate', '--help'])\nexcept SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'mlx', 'numpy', 'transformers', 'uvicorn', 'huggingface_hub'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--repetition-penalty" in done.stdout


def test_models_on_disk(tokenline: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOKENLINE_HOME", str(tmp_path))
    assert tokenline("models", "list").out == b"smollm2-135m\t98 MB\tnot fetched\n"
    kept = tmp_path / "models" / "mine"
    kept.mkdir(parents=True)
    (kept / "mine.gguf").write_bytes(b"x" * 3_000_000)
    assert f"mine\t3 MB\t{kept}\n".encode() in tokenline("models", "list").out
    assert tokenline("models", "rm", "mine").code == 0
    assert not kept.exists()


def test_inspect_says_what_a_checkpoint_is(tokenline: Any, tiny_checkpoint: Path, tiny_torch: Model) -> None:
    said = json.loads(tokenline("models", "inspect", str(tiny_checkpoint)).out)
    assert (said["family"], said["vocabulary_size"], said["eos_token_ids"]) == ("llama", 259, [258])
    assert said["config"]["hidden_size"] == 64
    for name in ("weights_hash", "tokenizer_hash", "template_hash"):
        assert said[name] == tiny_torch.manifest[name]


class FailingModel:
    """Its rows say something and then fail, as a row does whose forward broke."""

    RESULT: ClassVar[dict[str, Any]] = {
        "text": "half an ans",
        "finish_reason": "error",
        "error": "the step failed",
    }

    def submit(self, _: Request) -> Generation:
        generation = Generation()
        generation.emit(Event(index=0, token_id=1, text="half an ans"))
        generation.emit(Event(result=self.RESULT))
        return generation

    def close(self) -> None:
        """Nothing to give back."""


def test_a_row_that_fails_is_told_apart_from_bad_input(
    tokenline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenline.load", lambda *_, **__: FailingModel())
    ran = tokenline("generate", "-m", "x", "-p", "a")
    assert (ran.code, ran.out, ran.err) == (1, b"half an ans", "tokenline: the step failed\n")
    ran = tokenline("run", "-m", "x", "-p", "a", "--json")
    assert (ran.code, json.loads(ran.out), ran.err) == (
        1,
        FailingModel.RESULT,
        "tokenline: the step failed\n",
    )


def endless(model: list[str], *options: str) -> subprocess.Popen[bytes]:
    command = [*TOKENLINE, "generate", *model, "-p", "Once", "-n", "1900", "--ignore-eos", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


def test_interrupted_it_keeps_what_it_said(model: list[str], tiny_torch: Model) -> None:
    process = endless(model)
    assert process.stdout is not None
    said = b""
    while len(said) < 30:
        said += process.stdout.read(30)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"tokenline: interrupted\n"
    whole = tiny_torch.generate("Once", max_tokens=1900, ignore_eos=True)["text"].encode()
    said = (said + out).removesuffix("\ufffd".encode())  # the flushed end may cut a character
    assert whole.startswith(said)
    assert len(said) < len(whole)


def test_a_reader_that_leaves_is_no_error(model: list[str]) -> None:
    process = endless(model)
    assert process.stdout is not None
    assert process.stdout.read(3)
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_text_is_utf8_whatever_the_locale(model: list[str], tiny_torch: Model) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*TOKENLINE, "generate", *model, "--prompt-file", "-", "-n", "40"],
        input=PROMPT.encode(), env=environment, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == tiny_torch.generate(PROMPT, max_tokens=40)["text"].encode()
    assert not done.stdout.isascii()
