#!/usr/bin/env python3
"""How calls spread over replicas, by each way to balance them.

    balance_bench.py --build=build/release [--check] [--only=spread,new,drain,exchange]

Needs tests/python/requirements.txt and HAProxy. Replicas compute on the CPU, with a thread
each, on loopback; clients are processes with a connection each and call one after the
other. What spreads does not depend on how fast the machine is; latencies and calls a second
do, and say something only beside each other.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import replicas as r
from replicas import Dns, Haproxy, Replica

HERE = pathlib.Path(__file__).resolve().parent
ROUND_ROBIN = ["grpc.lb_policy_name", "round_robin"]
# gRPC asks a name server again after 30 s at the soonest; here time is short.
OFTEN = ["grpc.dns_min_time_between_resolutions_ms", 500]
# gRPC tries again what fits its buffer of 256 KiB a call, which few tensors do.
RETRY_BUFFER = ["grpc.per_rpc_retry_buffer_size", 16 << 20]
RETRY = ["grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"]}}]})]


class Clients:
    """Processes that call at once, for so many seconds."""

    def __init__(self, count, target, seconds, options=(), tokens=1024, dim=64):
        job = json.dumps({"target": target, "seconds": seconds, "options": list(options),
                          "tokens": tokens, "dim": dim})
        self.processes = [subprocess.Popen([sys.executable, HERE / "caller.py", job], text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           env={**os.environ, "GRPC_DNS_RESOLVER": "ares"})
                          for _ in range(count)]
        for process in self.processes:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a client does not start")

    def start(self):
        for process in self.processes:
            process.stdin.write("\n")
            process.stdin.flush()

    def calls(self):
        """[when, latency, code] of all calls, once all clients have ended."""
        results = [json.loads(process.communicate()[0]) for process in self.processes]
        return sorted(call for calls in results for call in calls)


def codes(calls):
    return dict(collections.Counter(code for _, _, code in calls))


def shares(before, after):
    """Of calls, of each replica, in percent."""
    counts = [b - a for a, b in zip(before, after)]
    return [round(100 * count / max(1, sum(counts))) for count in counts]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


class Bench:

    def __init__(self, options):
        self.options = options
        self.attnd = str(pathlib.Path(options.build) / "server/attnd")
        self.missed = []

    def hold(self, what, holds):
        if not holds:
            self.missed.append(what)
            print(f"MISSED: {what}")

    def spread(self):
        """Eight clients that call three replicas, all there from the start."""
        servers = [Replica(self.attnd, number) for number in (1, 2, 3)]
        addresses = "ipv4:" + ",".join(f"{server.host}:{r.PORT}" for server in servers)
        # How HAProxy balances, if it is there, and what the client is told.
        ways = {
            "the list, `pick_first`": (None, [["grpc.lb_policy_name", "pick_first"]]),
            "the list, `round_robin`": (None, [ROUND_ROBIN]),
            "a proxy by connection": (False, []),
            "a proxy by call": (True, []),
        }
        seen = {way: [] for way in ways}
        for _ in range(self.options.rounds):  # in turns
            for way, (by_call, options) in ways.items():
                front = None if by_call is None else Haproxy(servers, by_call)
                clients = Clients(8, front.target if front else addresses, self.options.seconds,
                                  options)
                before = [server.calls() for server in servers]
                clients.start()
                calls = clients.calls()
                after = [server.calls() for server in servers]
                if front:
                    front.stop()
                lost = len(calls) - codes(calls)["OK"]
                self.hold(f"{way}: {codes(calls)}", lost <= len(calls) / 100)
                seen[way].append((shares(before, after), [latency for _, latency, _ in calls]))
        print("\n### spread: 8 clients, 3 replicas\n")
        row("way", "share of each replica, %", "calls/s", "p50, ms", "p99, ms")
        row(*["---"] * 5)
        for way, rounds in seen.items():
            latencies = [sorted(latency) for _, latency in rounds]
            row(way, ", ".join("/".join(map(str, share)) for share, _ in rounds),
                round(statistics.median(map(len, latencies)) / self.options.seconds),
                *(f"{1e3 * statistics.median(x[int(q * len(x))] for x in latencies):.0f}"
                  for q in (0.5, 0.99)))
        for share, _ in seen["the list, `pick_first`"]:
            self.hold("pick_first: one replica has all", max(share) == 100)
        for way in ("the list, `round_robin`", "a proxy by call"):
            for share, _ in seen[way]:
                self.hold(f"{way}: each has a quarter and more", min(share) >= 25)
        for server in servers:
            server.stop()

    def new(self):
        """A third replica comes when eight clients have called two for three seconds."""
        seconds, comes, age = 14, 3, "2s"
        print(f"\n### new: a third replica comes after {comes} s of {seconds}\n")
        row("way", "connection age", "its share of the last 5 s, %", "a fifth of the calls from, s after it came")
        row(*["---"] * 4)
        for way in ("a name, `round_robin`", "a proxy by connection", "a proxy by call"):
            for flags in ([], [f"--connection_age={age}"]):
                servers = [Replica(self.attnd, number, *flags) for number in (1, 2)]
                dns, front = Dns(), None
                dns.addresses = [server.host for server in servers]
                target, options = dns.target, [ROUND_ROBIN, OFTEN]
                if "proxy" in way:
                    front = Haproxy([*servers, f"{r.NETWORK}.3"], by_call="call" in way)
                    target, options = front.target, []
                clients = Clients(8, target, seconds, options)
                clients.start()
                begin = time.monotonic()
                time.sleep(comes)
                servers.append(Replica(self.attnd, 3, *flags))
                dns.addresses = [server.host for server in servers]
                came = time.monotonic()
                fifth, last, tail = None, [server.calls() for server in servers], None
                while time.monotonic() < begin + seconds - 0.7:
                    time.sleep(0.5)
                    now = [server.calls() for server in servers]
                    if fifth is None and shares(last, now)[2] >= 20:
                        fifth = time.monotonic() - came
                    last = now
                    if tail is None and time.monotonic() > begin + seconds - 5:
                        tail = now
                share = shares(tail, last)[2]
                calls = clients.calls()
                row(way, flags[0].split("=")[1] if flags else "none", share,
                    "never" if fifth is None else f"{fifth:.1f}")
                lost = len(calls) - codes(calls)["OK"]
                self.hold(f"{way}: {lost} of {len(calls)} failed", lost <= len(calls) / 100)
                if "call" in way or flags:
                    self.hold(f"{way} {flags}: the new one gets a fifth, not {share} %", share >= 20)
                else:
                    self.hold(f"{way}: the new one gets nothing without an age, not {share} %",
                              share == 0)
                if front:
                    front.stop()
                for server in servers:
                    server.stop()

    def drain(self):
        """One of three replicas is told to end after 5 s of 9, while eight clients call."""
        print("\n### drain: SIGTERM to one of three replicas, calls that failed of all\n")
        row("way", "at once", "gRPC's retries", "retries, a buffer for the message",
            "out of the list 4 s before")
        row(*["---"] * 5)
        # Options by what is tried; `first` is no retries, but a name that leaves in time.
        retries = {"no": [], "small": [RETRY], "large": [RETRY, RETRY_BUFFER], "first": []}
        for way in ("a name, `round_robin`", "a proxy by connection", "a proxy by call"):
            cells = []
            for how, options in retries.items():
                calls = self.one_drain(way, options, take_away_first=how == "first")
                failed = [call for call in calls if call[2] != "OK"]
                cells.append(f"{len(failed)} of {len(calls)}")
                # HAProxy resets calls that it has passed on and cannot try again.
                known = {"UNAVAILABLE", "CANCELLED"} if "call" in way else {"UNAVAILABLE"}
                self.hold(f"{way}: {codes(failed)}", set(codes(failed)) <= known)
                if how == "large" and "call" not in way:
                    self.hold(f"{way}: retries leave no failure, not {codes(failed)}", not failed)
                if how == "first":
                    self.hold(f"{way}: hardly any fails, not {codes(failed)}",
                              len(failed) <= len(calls) / 100)
            row(way, *cells)

    def one_drain(self, way, options, take_away_first):
        servers = [Replica(self.attnd, number, "--connection_age=2s") for number in (1, 2, 3)]
        dns, front = Dns(), None
        dns.addresses = [server.host for server in servers]
        target, options = dns.target, [OFTEN, ROUND_ROBIN, *options]
        if "proxy" in way:
            front = Haproxy(servers, by_call="call" in way)
            target = front.target
        clients = Clients(8, target, 9, options)
        clients.start()
        time.sleep(1)
        if take_away_first:
            dns.addresses = dns.addresses[1:]
            if front:
                front.take_away(0)
        time.sleep(4)
        self.hold(f"{way}: the replica ends in order: {servers[0].said()}", servers[0].stop() == 0)
        calls = clients.calls()
        for replica in [*servers[1:], *([front] if front else [])]:
            replica.stop()
        return calls

    def exchange(self):
        """Large calls by the C++ client, in chunks over four connections."""
        attnload = str(pathlib.Path(self.options.build) / "client/attnload/attnload")
        servers = [Replica(self.attnd, number) for number in (1, 2, 3)]
        print("\n### exchange: 12 calls of 48 MiB in chunks over four connections\n")
        row("to", "succeeded", "p50, ms", "streams", "of which NOT_FOUND")
        row(*["---"] * 5)
        for way in ("one replica", "a proxy by connection", "a proxy by call"):
            front = Haproxy(servers, by_call="call" in way) if "proxy" in way else None
            target = front.target.removeprefix("ipv4:") if front else f"{servers[0].host}:{r.PORT}"
            before = [server.calls() for server in servers]
            not_found = [server.not_found() for server in servers]
            done = subprocess.run(
                [attnload, target, "--shape=forward:f32:s512:h32:d192", "--transport=stream",
                 "--connections=4", "--concurrency=1", "--requests=12", "--warmup=0", "--check=0",
                 "--json=-"], capture_output=True, text=True)
            text = done.stdout
            level = json.loads(text[text.index("{"):])["levels"][0]
            counts = [b - a for a, b in zip(before, [server.calls() for server in servers])]
            joined = [b - a for a, b in zip(not_found, [server.not_found() for server in servers])]
            row(way, level["sent_by_code"]["OK"], f"{1e3 * level['latency']['p50_s']:.0f}",
                sum(counts), sum(joined))
            self.hold(f"{way}: all succeed", level["sent_by_code"] == {"OK": 12})
            if front:
                front.stop()
        for server in servers:
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(r.ROOT / "build/release"))
    parser.add_argument("--only", default="spread,new,drain,exchange")
    parser.add_argument("--seconds", type=float, default=5, help="of each round of `spread`")
    parser.add_argument("--rounds", type=int, default=3, help="of `spread`")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    bench = Bench(options)
    print(f"{len(os.sched_getaffinity(0))} processors, load average {os.getloadavg()[0]:.1f}")
    for section in options.only.split(","):
        getattr(bench, section)()
    print(f"\nload average at the end {os.getloadavg()[0]:.1f}; {len(bench.missed)} missed")
    sys.exit(1 if options.check and bench.missed else 0)


if __name__ == "__main__":
    main()
