"""The scenarios of chapter 05."""

from tests.scenarios.sampler_compare import *  # noqa: F403
from tests.scenarios.sampler_draws import *  # noqa: F403
from tests.scenarios.sampler_text import *  # noqa: F403
