"""6.5 plan_step and compute."""

import torch

from tests.parts import part


def planned(m, change) -> None:
    """change(right, running, budget) takes plan_step's place; running is a list."""
    right = m.plan_step

    def plan_step(running, budget):
        return change(right, list(running), budget)

    m.plan_step = plan_step


@part("6.5")
def walked_twice(m):
    """The requests are walked through twice, which a generator does not allow."""

    def plan_step(running, budget, right=m.plan_step):
        prompts = [request for request in running if request.state == "prefill"]
        return right([*prompts, *(r for r in running if r.state == "decode")], budget)

    m.plan_step = plan_step


@part("6.5")
def decodes_by_admission(m):
    """Decodes come in the order of admission."""

    def change(right, running, budget):
        plan = right(running, budget)
        decodes = [(r, 1) for r in running if r.state == "decode"]
        return m.Plan(decodes, plan.prefills)

    planned(m, change)


@part("6.5")
def full_crowd_refused(m):
    """As many requests as places are an error."""

    def change(right, running, budget):
        if running and len(running) >= budget:
            raise ValueError(f"{len(running)} in {budget}")
        return right(running, budget)

    planned(m, change)


@part("6.5")
def crowd_of_prompts_accepted(m):
    """Only decodes are counted against the places."""

    def change(right, running, budget):
        decodes = [r for r in running if r.state == "decode"]
        left = budget - len(decodes)
        prompts = [r for r in running if r.state == "prefill"][: max(left, 0)]
        return right(decodes + prompts, budget)

    planned(m, change)


@part("6.5")
def crowd_unnamed(m):
    """The message names the places only."""

    def change(right, running, budget):
        if len(running) > budget:
            raise ValueError(f"more than {budget}")
        return right(running, budget)

    planned(m, change)


@part("6.5")
def budget_for_prompts_alone(m):
    """The decodes do not count against the places."""

    def change(right, running, budget):
        decodes = sum(r.state == "decode" for r in running)
        right(running, budget)
        return right(running, budget + decodes)

    planned(m, change)


@part("6.5")
def one_place_less(m):
    """The last place stays empty."""

    def change(right, running, budget):
        right(running, budget)
        return right(running, max(budget - 1, len(running)))

    planned(m, change)


@part("6.5")
def one_prompt_a_step(m):
    """Only one prompt is computed in a step."""

    def change(right, running, budget):
        right(running, budget)
        prompts = [r for r in running if r.state == "prefill"][:1]
        return right([*(r for r in running if r.state == "decode"), *prompts], budget)

    planned(m, change)


