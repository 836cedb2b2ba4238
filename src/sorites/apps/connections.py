"""Connections of the web servers: deadlines and limits that uvicorn does not have.

uvicorn waits for ever for the rest of a request, and its ``limit_concurrency`` refuses everybody once enough
half-sent requests are open. Here each request has a deadline, and when there are too many connections, one
that waits for its client makes room for the new one.
"""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds for the head of a request, for its body, and for a client to read the answer.
HEAD_S, BODY_S, ANSWER_S = 10.0, 30.0, 120.0
# Seconds in which input is read and ignored after a refusal. A socket that is closed with unread input is
# reset, and the client would lose the answer.
LINGER_S = 2.0
# Maximum number of connections of a server, and of one address. Many systems allow 1024 open files.
MAX_CONNECTIONS, MAX_PER_CLIENT = 500, 250


class Connection(H11Protocol):
    """A connection with deadlines, which answers malformed requests and makes room for others."""

    _timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None
    _waiting_for: float | None = None
    _refused = False

    @property
    def busy(self) -> bool:
        """True if a complete request is being answered."""
        cycle = self.cycle
        if self._refused or cycle is None:
            return False
        return not cycle.response_complete and self.conn.their_state is not h11.SEND_BODY

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first request, or refuse the connection."""
        super().connection_made(transport)
        self.opened = self.loop.time()
        self.app_state = {**self.app_state, "drop": self.drop}
        self._make_room()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadlines."""
        for timer in (self._timer, self._answer_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        if not self._refused:
            super().data_received(data)
            self._watch()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that sends nothing more: its request if that is complete, else a refusal."""
        if self.busy:
            self.cycle.keep_alive = False
            return self.scheme == "http"  # TLS cannot be closed in one direction
        if not self._refused and (self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]):
            self._refuse(HTTPStatus.BAD_REQUEST)
        return False

    def on_response_complete(self) -> None:
        """Continue with the next request of the connection."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse input that is not HTTP."""
        self._refuse(HTTPStatus.BAD_REQUEST)

    def shutdown(self) -> None:
        """Close the connection, after the current answer if there is one."""
        # Closing TLS politely would wait for a client that has nothing to say.
        idle = not self.busy and not self.transport.get_write_buffer_size()
        self.drop() if self._refused or idle else super().shutdown()

    def pause_writing(self) -> None:
        """Start the deadline for reading an answer."""
        super().pause_writing()
        self._answer_timer = self.loop.call_later(ANSWER_S, self.drop)

    def resume_writing(self) -> None:
        """Stop the deadline for reading an answer."""
        super().resume_writing()
        if self._answer_timer is not None:
            self._answer_timer.cancel()

    def drop(self) -> None:
        """Close the connection without an answer."""
        self.connections.discard(self)
        self._abandon_cycle()
        self.transport.abort()

    def _watch(self) -> None:
        """Set the deadline for what the client has to send next; uvicorn closes idle connections itself."""
        seconds = None
        if self._refused:
            seconds = LINGER_S
        elif self.conn.their_state is h11.SEND_BODY:
            seconds = BODY_S
        elif self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            seconds = HEAD_S
        if seconds == self._waiting_for:
            return
        self._waiting_for = seconds
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        empty = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if self._refused or empty:
            self.drop()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client if there are too many; prefer those
        that never sent a request.
        """
        if len(self.connections) <= MAX_PER_CLIENT:
            return
        everybody = [cast(Connection, connection) for connection in self.connections]
        own = [connection for connection in everybody if _address(connection) == _address(self)]
        crowd = own if len(own) > MAX_PER_CLIENT else everybody if len(everybody) > MAX_CONNECTIONS else []
        waiting = [connection for connection in crowd if connection is not self and not connection.busy]
        if waiting:
            min(waiting, key=lambda connection: (connection.cycle is not None, connection.opened)).drop()
        elif crowd:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer with an error if no answer has begun, and close the connection."""
        self._refused = True
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.drop()
            return
        headers = [(b"content-length", b"0"), (b"connection", b"close"), *self.server_state.default_headers]
        reply = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
        self.transport.write(self.conn.send(reply) + self.conn.send(h11.EndOfMessage()))
        self._abandon_cycle()
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        try:
            self.transport.write_eof()
        except OSError:  # the client is gone
            self.drop()
        else:
            self._watch()

    def _abandon_cycle(self) -> None:
        """Tell the application that nobody waits for its answer."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


class WebServer(uvicorn.Server):
    """A server that leaves no connection open when it stops."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, finish requests in progress, then drop what is left."""
        await super().shutdown(sockets)
        for connection in tuple(self.server_state.connections):
            cast(Connection, connection).drop()
        await asyncio.sleep(0)


def _address(connection: Connection) -> str:
    return connection.client[0] if connection.client else ""
