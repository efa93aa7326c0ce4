"""Keys and sizes that the configs of all tiny checkpoints share."""

import gguf

VOCAB = 97
Q = gguf.GGMLQuantizationType

# Keys every config shares; each family below adds its own, as such files do in the wild.
COMMON = dict(hidden_act="silu", vocab_size=VOCAB, max_position_embeddings=256, bos_token_id=1,
              eos_token_id=2, initializer_range=0.02, use_cache=True)


def family(architecture, model_type, **keys):
    return dict(COMMON, architectures=[architecture], model_type=model_type, **keys)


def sizes(hidden, inner, layers, heads, kv_heads, **keys):
    return dict(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv_heads, **keys)
