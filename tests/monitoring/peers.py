"""What no good client does, over plain sockets."""

import selectors
import socket
import ssl
import struct
import threading

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'  # RFC 9113, section 3.4
SETTINGS, PING = 4, 6
ACK = 1
# Seconds in which a server on this host answers or ends a connection.
TIMEOUT = 10


def frame(kind, flags=0, stream=0, payload=b''):
    """RFC 9113, section 4.1."""
    return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload


def say(address, *parts):
    """Connects, says it, and waits until the server ends the connection."""
    with socket.create_connection(address, TIMEOUT) as peer:
        peer.sendall(b''.join(parts))
        while peer.recv(65536):
            pass


def break_http2(address):
    """A PING of 5 bytes, where 8 are the rule."""
    say(address, PREFACE, frame(SETTINGS), frame(PING, payload=b'short'))


def speak_http1(address):
    """To where TLS is expected."""
    say(address, b'GET / HTTP/1.1\r\nHost: attnd\r\n\r\n')


def lease_region(path, size):
    """A connection that has a region, or that the server has refused and closed: a
    RegionRequest of region.proto, in which lease.bytes is `size`."""
    varint = b''
    while size > 127:
        varint += bytes([size & 127 | 128])
        size >>= 7
    lease = b'\x08' + varint + bytes([size])
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(TIMEOUT)
    peer.connect(path)
    peer.send(b'\x0a' + bytes([len(lease)]) + lease)
    return peer


class IdleConnections:
    """HTTP/2 connections that make no calls, and answer what the protocol asks. Where it has
    fewer than it wants it goes on trying."""

    def __init__(self, address, count):
        self.address, self.count = address, count
        self.selector = selectors.DefaultSelector()
        self.over = threading.Event()
        self.thread = None

    def start(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        tried = 0
        while not self.over.is_set():
            is_short = len(self.selector.get_map()) < self.count
            if is_short:
                self.dial()
                tried += 1
            # The first come quickly, those that are refused then 10 a second.
            self.answer(0 if is_short and tried < self.count else 0.1)
        for key in list(self.selector.get_map().values()):
            self.drop(key.fileobj)

    def dial(self):
        try:
            peer = socket.create_connection(self.address, TIMEOUT)
            peer.sendall(PREFACE + frame(SETTINGS))
        except OSError:
            return
        peer.setblocking(False)
        self.selector.register(peer, selectors.EVENT_READ, bytearray())

    def answer(self, timeout):
        for key, _ in self.selector.select(timeout):
            try:
                received = key.fileobj.recv(65536)
                if not received:
                    raise ConnectionError
                key.data.extend(received)
                for answer in answers(key.data):
                    key.fileobj.sendall(answer)
            except OSError:
                self.drop(key.fileobj)

    def drop(self, peer):
        self.selector.unregister(peer)
        peer.close()

    def stop(self):
        self.over.set()
        self.thread.join()


def answers(received):
    """Takes whole frames from `received`, and yields what they ask for."""
    while len(received) >= 9:
        length = int.from_bytes(received[:3], 'big')
        if len(received) < 9 + length:
            return
        kind, flags = received[3], received[4]
        payload = bytes(received[9:9 + length])
        del received[:9 + length]
        if kind == SETTINGS and not flags & ACK:
            yield frame(SETTINGS, ACK)
        if kind == PING and not flags & ACK:
            yield frame(PING, ACK, payload=payload)


def receive_with_descriptors(peer):
    """socket.recv_fds of a packet with at most one."""
    return socket.recv_fds(peer, 65536, 1)


class TlsClient:
    """One that shows a certificate, and does nothing else."""

    def __init__(self, address, authority, certificate):
        self.address, self.context = address, ssl.create_default_context(cafile=authority)
        self.context.load_cert_chain(certificate, certificate.with_suffix('.key'))
        self.context.set_alpn_protocols(['h2'])
        self.connection = None

    def connect(self):
        plain = socket.create_connection(self.address, TIMEOUT)
        self.connection = self.context.wrap_socket(plain, server_hostname=self.address[0])
        self.connection.sendall(PREFACE + frame(SETTINGS))
        self.connection.recv(1)  # the server has let it in
