"""The cases of chapter 04, in the order of its exercises."""

from tests.grading.forward_pass.arithmetic import *  # noqa: F403
from tests.grading.forward_pass.attention import *  # noqa: F403
from tests.grading.forward_pass.cache import *  # noqa: F403
from tests.grading.forward_pass.chat import *  # noqa: F403
from tests.grading.forward_pass.feed_forward import *  # noqa: F403
from tests.grading.forward_pass.greedy import *  # noqa: F403
from tests.grading.forward_pass.model import *  # noqa: F403
