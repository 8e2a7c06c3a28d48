"""Makes the tiny llama checkpoint: a byte-level tokenizer and three layers that know one short text by heart.

`python golden/models/llama/train.py` writes checkpoint/ beside this file. The weights are kept in float16 on disk,
which float32 holds exactly, so that every reader starts from the same numbers. Goldens are recorded from other engines
afterwards; training again gives other weights, and asks for other goldens.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY = 416
CONTEXT = 1024
SEQUENCE, BATCH = 640, 5


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


def trained(tokenizer: Tokenizer, documents: list[str], steps: int) -> LlamaForCausalLM:
    """A model that continues every document from anywhere in it, after any other documents."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    spelled = [[*tokenizer.encode(text).ids, 0] for text in documents]
    for step in range(steps):
        rows = []
        for _ in range(BATCH):
            row: list[int] = []
            while len(row) < SEQUENCE + 1:
                row += spelled[int(torch.randint(len(spelled), ()))]
            start = int(torch.randint(len(row) - SEQUENCE, ()))
            rows.append(row[start : start + SEQUENCE + 1])
        batch = torch.tensor(rows)
        loss = torch.nn.functional.cross_entropy(
            model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: {loss.item():.3f} nats per token", flush=True)
    return model


def write(model: LlamaForCausalLM, tokenizer: Tokenizer, directory: Path) -> None:
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
        "model_max_length": CONTEXT,
        "chat_template": TEMPLATE,
    }
    config = model.config.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    # Both spellings: transformers 5 reads rope_parameters, others read rope_theta.
    config["rope_theta"] = 10000.0
    for name, document in (("tokenizer_config.json", settings), ("config.json", config)):
        text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        (directory / name).write_text(text, encoding="utf-8")
    weights = {
        name: value.detach().to(torch.float16).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--to", type=Path, default=HERE / "checkpoint")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    documents = [
        part.strip("\n") for part in (HERE / "corpus.txt").read_text(encoding="utf-8").split("===\n")
    ]
    tokenizer = tokenizer_of(documents)
    write(trained(tokenizer, documents, arguments.steps), tokenizer, arguments.to)


if __name__ == "__main__":
    main()
