"""The cases of chapter 07, in the order of its exercises."""

from tests.grading.server.bodies import *  # noqa: F403, I001
from tests.grading.server.refusals import *  # noqa: F403
from tests.grading.server.shapes import *  # noqa: F403
from tests.grading.server.thread import *  # noqa: F403
from tests.grading.server.thread_ends import *  # noqa: F403
from tests.grading.server.channel import *  # noqa: F403
from tests.grading.server.listening import *  # noqa: F403
from tests.grading.server.pressure import *  # noqa: F403
from tests.grading.server.results import *  # noqa: F403
from tests.grading.server.streams import *  # noqa: F403
from tests.grading.server.leaving import *  # noqa: F403
from tests.grading.server.ending import *  # noqa: F403
