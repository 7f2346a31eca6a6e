"""Wrong versions of chapter 07's definitions, in the order of its exercises."""

from tests.misconceptions.server.bodies import *  # noqa: F403, I001
from tests.misconceptions.server.shapes import *  # noqa: F403
from tests.misconceptions.server.thread import *  # noqa: F403
from tests.misconceptions.server.channel import *  # noqa: F403
from tests.misconceptions.server.pressure import *  # noqa: F403
from tests.misconceptions.server.results import *  # noqa: F403
from tests.misconceptions.server.streams import *  # noqa: F403
from tests.misconceptions.server.ending import *  # noqa: F403
