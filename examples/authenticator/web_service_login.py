"""An authenticator that asks a web service: a worked example of a plug-in for the MQTT front.

Installed (`pip install ./examples/authenticator`), it is there under the name of its entry point:

    [mqtt]
    authenticators = ["web-service"]

    [mqtt.authenticator_options.web-service]
    url = "http://127.0.0.1:8000/login"
    timeout_ms = "2000"

The service gets a POST with a JSON object (client_id, user, password, address) and answers 200 with another: `user`,
and if it likes `publish` and `subscribe`, lists of topic filters in which %c and %u stand for client id and user. With
one of the lists nothing else is allowed, with neither the access file decides. It answers 403 to turn the client away
and 404 when it does not know the user, who is then asked of the next authenticator.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping

from timestone_access.identity import Access, Cause, Credentials, Identity, Refusal, Rule


class WebServiceLogin:
    """Asks for each login. It runs in a thread of the server, so it may block; a few of them ask at the same time."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options` is the table of this authenticator in the configuration. Raises ValueError for a wrong one."""
        unknown = options.keys() - {"url", "timeout_ms"}
        if unknown or "url" not in options:
            raise ValueError(
                f"web-service takes url and timeout_ms, not {', '.join(sorted(unknown)) or 'nothing'}"
            )
        self._url = options["url"]
        self._timeout_s = int(options.get("timeout_ms", "2000")) / 1000

    def authenticate(self, credentials: Credentials) -> Identity | Refusal | None:
        """Who it is; or why it is turned away; or None for a user that the service does not know."""
        question = {
            "client_id": credentials.client_id,
            "user": credentials.user,
            "password": (credentials.password or b"").decode("utf-8", "replace"),
            "address": credentials.address,
        }
        request = urllib.request.Request(
            self._url, json.dumps(question).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                return self._identity(json.load(response))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code == 403:
                return Refusal(f"the web service turns user {credentials.user!r} away")
            return Refusal(f"the web service answers {error.code}", Cause.UNAVAILABLE)
        except (OSError, ValueError) as error:
            # Not "wrong password": the client should come back, and must not be locked out for our trouble.
            return Refusal(f"the web service cannot be asked: {error}", Cause.UNAVAILABLE)

    def _identity(self, answer: object) -> Identity:
        """Who the service says it is. ValueError for an answer that is not understood: never "may do everything"."""
        if not isinstance(answer, dict) or not isinstance(answer.get("user"), str):
            raise ValueError("its answer names no user")
        rules: list[Rule] = []
        for word, access in (("publish", Access.WRITE), ("subscribe", Access.READ)):
            filters = answer.get(word, [])
            if not isinstance(filters, list) or not all(isinstance(each, str) for each in filters):
                raise ValueError(f"invalid {word} in its answer: expected a list of topic filters")
            rules += (Rule(each, access) for each in filters)
        limited = "publish" in answer or "subscribe" in answer
        return Identity(answer["user"], "web-service", tuple(rules) if limited else None)
