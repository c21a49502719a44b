"""Just enough HTTP/2 to call attnd as no client library would: slowly, or with lies."""

import socket
import struct

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
FRAME_BYTES = 16384


def frame(kind, flags, stream, payload=b''):
    return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        '>I', stream) + payload


def _literal(name, value):
    """A header field without indexing or Huffman, of strings below 127 bytes."""
    return b''.join([b'\0', bytes([len(name)]), name, bytes([len(value)]), value])


class Stream:
    """One call: what may still be sent, and how much data has come."""

    def __init__(self, number, window):
        self.number, self.window, self.received = number, window, 0


class Connection:
    """Any number of calls, whose messages come as their owner likes.

    It opens no window: a peer may send `receive_window` bytes on a stream, and 65535 on all.
    """

    def __init__(self, address, source, receive_window=65535):
        host, port = address.rsplit(':', 1)
        self.socket = socket.create_connection((host, int(port)), 10, (source, 0))
        # Reads never wait, writes so long. A timeout of Python's would wait for both.
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 10, 0))
        self.streams = {}  # those that are not over, by number
        self._next = 1
        self._window = self._first_window = 65535
        self._buffer = b''
        self.closed = False
        self._send(PREFACE + frame(SETTINGS, 0, 0, struct.pack('>HI', 4, receive_window)))

    def _send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True

    def open(self, method, hint=None):
        """A call of attn.v1.AttentionService."""
        fields = [(b':method', b'POST'), (b':scheme', b'http'),
                  (b':path', f'/attn.v1.AttentionService/{method}'.encode()),
                  (b':authority', b'a'), (b'te', b'trailers'),
                  (b'content-type', b'application/grpc')]
        if hint is not None:
            fields.append((b'attnd-request-bytes', str(hint).encode()))
        block = b''.join(_literal(name, value) for name, value in fields)
        stream = self.streams[self._next] = Stream(self._next, self._first_window)
        self._next += 2
        self._send(frame(HEADERS, END_HEADERS, stream.number, block))
        return stream

    def poll(self):
        """Reads what has come, without waiting. False once the connection is over."""
        try:
            data = self.socket.recv(1 << 16, socket.MSG_DONTWAIT)
            self.closed |= not data
            self._buffer += data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        while len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3], 'big')
            if len(self._buffer) < 9 + length:
                break
            kind, flags = self._buffer[3], self._buffer[4]
            number = int.from_bytes(self._buffer[5:9], 'big')
            self._take(kind, flags, number, self._buffer[9:9 + length])
            self._buffer = self._buffer[9 + length:]
        return not self.closed

    def _take(self, kind, flags, number, payload):
        stream = self.streams.get(number)
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack('>HI', payload[at:at + 6])
                if key == 4:
                    for other in self.streams.values():
                        other.window += value - self._first_window
                    self._first_window = value
            self._send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            step = int.from_bytes(payload, 'big') & 0x7FFFFFFF
            if number == 0:
                self._window += step
            elif stream is not None:
                stream.window += step
        elif kind == DATA and stream is not None:
            stream.received += len(payload)
        elif kind == GOAWAY:
            self.closed = True
        if kind == RST_STREAM or kind in (DATA, HEADERS) and flags & END_STREAM:
            self.streams.pop(number, None)

    def write(self, stream, data):
        """As much of `data` as flow control lets through now; how much that was."""
        count = max(0, min(len(data), self._window, stream.window, FRAME_BYTES))
        if count > 0:
            self._window -= count
            stream.window -= count
            self._send(frame(DATA, 0, stream.number, data[:count]))
        return count

    def end(self, stream):
        self._send(frame(DATA, END_STREAM, stream.number))

    def close(self):
        self.socket.close()


class Caller:
    """One connection with one call of Forward."""

    def __init__(self, address, source, hint=None):
        self._connection = Connection(address, source)
        self._stream = self._connection.open('Forward', hint)

    def poll(self):
        """Reads what has come, without waiting. False once the call or connection is over."""
        return self._connection.poll() and self._stream.number in self._connection.streams

    def write(self, data):
        return self._connection.write(self._stream, data)

    def end(self):
        self._connection.end(self._stream)

    def close(self):
        self._connection.close()


def prefix(length):
    """What gRPC puts before a message."""
    return b'\0' + struct.pack('>I', length)
