"""Makes the tiny checkpoints: a byte-level tokenizer and a few layers of a family that know one short text by heart.

`python golden/models/make.py qwen3 [--steps 300]` writes golden/models/qwen3/checkpoint/. What is said of each family
(its published architecture at toy size) stands in `architectures/`. The weights are kept in float16 on disk, which
float32 holds exactly, so that every reader starts from the same numbers. Goldens are recorded from other engines
afterwards; training again gives other weights, and asks for other goldens.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from architectures import FAMILIES, Tiny
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

HERE = Path(__file__).parent
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY = 416


def tokenizer_of(documents: list[str]) -> Tokenizer:
    """Byte-level BPE whose merges come from the text; rare characters stay several tokens long."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=4,
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def trained(tiny: Tiny, tokenizer: Tokenizer, documents: list[str], steps: int) -> PreTrainedModel:
    """A model that continues every document from anywhere in it, after any other documents."""
    torch.manual_seed(7)
    shared = {
        "vocab_size": tokenizer.get_vocab_size(),
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config = AutoConfig.for_model(tiny.model_type, **{**shared, **tiny.config})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            for ending, deviation in tiny.noise.items():
                if name.endswith(ending):
                    value.normal_(0.0, deviation)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=tiny.rate, weight_decay=0.01, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, tiny.rate, total_steps=steps, pct_start=0.1)
    spelled = [[*tokenizer.encode(text).ids, 0] for text in documents]
    for step in range(steps):
        rows = []
        for _ in range(tiny.batch):
            row: list[int] = []
            while len(row) < tiny.sequence + 1:
                row += spelled[int(torch.randint(len(spelled), ()))]
            start = int(torch.randint(len(row) - tiny.sequence, ()))
            rows.append(row[start : start + tiny.sequence + 1])
        batch = torch.tensor(rows)
        loss = torch.nn.functional.cross_entropy(
            model(batch[:, :-1], use_cache=False).logits.flatten(0, 1), batch[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: {loss.item():.3f} nats per token", flush=True)
    return model


def write(tiny: Tiny, model: PreTrainedModel, tokenizer: Tokenizer, directory: Path) -> None:
    """A Hugging Face directory."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0],
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.config.get_text_config().max_position_embeddings
        if hasattr(model.config.get_text_config(), "max_position_embeddings")
        else tiny.sequence,
        "chat_template": TEMPLATE,
    }
    # The keys of the published configurations beside those of transformers 5, which other readers do not know.
    own = {"dtype": "float32", "architectures": [type(model).__name__]}
    config: dict[str, Any] = {**model.config.to_dict(), **own, **tiny.published}
    config.pop("_attn_implementation_autoset", None)
    if tiny.inside is not None:
        tied = config["tie_word_embeddings"]
        config = {"model_type": tiny.inside, "tie_word_embeddings": tied, "text_config": config}
    for name, document in (("tokenizer_config.json", settings), ("config.json", config)):
        text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        (directory / name).write_text(text, encoding="utf-8")
    tied = bool(model.config.get_text_config().tie_word_embeddings)
    # The names and layouts of the published checkpoints (experts one by one), not those in memory.
    stored = revert_weight_conversion(model, model.state_dict())
    weights: dict[str, torch.Tensor] = {}
    for name, value in stored.items():
        if tied and name == "lm_head.weight":
            continue
        as_is = {name: value.detach().to(torch.float16)}
        weights |= tiny.packed(name, value.detach()) or as_is
    if tiny.inside is not None:
        alone, held = tiny.named
        weights = {
            held + name.removeprefix(alone) if name.startswith(alone) else name: value
            for name, value in weights.items()
        }
    weights = {name: value.contiguous() for name, value in weights.items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--to", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tiny = FAMILIES[arguments.family]
    documents = [
        part.strip("\n") for part in (HERE / "corpus.txt").read_text(encoding="utf-8").split("===\n")
    ]
    tokenizer = tokenizer_of(documents)
    model = trained(tiny, tokenizer, documents, arguments.steps or tiny.steps)
    write(tiny, model, tokenizer, arguments.to or HERE / arguments.family / "checkpoint")


if __name__ == "__main__":
    main()
