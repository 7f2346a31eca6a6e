"""The cases of chapter 08, in the order of its exercises."""

from tests.grading.monitoring.times import *  # noqa: F403, I001
from tests.grading.monitoring.histograms import *  # noqa: F403
from tests.grading.monitoring.exposing import *  # noqa: F403
from tests.grading.monitoring.logs import *  # noqa: F403
from tests.grading.monitoring.daily import *  # noqa: F403
from tests.grading.monitoring.lines import *  # noqa: F403
from tests.grading.monitoring.series import *  # noqa: F403
from tests.grading.monitoring.pauses import *  # noqa: F403
from tests.grading.monitoring.causes import *  # noqa: F403
from tests.grading.monitoring.gate import *  # noqa: F403
