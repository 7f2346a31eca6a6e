"""Wrong versions of chapter 02's definitions."""

from tests.misconceptions.loader.config import *  # noqa: F403
from tests.misconceptions.loader.expected import *  # noqa: F403
from tests.misconceptions.loader.header import *  # noqa: F403
from tests.misconceptions.loader.report import *  # noqa: F403
from tests.misconceptions.loader.shards import *  # noqa: F403
from tests.misconceptions.loader.stages import *  # noqa: F403
from tests.misconceptions.loader.views import *  # noqa: F403
