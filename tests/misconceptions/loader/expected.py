"""Wrong versions of 2.4 expected_tensors."""

from course.misconceptions import misconception
from solutions.checkpoint import _layer_tensors


@misconception("2.4", "_layer_tensors")
def matrices_in_out(config):
    """Your matrices are [in, out]. Hugging Face stores what torch's Linear holds, [out, in]: the
    product is x @ weight.T.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    shared = config.num_key_value_heads * config.head_dim
    return {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (hidden, queries),
        "self_attn.k_proj": (hidden, shared),
        "self_attn.v_proj": (hidden, shared),
        "self_attn.o_proj": (queries, hidden),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }


@misconception("2.4", "_layer_tensors")
def queries_as_wide_as_the_model(config):
    """Your q_proj and o_proj are [E, E]. The query heads together are H D wide, which is E in many
    models and not in all.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    shared = config.num_key_value_heads * config.head_dim
    return {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (shared, hidden),
        "self_attn.v_proj": (shared, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }


@misconception("2.4", "_layer_tensors")
def keys_as_wide_as_queries(config):
    """Your k_proj and v_proj are as wide as q_proj. With grouped-query attention there are fewer
    key/value heads than query heads: KV D rows.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    return {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (queries, hidden),
        "self_attn.v_proj": (queries, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }


@misconception("2.4", "expected_tensors")
def head_always(config):
    """You list lm_head.weight in any case. A tied head is the embedding itself: most files of such
    models do not have it.
    """
    shapes = {"model.embed_tokens": (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_hidden_layers):
        parts = _layer_tensors(config).items()
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in parts}
    shapes["model.norm"] = (config.hidden_size,)
    shapes["lm_head"] = (config.vocab_size, config.hidden_size)
    return {f"{name}.weight": shape for name, shape in shapes.items()}


@misconception("2.4", "expected_tensors")
def layers_from_one(config):
    """You count the layers from 1. The first one is model.layers.0."""
    shapes = {"model.embed_tokens": (config.vocab_size, config.hidden_size)}
    for layer in range(1, config.num_hidden_layers + 1):
        parts = _layer_tensors(config).items()
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in parts}
    shapes["model.norm"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, config.hidden_size)
    return {f"{name}.weight": shape for name, shape in shapes.items()}


@misconception("2.4", "expected_tensors")
def embedding_at_the_end(config):
    """Your tensors are in another order than they are listed in: embedding, layers, norm, head. It
    is the order in which they are used, and in which they are loaded.
    """
    shapes = {}
    for layer in range(config.num_hidden_layers):
        parts = _layer_tensors(config).items()
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in parts}
    shapes["model.norm"] = (config.hidden_size,)
    shapes["model.embed_tokens"] = (config.vocab_size, config.hidden_size)
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, config.hidden_size)
    return {f"{name}.weight": shape for name, shape in shapes.items()}
