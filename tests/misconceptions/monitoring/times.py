"""Wrong versions of 8.1."""

from course.misconceptions import misconception
from solutions.events import Admitted, Arrived, Finished, Token
from solutions.request_timing import Timeline


@misconception("8.1", "Timeline.first_token")
def first_token_from_admission(self):
    """You measure the first token from the admission. The user waits from the arrival on: a service
    with a full queue would look as quick as an empty one.
    """
    return self.tokens[0] - self.admitted if self.tokens and self.admitted is not None else None


@misconception("8.1", "Timeline.tokens_per_second")
def speed_with_the_wait(self):
    """You divide all tokens by the whole time. Then a request that waited long seems to be written
    slowly. The wait for the first token has a number of its own: leave it out, and its token too.
    """
    if len(self.tokens) < 2 or self.end is None:
        return None
    return len(self.tokens) / (self.end.at - self.request.at)


@misconception("8.1", "Timeline.gap")
def gap_through_all_tokens(self):
    """You make the list of all gaps to get the newest. It is asked for at every token, so that an
    answer of n tokens costs n squared: subtract the last two moments.
    """
    return self.inter_token[-1] if len(self.tokens) > 1 else None


@misconception("8.1", "Timeline.note")
def last_admission_counts(self, event):
    """You keep the last admission. A request that was sent back to the queue and admitted again
    would have waited in the queue while it was already writing: the first one counts.
    """
    if isinstance(event, Token):
        self.tokens.append(event.at)
    elif isinstance(event, Admitted):
        self.admitted = event.at
    elif isinstance(event, Finished):
        self.end = event


@misconception("8.1", "Timings.watch")
def finished_are_kept(self, event):
    """You never forget a request that is over. A service that runs for a month has served millions
    of them: take the timeline out of the dict when its Finished has come.
    """
    with self._lock:
        if isinstance(event, Arrived):
            return self._begin(event)
        timeline = self._known.get(getattr(event, "id", None))
        if timeline is not None:
            timeline.note(event)
        return timeline


@misconception("8.1", "Timings._begin")
def newest_dropped(self, event):
    """You refuse new requests when there are too many. Then one leak of old ones makes the service
    blind for ever: forget the one that arrived first.
    """
    self._known.pop(event.id, None)
    timeline = self._known[event.id] = Timeline(event)
    if len(self._known) > self.limit:
        del self._known[event.id]
        self.forgotten += 1
    return timeline


@misconception("8.1", "percentile")
def rank_rounded_down(values, percent):
    """You round the rank down. The value there is exceeded by more than the rest: of ten values the
    95th percentile would be the ninth. Round up, as ceil does.
    """
    if not len(values):
        raise ValueError("no values")
    if not 0 < percent <= 100:
        raise ValueError(f"percent {percent}")
    return sorted(values)[max(int(percent * len(values) / 100), 1) - 1]


@misconception("8.1", "percentile")
def rank_from_zero(values, percent):
    """You take the value at index percent * n / 100. Ranks begin at 1 and indices at 0: of two
    values, the 50th percentile would be the larger one.
    """
    if not len(values):
        raise ValueError("no values")
    if not 0 < percent <= 100:
        raise ValueError(f"percent {percent}")
    return sorted(values)[min(int(percent * len(values) / 100), len(values) - 1)]
