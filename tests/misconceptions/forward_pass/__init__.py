"""Wrong versions of chapter 04's definitions, in the order of its exercises."""

from tests.misconceptions.forward_pass.arithmetic import *  # noqa: F403
from tests.misconceptions.forward_pass.attention import *  # noqa: F403
from tests.misconceptions.forward_pass.cache import *  # noqa: F403
from tests.misconceptions.forward_pass.chat import *  # noqa: F403
from tests.misconceptions.forward_pass.greedy import *  # noqa: F403
from tests.misconceptions.forward_pass.model import *  # noqa: F403
from tests.misconceptions.forward_pass.residual import *  # noqa: F403
