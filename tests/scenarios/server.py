"""The scenarios of chapter 07."""

from tests.scenarios.server_bodies import *  # noqa: F403
from tests.scenarios.server_bounds import *  # noqa: F403
from tests.scenarios.server_channel import *  # noqa: F403
from tests.scenarios.server_streams import *  # noqa: F403
from tests.scenarios.server_thread import *  # noqa: F403
from tests.scenarios.server_thread_ends import *  # noqa: F403
