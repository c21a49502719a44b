# Fresh roots of distributions, for build.sh and check.sh, which source this after
# deploy/common.sh. Suites of Debian were tried; Ubuntu's would need its own archive and keyring.
# shellcheck shell=bash

# fresh_root SUITE DIR: a minimal system that systemd can boot, from an archive that is
# kept beside DIR.
fresh_root() {
  local suite=$1 root=$2
  local kept; kept=$(dirname "$root")/$suite.tar
  remove_root "$root"
  if [ ! -s "$kept" ]; then
    rm -rf "$kept.d"
    bare_debian "$suite" "$kept.d" --include=systemd,systemd-sysv || return
    rm -f "$kept.d"/var/cache/apt/archives/*.deb
    tar -C "$kept.d" -cf "$kept.part" .
    mv "$kept.part" "$kept"
    rm -rf "$kept.d"
  fi
  mkdir -p "$root"
  tar -C "$root" -xf "$kept"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  mount -t proc proc "$root/proc"
}

# remove_root DIR: and what is mounted there.
remove_root() {
  ! mountpoint -q "$1/proc" || umount "$1/proc"
  rm -rf --one-file-system "$1"
}

# in_chroot DIR COMMAND...: with the network, and without services.
in_chroot() {
  local root=$1
  shift
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
    ${CCACHE_DIR:+CCACHE_DIR="$CCACHE_DIR"} chroot "$root" "$@"
}

# build_in_root SUITE OUT FLAG_OF_CMAKE...: runs build.sh in a fresh root of SUITE on a
# copy of what git has, and leaves its packages and its build in OUT.
build_in_root() {
  local suite=$1 out=$2
  shift 2
  local root=$out/root.$suite
  mkdir -p "$out"
  fresh_root "$suite" "$root"
  mkdir -p "$root/attnd"
  git ls-files -z | xargs -0 tar -cf - | tar -C "$root/attnd" -xf -
  in_chroot "$root" apt-get -q update
  in_chroot "$root" env SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" \
    /attnd/deploy/debian/build.sh --out=/attnd/build/debian -- "$@"
  cp "$root"/attnd/build/debian/attnd*.* "$root"/attnd/build/debian/lib*.deb "$out/"
  rm -rf "$out/build/tests"
  mkdir -p "$out/build/tests/oracle_check"
  cp "$root/attnd/build/debian/build/tests/oracle_check/oracle_check" "$out/build/tests/oracle_check/"
  remove_root "$root"
}
