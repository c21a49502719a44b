#include "tests/bench/raw_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

#include "tests/bench/peer_process.h"

namespace attnd::bench {
namespace {

// As large as attnd's chunks.
constexpr size_t kChunkBytes = size_t{2} << 20;
constexpr int kTensors = 3;

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// What a connection says first.
struct Hello {
  int32_t client = 0;  // whose memory it shares
  int32_t index = 0;
  int32_t connections = 0;
};

// A connection's part of a tensor.
struct Share {
  size_t offset = 0;
  size_t bytes = 0;
};
Share ShareOf(size_t bytes, int index, int connections) {
  const size_t begin = bytes * index / connections;
  return {begin, bytes * (index + 1) / connections - begin};
}

void SendAll(int socket, const std::byte* from, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent <= 0) Die("send");
    from += sent;
    bytes -= sent;
  }
}

// False: the peer is gone.
bool ReadAll(int socket, void* to, size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, MSG_WAITALL);
    if (got <= 0) return false;
    at += got;
    bytes -= got;
  }
  return true;
}

// Reads by way of `chunk`, from which each piece is copied to its place.
bool ReceiveInto(std::vector<std::byte>& chunk, int socket, std::byte* to,
                 size_t bytes) {
  while (bytes > 0) {
    const size_t piece = std::min(bytes, chunk.size());
    if (!ReadAll(socket, chunk.data(), piece)) return false;
    std::memcpy(to, chunk.data(), piece);
    to += piece;
    bytes -= piece;
  }
  return true;
}

// A server's memory for one client, which the threads of its connections share.
class Exchanges {
 public:
  Exchanges(size_t bytes, int connections)
      : bytes_(bytes),
        in_(kTensors * bytes),
        out_(bytes),
        all_here_(connections) {}

  // Serves one connection until its peer is gone.
  void Serve(int socket, const Hello& hello) {
    const Share share = ShareOf(bytes_, hello.index, hello.connections);
    std::vector<std::byte> chunk(kChunkBytes);
    for (;;) {
      for (int i = 0; i < kTensors; ++i) {
        if (!ReceiveInto(chunk, socket, in_.data() + i * bytes_ + share.offset,
                         share.bytes)) {
          return;
        }
      }
      all_here_.arrive_and_wait();
      // As the device does that only copies: on one thread.
      if (hello.index == 0) std::memcpy(out_.data(), in_.data(), bytes_);
      all_here_.arrive_and_wait();
      SendAll(socket, out_.data() + share.offset, share.bytes);
    }
  }

 private:
  const size_t bytes_;
  std::vector<std::byte> in_, out_;
  std::barrier<> all_here_;
};

// Those of all clients.
class Server {
 public:
  explicit Server(size_t bytes) : bytes_(bytes) {}

  void Serve(int socket) {
    Hello hello;
    if (!ReadAll(socket, &hello, sizeof hello)) return;
    Exchanges* exchanges = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto& slot = clients_[hello.client];
      if (slot == nullptr) {
        slot = std::make_unique<Exchanges>(bytes_, hello.connections);
      }
      exchanges = slot.get();
    }
    exchanges->Serve(socket, hello);
  }

 private:
  const size_t bytes_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Exchanges>> clients_;
};

int Listen(const std::string& path, int& port) {
  const int listener = socket(path.empty() ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
  if (listener < 0) Die("socket");
  if (path.empty()) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener, any, size) || getsockname(listener, any, &size)) {
      Die("bind");
    }
    port = ntohs(address.sin_port);
  } else {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    unlink(path.c_str());
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address)) {
      Die("bind");
    }
    port = 1;  // what the parent reads says that it listens
  }
  if (listen(listener, 64)) Die("listen");
  return listener;
}

int Connect(const std::string& target) {
  constexpr char kUnix[] = "unix:";
  if (target.rfind(kUnix, 0) == 0) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, target.c_str() + std::strlen(kUnix),
                 sizeof address.sun_path - 1);
    const int to = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(to, reinterpret_cast<sockaddr*>(&address), sizeof address)) {
      Die("connect");
    }
    return to;
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(std::stoi(target.substr(target.find(':') + 1)));
  const int to = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(to, reinterpret_cast<sockaddr*>(&address), sizeof address)) {
    Die("connect");
  }
  const int on = 1;
  setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return to;
}

// A client's connection, with the thread that drives it.
class Connection {
 public:
  Connection(const std::string& target, int client, int index, int connections,
             size_t bytes)
      : socket_(Connect(target)), share_(ShareOf(bytes, index, connections)) {
    const Hello hello{client, index, connections};
    SendAll(socket_, reinterpret_cast<const std::byte*>(&hello), sizeof hello);
    thread_ = std::thread([this] { Loop(); });
  }
  ~Connection() {
    exchange_ = nullptr;
    begin_.release();
    thread_.join();
    close(socket_);
  }

  void Begin(const Exchange& exchange) {
    exchange_ = &exchange;
    begin_.release();
  }
  void AwaitEnd() { end_.acquire(); }

 private:
  void Loop() {
    std::vector<std::byte> chunk(kChunkBytes);
    for (;;) {
      begin_.acquire();
      if (exchange_ == nullptr) return;
      for (const std::byte* in : exchange_->in) {
        SendAll(socket_, in + share_.offset, share_.bytes);
      }
      if (!ReceiveInto(chunk, socket_, exchange_->out + share_.offset,
                       share_.bytes)) {
        Die("recv");
      }
      end_.release();
    }
  }

  const int socket_;
  const Share share_;
  const Exchange* exchange_ = nullptr;
  std::binary_semaphore begin_{0}, end_{0};
  std::thread thread_;
};

}  // namespace

void ServeRawSockets(size_t bytes, const std::string& path) {
  int port = 0;
  const int listener = Listen(path, port);
  std::thread([listener, bytes] {
    auto& server = *new Server(bytes);
    for (;;) {
      const int connection = accept(listener, nullptr, nullptr);
      if (connection < 0) return;
      const int on = 1;
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      std::thread([connection, &server] { server.Serve(connection); }).detach();
    }
  }).detach();
  ServeUntilParentIsDone(port);
  std::_Exit(0);
}

EchoCall ConnectRawSockets(const std::string& target, int connections,
                           size_t bytes) {
  static std::atomic<int> clients = 0;
  const int client = ++clients;
  auto all = std::make_shared<std::vector<std::unique_ptr<Connection>>>();
  for (int i = 0; i < connections; ++i) {
    all->push_back(
        std::make_unique<Connection>(target, client, i, connections, bytes));
  }
  return [all](const Exchange& exchange) {
    for (const auto& connection : *all) connection->Begin(exchange);
    for (const auto& connection : *all) connection->AwaitEnd();
  };
}

}  // namespace attnd::bench
