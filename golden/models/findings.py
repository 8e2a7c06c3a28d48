"""What is known of the oracles: where one of them says something else than a family, or does not have it, and why."""

from __future__ import annotations

from typing import Any

# Families of which mlx-lm says something else than transformers, by more than rounding, and what was found.
# A test asserts that it still does: where a version has mended it, the entry goes.
MLX_LM_DIFFERS: dict[str, str] = {
    "falcon_h1": "mlx-lm multiplies weights as it loads them and looks for key_proj, a name that no checkpoint has, so "
    "that key_multiplier is lost; transformers, where its authors published the family, multiplies the keys. The "
    "products are rounded to the dtype of the file besides, which moves logits of a float16 one by 2e-4 of the range.",
    "mamba2": "mlx-lm norms the gated output as one vector, whatever n_groups says. The published code (mamba_ssm's "
    "RMSNormGated, with a group_size of d_ssm / ngroups) and transformers norm every group by itself; with one group "
    "all agree.",
    "qwen3_5": "mlx-lm adds the one to norms that are stored around zero in the dtype of the file, and so rounds them; "
    "transformers adds it in float32, as the published code does. With a file in float32 both agree.",
    "qwen3_next": "As qwen3_5; a norm that is rounded sends some tokens to other experts besides.",
    "gpt_oss": "The published configuration says that yarn's ramp begins and ends between dimensions (rope_scaling's "
    'truncate is false). mlx-lm does not read that key and rounds both ends to whole dimensions; with "truncate": true '
    "all three agree. transformers does as OpenAI's reference code, which never rounds them.",
    "gemma2": "mlx-lm has one causal mask for all layers and reads no sliding_window. transformers is right: every "
    "other layer attends to the last 4096 tokens (Gemma 2 report, section 2; the published configuration). Up to "
    "that length both say the same.",
    "mistral": "mlx-lm loads it as a llama, whose layers slide only where layer_types says so, and published Mistral "
    "configurations have none. transformers is right: every layer attends to the last sliding_window tokens "
    "(Mistral 7B paper, section 2).",
}
# What makes transformers say what mlx-lm says of these, where that shows the cause.
AS_MLX_LM_READS: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window": 1024},
    "mistral": {"sliding_window": None},
}

# Families that transformers does not have, and the one of its own that is the same function of the same file.
TRANSFORMERS_LACKS: dict[str, str] = {
    # A Granite whose multipliers are MiniCPM's: the residual one scale_depth over the root of the depth, the logits
    # divided by width over dim_model_base. The file keeps both families' keys; mlx-lm reads MiniCPM's.
    "minicpm": "granite",
}

# Families of which transformers itself says something else than the published code: what was found, and what it is
# told instead of the file so that it stands for the family. A test asserts that it is needed; mlx-lm then agrees.
TRANSFORMERS_DIFFERS: dict[str, tuple[str, dict[str, Any]]] = {
    "nemotron_h": (
        "transformers limits a step's length from below by time_step_min (0.001), a bound of the initialization. The "
        "published code and mlx-lm limit it by time_step_limit, in the published configurations 0 to infinity.",
        {"time_step_min": 0.0},
    ),
}

# Families of which transformers says the same only for long texts.
TRANSFORMERS_BY_LENGTH: dict[str, str] = {
    "phi3": "transformers takes other factors of rope for texts within the trained length; mlx-lm, and this engine, "
    "those of the context that was opened. Longer texts say the same.",
}

# Families whose tokenizer transformers takes from its own code and not from tokenizer.json: the tiny checkpoints' file
# cuts blank lines otherwise. Published checkpoints hold the same rule in the file.
TRANSFORMERS_CUTS_OTHERWISE = ("qwen2", "qwen3_5")
