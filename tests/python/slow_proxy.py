"""A way to a server that is slow for what comes back."""

import contextlib
import socket
import threading
import time


class SlowProxy:
  """Passes bytes on between connections to `address`, and a server's slowly.

  What the server sends waits at the server most of the time, as on a link that
  is slow, or to a client that is: of it 16 KiB are read in 5 ms.
  """

  CHUNK = 16 << 10
  PAUSE_SECONDS = 0.005

  def __init__(self, address):
    host, port = address.rsplit(":", 1)
    self._server = (host, int(port))
    self._listener = socket.create_server(("127.0.0.1", 0))
    self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
    threading.Thread(target=self._accept, daemon=True).start()

  def close(self):
    self._listener.shutdown(socket.SHUT_RDWR)
    self._listener.close()

  def _accept(self):
    with contextlib.suppress(OSError):
      while True:
        client, _ = self._listener.accept()
        threading.Thread(target=self._serve, args=(client,),
                         daemon=True).start()

  def _serve(self, client):
    with client, socket.socket() as server:
      server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.CHUNK)
      server.connect(self._server)
      forth = threading.Thread(target=self._pump, args=(client, server, 0),
                               daemon=True)
      forth.start()
      self._pump(server, client, self.PAUSE_SECONDS)
      forth.join()

  def _pump(self, source, to, pause):
    """Until one of the two ends, which the other then learns."""
    with contextlib.suppress(OSError):
      while data := source.recv(self.CHUNK):
        to.sendall(data)
        time.sleep(pause)
    with contextlib.suppress(OSError):
      to.shutdown(socket.SHUT_WR)
