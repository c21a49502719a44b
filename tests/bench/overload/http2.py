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


class Caller:
    """One connection with one call of Forward, whose message comes as its owner likes."""

    def __init__(self, address, source, hint=None, receive_window=65535):
        host, port = address.rsplit(':', 1)
        self.socket = socket.create_connection((host, int(port)), 10, (source, 0))
        self._window = self._stream_window = 65535
        self._first_window = 65535
        self._buffer = b''
        self.closed = False
        fields = [(b':method', b'POST'), (b':scheme', b'http'),
                  (b':path', b'/attn.v1.AttentionService/Forward'), (b':authority', b'a'),
                  (b'te', b'trailers'), (b'content-type', b'application/grpc')]
        if hint is not None:
            fields.append((b'attnd-request-bytes', str(hint).encode()))
        settings = struct.pack('>HI', 4, receive_window)
        block = b''.join(_literal(name, value) for name, value in fields)
        self._send(PREFACE + frame(SETTINGS, 0, 0, settings)
                   + frame(HEADERS, END_HEADERS, 1, block))

    def _send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True

    def poll(self):
        """Reads what has come, without waiting. False once the call or connection is over."""
        self.socket.setblocking(False)
        try:
            data = self.socket.recv(1 << 16)
            self.closed |= not data
            self._buffer += data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        self.socket.setblocking(True)
        self.socket.settimeout(10)
        while len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3], 'big')
            if len(self._buffer) < 9 + length:
                break
            kind, flags = self._buffer[3], self._buffer[4]
            stream = int.from_bytes(self._buffer[5:9], 'big')
            self._take(kind, flags, stream, self._buffer[9:9 + length])
            self._buffer = self._buffer[9 + length:]
        return not self.closed

    def _take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack('>HI', payload[at:at + 6])
                if key == 4:
                    self._stream_window += value - self._first_window
                    self._first_window = value
            self._send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            step = int.from_bytes(payload, 'big') & 0x7FFFFFFF
            if stream == 0:
                self._window += step
            else:
                self._stream_window += step
        elif kind in (GOAWAY, RST_STREAM) or kind == HEADERS and flags & END_STREAM:
            self.closed = True

    def write(self, data):
        """As much of `data` as flow control lets through now; how much that was."""
        count = max(0, min(len(data), self._window, self._stream_window, FRAME_BYTES))
        if count > 0:
            self._window -= count
            self._stream_window -= count
            self._send(frame(DATA, 0, 1, data[:count]))
        return count

    def end(self):
        self._send(frame(DATA, END_STREAM, 1))

    def close(self):
        self.socket.close()


def prefix(length):
    """What gRPC puts before a message."""
    return b'\0' + struct.pack('>I', length)
