"""The scenarios of chapter 06."""

from tests.scenarios.batcher_queue import *  # noqa: F403
from tests.scenarios.batcher_requests import *  # noqa: F403
from tests.scenarios.batcher_serve import *  # noqa: F403
from tests.scenarios.batcher_static import *  # noqa: F403
from tests.scenarios.batcher_steps import *  # noqa: F403
from tests.scenarios.batcher_threads import *  # noqa: F403
