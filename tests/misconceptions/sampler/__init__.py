"""Wrong versions of chapter 05's definitions, in the order of its exercises."""

from tests.misconceptions.sampler.temperature import *  # noqa: F403,I001
from tests.misconceptions.sampler.filters import *  # noqa: F403
from tests.misconceptions.sampler.penalties import *  # noqa: F403
from tests.misconceptions.sampler.drawing import *  # noqa: F403
from tests.misconceptions.sampler.logprobs import *  # noqa: F403
from tests.misconceptions.sampler.stopping import *  # noqa: F403
from tests.misconceptions.sampler.text_out import *  # noqa: F403
from tests.misconceptions.sampler.comparing import *  # noqa: F403
