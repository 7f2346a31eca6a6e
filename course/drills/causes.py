"""What an answer may be, and what to look at for whoever answered wrongly."""

CAUSES = {  # cause: in words
    "stuck_engine": "the engine hangs in a step and computes nothing",
    "memory_leak": "something keeps memory that is not needed any more",
    "collector_pauses": "the garbage collector stops everything, again and again",
    "garbled_output": "the model computes, but what it writes is nonsense",
    "out_of_memory": "a step fails because there is no memory for it",
    "failing_requests": "requests end with an exception",
    "huge_request": "a prompt of unusual length is computed, and others wait for it",
    "slow_machine": "the same work takes longer than it did",
    "slow_client": "the service is well; somebody reads the answer slowly",
    "queue_storm": "more requests come than can be served",
    "full_cache": "the KV cache is full, so that requests wait for room in it",
    "impatient_clients": "clients go away before they have their answer",
    "missed_deadlines": "requests run out of the time that they were given",
    "nothing": "nothing is wrong",
}

# What would be seen if the answer were right. It is true whatever the fault is.
NUDGES = {
    "stuck_engine": "An engine that hangs makes no step. Read llm_step_seconds_count twice, ten "
    "seconds apart: does it stand still while llm_requests_running is above 0?",
    "memory_leak": "A leak only grows: read llm_memory_bytes of process_resident at the beginning, "
    "now, and in half a minute. Is it at least a tenth more, and still rising?",
    "collector_pauses": "Every run of the collector is measured. How many seconds of the last "
    "thirty are in llm_gc_pause_seconds_sum? Below one or two it is not that.",
    "garbled_output": "A model that writes nonsense seldom finds its end. Compare stop and length "
    "of llm_requests_total, now and in the first half minute; and read an answer on the chat page.",
    "out_of_memory": "A step that finds no memory is counted: llm_step_errors_total, fault memory. "
    "And such a request ends as error in llm_requests_total. Is there one?",
    "failing_requests": "Look at error in llm_requests_total and at the error log in the folder. "
    "Is there a line at all?",
    "huge_request": "The length of every prompt is in llm_request_prompt_tokens, and in the "
    "request log. What is the longest since the complaint, and what was it before?",
    "slow_machine": "On a slow machine every step takes longer, with as few tokens in it as "
    "before. Compare the median of llm_step_seconds, and the tokens a step, then and now. And add "
    "up what else takes time: pauses of the collector, long prompts.",
    "slow_client": "How long a finished answer waits for its reader is in llm_send_lag_seconds. "
    "Is it a second or more for anybody?",
    "queue_storm": "In a storm the engine works all the time and still the queue is long: compare "
    "llm_requests_waiting with llm_requests_running, look for queue_full in "
    "llm_requests_rejected_total, and see that llm_step_seconds_count grows.",
    "full_cache": "Look at llm_kv_cache_usage_ratio: is it near 1 while others wait?",
    "impatient_clients": "A client that goes away leaves a request that ends as cancelled. Is that "
    "a large share of llm_requests_total since the complaint?",
    "missed_deadlines": "Those end as timeout in llm_requests_total. Are there any?",
    "nothing": "Take two readings of /metrics, half a minute apart, and compare them with the "
    "first half minute, figure by figure: steps, first token, inter-token, finish reasons, prompt "
    "lengths, queue, memory, pauses, send lag. One of them is not what it was.",
}
