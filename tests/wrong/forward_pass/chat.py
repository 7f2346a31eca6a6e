"""4.7 chat_ids."""

import re

from tests.parts import part


def replace(m, chat_ids) -> None:
    """chat_ids(right, messages, encode, special) takes its place."""
    right = m.chat_ids
    m.chat_ids = lambda messages, encode, special: chat_ids(right, messages, encode, special)


@part("4.7")
def no_system_before_the_assistant(m):
    """A conversation that begins with the assistant gets no default system message."""

    def chat_ids(right, messages, encode, special):
        ids = right(messages, encode, special)
        if messages and messages[0]["role"] == "assistant":
            system = encode("system\n" + m.DEFAULT_SYSTEM)
            return ids[2 + len(system) + len(encode("\n")) :]
        return ids

    replace(m, chat_ids)


@part("4.7")
def user_added_to_a_system_message(m):
    """A system message alone gets an empty user's turn behind it."""

    def chat_ids(right, messages, *args):
        if len(messages) == 1 and messages[0]["role"] == "system":
            messages = [*messages, {"role": "user", "content": ""}]
        return right(messages, *args)

    replace(m, chat_ids)


@part("4.7")
def answer_not_begun_after_the_assistant(m):
    """After an assistant's turn the beginning of an answer is left out."""

    def chat_ids(right, messages, encode, special):
        ids = right(messages, encode, special)
        ends = messages[-1]["role"] == "assistant"
        return ids[: -1 - len(encode("assistant\n"))] if ends else ids

    replace(m, chat_ids)


@part("4.7")
def messages_must_be_a_list(m):
    """A tuple of messages is an error."""
    replace(m, lambda right, messages, *args: right(messages.copy(), *args))


@part("4.7")
def special_emptied(m):
    """The caller's special has no ids left afterwards."""

    def chat_ids(right, messages, encode, special):
        ids = right(messages, encode, special)
        special.clear()
        return ids

    replace(m, chat_ids)


def change_roles(m, change) -> None:
    """Roles are changed before they are checked."""

    def chat_ids(right, messages, *args):
        return right([{**one, "role": change(one["role"])} for one in messages], *args)

    replace(m, chat_ids)


@part("4.7")
def role_in_any_case(m):
    """The roles "User" and " user " count as "user"."""
    change_roles(m, lambda role: role.lower().strip())


@part("4.7")
def empty_role_is_the_user(m):
    """A role of "" counts as "user"."""
    change_roles(m, lambda role: role or "user")


@part("4.7")
def empty_tuple_fails(m):
    """Only an empty list is refused with a ValueError."""

    def chat_ids(right, messages, *args):
        if messages != []:
            messages[0]
        return right(messages, *args)

    replace(m, chat_ids)


@part("4.7")
def turns_of_the_user_joined(m):
    """Two messages of the user in a row become one turn."""

    def chat_ids(right, messages, *args):
        joined = []
        for one in messages:
            if joined and joined[-1]["role"] == one["role"] == "user":
                one = {**one, "content": joined.pop()["content"] + "\n" + one["content"]}
            joined.append(one)
        return right(joined, *args)

    replace(m, chat_ids)


@part("4.7")
def second_system_left_out(m):
    """A system message right after the first one is left out."""

    def chat_ids(right, messages, *args):
        systems = [one["role"] for one in messages[:2]] == ["system"] * 2
        return right([messages[0], *messages[2:]] if systems else messages, *args)

    replace(m, chat_ids)


@part("4.7")
def markers_obeyed_unless_the_user_types_them(m):
    """Markers in what the system or the assistant has written become ids."""

    def chat_ids(right, messages, encode, special):
        def encode_trusted(text):
            pieces = [text] if text.startswith("user\n") else re.split(r"(<\|im_\w+\|>)", text)
            ids = ([special[p]] if p in special else encode(p) for p in pieces if p)
            return [i for some in ids for i in some]

        return right(messages, encode_trusted, special)

    replace(m, chat_ids)
