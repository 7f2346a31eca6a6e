"""The scenarios of chapter 08."""

from tests.scenarios.monitoring_events import *  # noqa: F403
from tests.scenarios.monitoring_gate import *  # noqa: F403
from tests.scenarios.monitoring_logs import *  # noqa: F403
from tests.scenarios.monitoring_pauses import *  # noqa: F403
