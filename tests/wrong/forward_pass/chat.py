"""4.7 chat_ids."""

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
