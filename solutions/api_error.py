"""Chapter 07: an answer that is an error, as every client of the OpenAI API understands it."""

KINDS = {  # status -> the error's "type"; 400 and its like are not in the list
    401: "authentication_error",
    500: "server_error",
    503: "service_unavailable",
    504: "timeout_error",
}


class ApiError(Exception):
    """A request that gets an error in the place of an answer.

    Args:
        status: of HTTP: 400 for whatever is wrong with the request, 503 for "later", and so on.
        message: what is wrong, and what to do, in words for whoever sent the request.
        param: the field that is wrong, such as "temperature" or "messages[2].content".
        code: a word for programs, such as "context_length_exceeded".
        retry_after: seconds after which trying again may help; None when it will not.

    Attributes: all of these, and type: what KINDS says of the status, or "invalid_request_error".
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after, self.type = retry_after, KINDS.get(status, "invalid_request_error")


class ClientGone(Exception):
    """The client closed the connection: there is nobody to answer."""
