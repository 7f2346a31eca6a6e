"""The cases of chapter 02, in the order of its exercises."""

from tests.grading.loader.config import *  # noqa: F403
from tests.grading.loader.expected import *  # noqa: F403
from tests.grading.loader.header import *  # noqa: F403
from tests.grading.loader.header_lies import *  # noqa: F403
from tests.grading.loader.report import *  # noqa: F403
from tests.grading.loader.shards import *  # noqa: F403
from tests.grading.loader.stages import *  # noqa: F403
from tests.grading.loader.views import *  # noqa: F403
