"""The people who use the service in a drill, each a thread that asks again and again.

They wait for their answer before they ask again (a closed loop), so that the usual ones alone never
overload a slow machine.
"""

import json
import socket
import threading
from collections.abc import Callable, Sequence
from itertools import count

import httpx

CHAT = "/v1/chat/completions"
QUESTIONS = (  # to which the model finds an end soon
    "What is the capital of France?",
    "What is the capital of Italy?",
    "What is the capital of Japan?",
    "How many days has a week?",
    "Name a colour.",
    "Say hello.",
)
PATIENCE = 60.0  # seconds that somebody waits for an answer
THOUGHT = 1.5  # seconds of the usual ones between an answer and the next question
PAUSE = 0.3  # seconds of those who are in a hurry
Client = Callable[[str, threading.Event, int], None]


def start(url: str, clients: Sequence[Client], stop: threading.Event) -> list[threading.Thread]:
    """Let these clients ask until stop is set. They are daemons: nobody has to wait for them."""
    threads = [
        threading.Thread(target=_again, args=(client, url, stop, number), daemon=True)
        for number, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    return threads


def _again(client: Client, url: str, stop: threading.Event, number: int) -> None:
    """A client goes on, whatever happened to the last request."""
    while not stop.is_set():
        try:
            client(url, stop, number)
        except (httpx.HTTPError, OSError):
            stop.wait(PAUSE)


def asker(url: str, stop: threading.Event, number: int) -> None:
    """The usual one: short questions, half of them as a stream."""
    with httpx.Client(base_url=url, timeout=PATIENCE) as client:
        for turn in count(number):
            if stop.wait(THOUGHT):
                return
            question = [{"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]}]
            body = {"messages": question, "max_tokens": 32, "temperature": 0}
            client.post(CHAT, json=body | {"stream": turn % 2 == 0})


USUAL: tuple[Client, ...] = (asker, asker, asker)


def long_prompts(url: str, stop: threading.Event, number: int) -> None:
    """Whole documents, with a short question behind each."""
    with httpx.Client(base_url=url, timeout=PATIENCE) as client:
        for turn in count():
            if stop.wait(PAUSE):
                return
            text = f"Report {turn}. " + "The parcel was sent on a day in spring. " * 160
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4}
            client.post(CHAT, json=body)


def pusher(url: str, stop: threading.Event, number: int) -> None:
    """One of very many who all want something now."""
    with httpx.Client(base_url=url, timeout=PATIENCE) as client:
        while not stop.is_set():
            question = [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}]
            body = {"messages": question, "max_tokens": 32, "temperature": 0}
            if client.post(CHAT, json=body).status_code == 503:
                stop.wait(PAUSE)  # not as long as they were asked to wait


def slow_reader(url: str, stop: threading.Event, number: int) -> None:
    """A phone in a tunnel: reads a stream at half a kilobyte a second."""
    stop.wait(2.0 * number)  # not all at the same time
    host, port = url.removeprefix("http://").rsplit(":", 1)
    body = {"prompt": "Once upon a time", "max_tokens": 24, "stream": True, "ignore_eos": True}
    body |= {"logprobs": 5}  # much to read for few tokens
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n"
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.settimeout(PATIENCE)
        sock.connect((host, int(port)))
        sock.sendall(f"{head}Connection: close\r\n\r\n".encode() + data)
        while not stop.wait(0.25) and sock.recv(128):
            pass
