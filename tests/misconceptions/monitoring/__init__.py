"""Wrong versions of chapter 08 that people really write."""

from tests.misconceptions.monitoring.causes import *  # noqa: F403
from tests.misconceptions.monitoring.exposing import *  # noqa: F403
from tests.misconceptions.monitoring.gate import *  # noqa: F403
from tests.misconceptions.monitoring.histograms import *  # noqa: F403
from tests.misconceptions.monitoring.lines import *  # noqa: F403
from tests.misconceptions.monitoring.logs import *  # noqa: F403
from tests.misconceptions.monitoring.pauses import *  # noqa: F403
from tests.misconceptions.monitoring.times import *  # noqa: F403
