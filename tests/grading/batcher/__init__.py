"""The cases of chapter 06, in the order of its exercises."""

from tests.grading.batcher.static import *  # noqa: F403, I001
from tests.grading.batcher.life import *  # noqa: F403
from tests.grading.batcher.queue import *  # noqa: F403
from tests.grading.batcher.queue_costs import *  # noqa: F403
from tests.grading.batcher.admission import *  # noqa: F403
from tests.grading.batcher.chunks import *  # noqa: F403
from tests.grading.batcher.ending import *  # noqa: F403
from tests.grading.batcher.books import *  # noqa: F403
from tests.grading.batcher.serving import *  # noqa: F403
from tests.grading.batcher.cancelling import *  # noqa: F403
from tests.grading.batcher.faults import *  # noqa: F403
from tests.grading.batcher.threads import *  # noqa: F403
from tests.grading.batcher.schedules import *  # noqa: F403
