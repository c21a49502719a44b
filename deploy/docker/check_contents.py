#!/usr/bin/env python3
"""Compares what an image of attnd holds and says of itself with what its README promises.

    check_contents.py CONFIG FILES

CONFIG is what `docker image inspect` (or podman's) prints, FILES what `tar --list
--verbose --numeric-owner` makes of an exported container. Prints what is wrong, and then
exits with status 1.
"""

import json
import re
import sys

PROGRAMS = {"attnd", "attnctl", "attnload"}
HEALTH_CHECK = ["CMD", "/usr/bin/attnctl", "health", "--server=127.0.0.1:7412", "--timeout=4s"]
LABELS = ("title", "description", "licenses", "version", "revision")
# What a container engine adds to the files of any container.
OF_THE_ENGINE = re.compile(r"^(dev|proc|sys|etc/(hosts|hostname|resolv\.conf|mtab)|\.dockerenv|run/\.containerenv)(/|$)")
# A shell, a toolkit, and what only a build needs.
UNWANTED = re.compile(
    r"(^|/)((ba|da|)sh|busybox|nvcc|ptxas|ldconfig|libcuda\.so.*|libcudart\.so.*|libnvrtc.*|libcublas.*"
    r"|.*\.(a|h|hpp|cc|cu|o|py|pl|key|pem\.key))$")


def wrong_in_config(image):
    config = image["Config"]
    health = image.get("Healthcheck") or config.get("Healthcheck") or {}
    labels = config.get("Labels") or {}
    environment = config.get("Env") or []
    for what, found, wanted in [
        ("user", config.get("User"), "65532:65532"),
        ("entry point", config.get("Entrypoint"), ["/usr/bin/attnd"]),
        ("command", config.get("Cmd"), ["--port=7411", "--admin_address=127.0.0.1:7412"]),
        ("stop signal", config.get("StopSignal"), "SIGTERM"),
        ("health check", health.get("Test"), HEALTH_CHECK),
        ("ports", sorted(config.get("ExposedPorts") or {}), ["7411/tcp", "7412/tcp"]),
    ]:
        if found != wanted:
            yield f"its {what} is {found}, not {wanted}"
    for label in LABELS:
        if not labels.get(f"org.opencontainers.image.{label}"):
            yield f"it has no label org.opencontainers.image.{label}"
    for variable in ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]:
        if variable not in environment:
            yield f"it does not set {variable}"


def files(listing):
    """Of each file: its mode as `ls` shows it, its owner and group, and its path."""
    for line in listing:
        mode, owner, _, _, _, path = line.rstrip("\n").split(maxsplit=5)
        path = path.split(" -> ")[0].removeprefix("./").rstrip("/")
        if path and not OF_THE_ENGINE.match(path):
            yield mode, owner, path


def wrong_in_files(listing):
    programs = set()
    licences = set()
    for mode, owner, path in files(listing):
        if owner != "0/0":
            yield f"{path} belongs to {owner}, not to root"
        if mode[0] != "l" and ("w" in (mode[5], mode[8]) or set(mode) & set("sStT")):
            yield f"{path} has mode {mode}"
        if UNWANTED.search(path):
            yield f"there is {path}"
        if path.startswith("usr/bin/"):
            programs.add(path.removeprefix("usr/bin/"))
        if re.fullmatch(r"usr/share/doc/[^/]+/copyright", path):
            licences.add(path)
    if programs != PROGRAMS:
        yield f"its programs are {sorted(programs)}, not {sorted(PROGRAMS)}"
    if not licences:
        yield "there is no licence of what it carries"


def main():
    with open(sys.argv[1]) as config, open(sys.argv[2]) as listing:
        wrong = list(wrong_in_config(json.load(config)[0])) + list(wrong_in_files(listing))
    for line in wrong:
        print(f"        {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