@part("6.5")
def others_by_admission(m):
    """The others come in the order of their admission."""

    def change(right, running, budget):
        right(running, budget)
        decodes = sorted((r for r in running if r.state == "decode"), key=lambda r: r.row)
        prompts, left = [r for r in running if r.state == "prefill"], budget - len(decodes)
        chunks, longest = [], 0
        for rows, request in enumerate(prompts[1:], 2):
            count = min(request.remaining, left // rows)
            longest = max(longest, count)
            if rows * longest > left:
                break
            chunks.append((request, count))
        first = [(r, min(r.remaining, left // (1 + len(chunks)))) for r in prompts[:1]]
        return m.Plan([(r, 1) for r in decodes], first + chunks)

    planned(m, change)


@part("6.5")
def whole_length_counts(m):
    """The others come by the length of their prompts, not by what remains of them."""

    def change(right, running, budget):
        right(running, budget)
        decodes = sorted((r for r in running if r.state == "decode"), key=lambda r: r.row)
        prompts, left = [r for r in running if r.state == "prefill"], budget - len(decodes)
        chunks, longest = [], 0
        for rows, request in enumerate(sorted(prompts[1:], key=lambda r: len(r.prompt)), 2):
            count = min(request.remaining, left // rows)
            longest = max(longest, count)
            if rows * longest > left:
                break
            chunks.append((request, count))
        first = [(r, min(r.remaining, left // (1 + len(chunks)))) for r in prompts[:1]]
        return m.Plan([(r, 1) for r in decodes], first + chunks)

    planned(m, change)


@part("6.5")
def first_comes_last(m):
    """The first prompt stands behind the others."""

    def change(right, running, budget):
        plan = right(running, budget)
        return m.Plan(plan.decodes, [*plan.prefills[1:], *plan.prefills[:1]])

    planned(m, change)


@part("6.5")
def counted_when_planned(m):
    """`computed` grows with the plan."""

    def change(right, running, budget):
        plan = right(running, budget)
        for request, count in plan.prefills:
            request.computed += count
        return plan

    planned(m, change)


def computed(m, change) -> None:
    """change(right, model, cache, chunks) takes compute's place."""
    right = m.compute
    m.compute = lambda model, cache, chunks: change(right, model, cache, list(chunks))


@part("6.5")
def one_forward_each(m):
    """Every chunk is a forward of its own."""

    def change(right, model, cache, chunks):
        found = [right(model, cache, [chunk]) for chunk in chunks]
        requests = [request for part, _ in found for request in part]
        logits = [rows for _, rows in found if rows is not None]
        return requests, torch.cat(logits) if logits else None

    computed(m, change)


@part("6.5")
def forward_of_nothing(m):
    """Without chunks the model is called all the same."""

    def change(right, model, cache, chunks):
        if not chunks:
            one = torch.zeros((1, 1), dtype=torch.long)
            model.forward(one, one, None)
        return right(model, cache, chunks)

    computed(m, change)


@part("6.5")
def logits_of_all(m):
    """There are logits for those that are not complete too."""

    def change(right, model, cache, chunks):
        complete = []
        right_complete = m._complete
        m._complete = lambda requests, logits: (
            complete.append(logits) or right_complete(requests, logits)
        )
        try:
            requests, _ = right(model, cache, chunks)
        finally:
            m._complete = right_complete
        return requests, complete[0] if complete else None

    computed(m, change)


@part("6.5")
def no_rows_instead_of_none(m):
    """Where nobody is complete, the logits are an empty tensor."""

    def change(right, model, cache, chunks):
        requests, logits = right(model, cache, chunks)
        return requests, torch.zeros((0, 5)) if logits is None else logits

    computed(m, change)


@part("6.5")
def complete_ones_by_row(m):
    """The complete ones come in the order of their rows."""

    def change(right, model, cache, chunks):
        return right(model, cache, sorted(chunks, key=lambda chunk: chunk[0].row))

    computed(m, change)


@part("6.5")
def half_counted_after_an_error(m):
    """When the forward fails, the first request has grown."""

    def change(right, model, cache, chunks):
        try:
            return right(model, cache, chunks)
        except BaseException:
            chunks[0][0].computed += chunks[0][1]
            raise

    computed(m, change)


@part("6.5")
def error_swallowed(m):
    """When the forward fails, nobody is complete, and nobody hears why."""

    def change(right, model, cache, chunks):
        try:
            return right(model, cache, chunks)
        except Exception:
            return [], None

    computed(m, change)


@part("6.5")
def complete_when_the_prompt_is(m):
    """A request is complete as soon as its prompt is, and a decode always."""

    def complete(requests, logits):
        places = [n for n, r in enumerate(requests) if r.computed >= len(r.prompt) - 1]
        return [requests[n] for n in places], logits[places] if places else None

    m._complete = complete


@part("6.5")
def decode_at_the_end_of_the_prompt(m):
    """A decode computes its token at the position behind the prompt."""

    def change(right, model, cache, chunks):
        kept = [(r, r.computed) for r, _ in chunks if r.output]
        for request, _ in kept:
            request.output, request.computed = request.output[-1:], len(request.prompt) - 1
        return right(model, cache, chunks)

    computed(m, change)
