#!/usr/bin/env bash
# The one list of system packages, for Debian 12 and Ubuntu 24.04 alike.
#
#   deploy/packages.sh          installs what a build needs
#   deploy/packages.sh test     and what the tests need
#   deploy/packages.sh lint     and what tests/lint.py needs
#   deploy/packages.sh check    what deploy/check.sh needs, and nothing else
#   deploy/packages.sh bundle   what a build and deploy/bundle.sh need
#   deploy/packages.sh image    what deploy/docker/build.sh needs without Docker, no build
#   deploy/packages.sh package  what a build needs, and deploy/debian/build.sh
#   deploy/packages.sh --print [GROUP]   only prints the list
#
# Installs nothing that is there already; uses sudo only when not root.
set -euo pipefail

build=(
  g++ cmake ninja-build
  libabsl-dev libprotobuf-dev protobuf-compiler  # messages
  libgrpc++-dev protobuf-compiler-grpc           # service
  libssl-dev                                     # TLS, and certificates of tests
  libhwy-dev                                     # vectorised CPU kernels
  prometheus-cpp-dev                             # metrics
  libcli11-dev nlohmann-json3-dev libspdlog-dev  # programs
)
test=(
  libgtest-dev libgmock-dev
  libbenchmark-dev
  haproxy               # a front: deploy/haproxy.cfg
  ccache                # three builds share what is compiled for GPUs
  libopenblas-dev       # what the CPU kernels are compared with
  python3 python3-venv  # a client in another language
  python3-numpy python3-matplotlib  # the study's formulas and plots
)
lint=(clang clang-format clang-tidy libclang-rt-dev)
check=(
  shellcheck systemd
  python3 python3-venv    # tools of PyPI: deploy/checks/tools.sh
  debian-archive-keyring  # and of Debian 13
)
bundle=(
  patchelf         # programs find the libraries beside them
  ca-certificates  # whom programs in an image trust
  tzdata           # and its time zone
  debootstrap debian-archive-keyring  # bare roots to try a tarball in
  ccache           # what an image's build compiles once, it need not again
)
image=(
  podman runc   # builds images and runs them
  debootstrap debian-archive-keyring  # the base of the build, where there is no registry
  python3
)
packaging=(
  dpkg-dev debhelper help2man lintian    # .deb
  debootstrap debian-archive-keyring systemd systemd-container procps  # roots to check them in
)

# Quicker TLS, which these processors alone have.
[ "$(dpkg --print-architecture)" != amd64 ] || build+=(libipsec-mb-dev)

print=
[ "${1:-}" = --print ] && { print=1; shift; }
wanted=("${build[@]}")
case "${1:-}" in
  '') ;;
  test) wanted+=("${test[@]}") ;;
  lint) wanted+=("${test[@]}" "${lint[@]}") ;;
  check) wanted=("${check[@]}") ;;
  bundle) wanted+=("${bundle[@]}") ;;
  image) wanted=("${image[@]}") ;;
  package) wanted+=("${packaging[@]}") ;;
  *) sed -n '2,14s/^# \?//p' "$0" >&2; exit 2 ;;
esac
[ -n "$print" ] && { printf '%s\n' "${wanted[@]}"; exit; }

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$state" = "install ok installed" ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "all ${#wanted[@]} packages are there"
  exit
fi

root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)
apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0)
echo "installing ${missing[*]}"
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}"
