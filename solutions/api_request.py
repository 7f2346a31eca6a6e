"""Chapter 07: the fields that a body may have, and what is made of them.

Every field of the OpenAI API is honoured, or refused by name. To ignore one in silence would be a
lie: the client believes that it got what it asked for.
"""

from dataclasses import dataclass

from solutions.sampling_params import SamplingParams

CHAT = "chat"  # the two endpoints
COMPLETION = "completion"
MAX_CHOICES = 16  # answers to one body: prompts times n

SAMPLING = (  # go to SamplingParams as they are, under their own name
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop"),
    *("top_k", "min_p", "repetition_penalty"),  # not in OpenAI's API, but in vLLM's
)
BOTH = ("model", "n", "stream", "stream_options", "max_tokens", "logprobs", "ignore_eos")
HONOURED = {
    CHAT: ("messages", "max_completion_tokens", "top_logprobs", *BOTH, *SAMPLING),
    COMPLETION: ("prompt", *BOTH, *SAMPLING),
}
# Accepted, whatever they are: they say nothing about the answer.
HARMLESS = ("user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key")
# Refused, but for the values with which they change nothing.
UNSUPPORTED = {
    CHAT: {
        "tools": [[]],
        "tool_choice": ["none", "auto"],
        "parallel_tool_calls": [True, False],
        "functions": [[]],
        "function_call": ["none", "auto"],
        "response_format": [{"type": "text"}],
        "logit_bias": [{}],
        "modalities": [["text"]],
        "audio": [],
        "prediction": [],
        "reasoning_effort": [],
        "verbosity": [],
        "web_search_options": [],
        "store": [False],
    },
    COMPLETION: {"best_of": [1], "echo": [False], "suffix": [""], "logit_bias": [{}]},
}

Message = dict[str, str]  # {"role": one of ROLES, "content": text}


@dataclass(frozen=True)
class ApiRequest:
    """What a body asks for, understood and checked.

    Args:
        endpoint: CHAT or COMPLETION.
        prompts: what is to be continued: texts, or lists of token ids; of CHAT exactly one, a list
            of messages.
        params: how the tokens are chosen, and how many there may be.
        n: answers to each prompt.
        stream: as events, token by token.
        include_usage: one event more, with the numbers of tokens.
        ignore_eos: an end id is a token like any other (for benchmarks).
    """

    endpoint: str
    prompts: list[str | list[int] | list[Message]]
    params: SamplingParams
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    ignore_eos: bool = False

    @property
    def choices(self) -> int:
        """How many answers it asks for, all prompts together."""
        return self.n * len(self.prompts)
