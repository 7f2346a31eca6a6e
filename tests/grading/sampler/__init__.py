"""The cases of chapter 05, in the order of its exercises."""

from tests.grading.sampler.temperature import *  # noqa: F403,I001
from tests.grading.sampler.filters import *  # noqa: F403
from tests.grading.sampler.penalties import *  # noqa: F403
from tests.grading.sampler.drawing import *  # noqa: F403
from tests.grading.sampler.picking import *  # noqa: F403
from tests.grading.sampler.sampling import *  # noqa: F403
from tests.grading.sampler.logprobs import *  # noqa: F403
from tests.grading.sampler.stopping import *  # noqa: F403
from tests.grading.sampler.text_out import *  # noqa: F403
from tests.grading.sampler.comparing import *  # noqa: F403
from tests.grading.sampler.costs import *  # noqa: F403
