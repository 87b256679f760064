"""What a server asks of those who may use it. None of it is ever stored or shown."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

_SHORTEST_PART = 6
"""Of a secret that was cut off, what is shorter than this is not told from ordinary text."""
_HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The HTTP header that opens the server, and the secrets in it."""

    authorization: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @classmethod
    def of_key(cls, key: str) -> "Credentials":
        """Those of an API key."""
        return cls(authorization=f"Bearer {key}", secrets=(key,))

    @classmethod
    def of_user(cls, user: str, password: str) -> "Credentials":
        """Those of a URL with a user name."""
        pair = b64encode(f"{user}:{password}".encode()).decode()
        return cls(authorization=f"Basic {pair}", secrets=tuple(filter(None, (pair, password))))

    @property
    def headers(self) -> Mapping[str, str]:
        """What each request needs."""
        return {"Authorization": self.authorization}

    def hidden(self, text: str) -> str:
        """`text`, as a server wrote it, without any secret, or the begin of one where it was cut off."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
            for length in range(len(secret) - 1, _SHORTEST_PART - 1, -1):
                if text.endswith((secret[:length], f"{secret[:length]}...")):
                    text = text[: text.rindex(secret[:length])] + _HIDDEN
                    break
        return text
