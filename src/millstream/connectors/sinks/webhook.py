"""The webhook sink: rows as JSON lines in POST requests."""

from __future__ import annotations

import http.client
import io
import ssl
from collections.abc import Mapping

import pyarrow as pa

from millstream.connectors.addresses import WEBHOOKS, Url
from millstream.connectors.options import Options, OptionValue
from millstream.connectors.sinks.sending import Again, Sending, SendingSink
from millstream.connectors.sinks.writers import open_writer
from millstream.errors import ConnectorError

_EXAMPLE = "https://example.com/rows"
_HEADER = "header."
_OURS = ("content-length", "content-type", "host", "transfer-encoding", "connection", "idempotency-key")
_TRANSIENT = frozenset((408, 409, 425, 429))
"""besides all that say that the server has failed"""


class WebhookSink(SendingSink):
    """Sends each part in a request. What answers with a status of success has taken it; redirects are not followed."""

    splits = True

    def __init__(self, address: Url, headers: Mapping[str, str], sending: Sending) -> None:
        super().__init__(str(address), sending)
        self._address = address
        self._headers = dict(headers)
        self._connection: http.client.HTTPConnection | None = None

    @staticmethod
    def from_options(given: Mapping[str, OptionValue]) -> WebhookSink:
        headers = {
            name[len(_HEADER) :]: str(value) for name, value in given.items() if name.lower().startswith(_HEADER)
        }
        own = {name: value for name, value in given.items() if not name.lower().startswith(_HEADER)}
        options = Options("connector webhook", own)
        address = Url.parsed(options.required("url", f"'{_EXAMPLE}'"), WEBHOOKS, _EXAMPLE)
        sending = Sending.from_options(options, 1000)
        options.finish()
        if address.user is not None or address.password is not None:
            raise ConnectorError(
                "the url of a webhook cannot contain a user", hint="\"header.authorization\" = 'Basic …'"
            )
        for name, value in headers.items():
            plain = name.replace("-", "").replace("_", "").isalnum() and (name + value).isascii()
            if not plain or not value.isprintable() or name.lower() in _OURS or name.lower().startswith("millstream-"):
                raise ConnectorError(f"connector webhook: the header {name} cannot be set", hint="choose another one")
        return WebhookSink(address, headers, sending)

    def _send(self, rows: pa.Table, first: int) -> None:
        body, end = io.BytesIO(), first + rows.num_rows
        writer = open_writer("jsonl", body, self._schema)
        for batch in rows.to_batches():
            writer.write(batch)
        writer.finish()
        own = {
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": f"{self._id}/{end}",
            "Millstream-Query": self._id,
            "Millstream-Position": str(first),
            "Millstream-Rows": str(rows.num_rows),
        }
        status, text, wait = self._posted(body.getvalue(), {**self._headers, **own})
        if 200 <= status < 300:
            return
        message = f"it answered {status}{': ' * bool(text)}{text}"
        if status >= 500 or status in _TRANSIENT:
            raise Again(message, wait)
        raise self._cannot(message)

    def _posted(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str, float]:
        """The status, the beginning of the answer, and how long to wait if it says that."""
        at = self._address
        try:
            if self._connection is None:
                if at.scheme == "https":
                    context = ssl.create_default_context()
                    self._connection = http.client.HTTPSConnection(
                        at.host, at.port, timeout=self._sending.timeout, context=context
                    )
                else:
                    self._connection = http.client.HTTPConnection(at.host, at.port, timeout=self._sending.timeout)
            target = f"{at.path or '/'}{'?' * bool(at.query)}{at.query}"
            self._connection.request("POST", target, body, dict(headers))
            answer = self._connection.getresponse()
            text, asked = answer.read(2000).decode(errors="replace"), answer.getheader("Retry-After", "")
            if not answer.isclosed() or answer.will_close:
                self._disconnect()
        except ssl.SSLCertVerificationError as error:
            raise self._cannot(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise Again(str(error) or type(error).__name__) from error
        return answer.status, " ".join(text[:200].split()), float(asked) if asked.isdecimal() else 0.0

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
