#!/usr/bin/env bash
# Makes the whole root of the image: the Dockerfile's last stage starts from nothing.
#
#   deploy/docker/root.sh BUILD DEST
#
# The README beside this file says what is in it, and why.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,6s/^# \?//p' "$0" >&2; exit 2; }
build=$(realpath "$1")
dest=$(realpath -m "$2")
cd "$(dirname "$0")/../.."
umask 022
multiarch=$(gcc -print-multiarch)

rm -rf "$dest"
mkdir -p "$dest"/{etc/ssl/certs,etc/ld.so.conf.d,usr/bin,usr/lib64,usr/lib/ssl,run,var/lib/dpkg/status.d}
ln -s usr/bin "$dest/bin"
ln -s usr/lib "$dest/lib"
ln -s usr/lib64 "$dest/lib64"

deploy/bundle.sh --libc "$build" "$dest/usr"
# Where the kernel looks for the loader that each program names.
loader=$(patchelf --print-interpreter "$dest/usr/bin/attnd")
[ -e "$dest$loader" ] || ln -s "/usr/lib/${loader##*/}" "$dest$loader"

cat >"$dest/etc/passwd" <<'END'
root:x:0:0:root:/:/nonexistent
attnd:x:65532:65532:attnd:/:/nonexistent
END
cat >"$dest/etc/group" <<'END'
root:x:0:
attnd:x:65532:
END
cat >"$dest/etc/nsswitch.conf" <<'END'
passwd: files
group: files
hosts: files dns
END
cp /etc/ssl/certs/ca-certificates.crt "$dest/etc/ssl/certs/"
ln -s /etc/ssl/certs/ca-certificates.crt "$dest/usr/lib/ssl/cert.pem"
# attnd writes times as UTC. Other zones can be mounted.
install -D -m 0644 /usr/share/zoneinfo/UTC "$dest/usr/share/zoneinfo/UTC"
ln -s /usr/share/zoneinfo/UTC "$dest/etc/localtime"

# For NVIDIA's container toolkit, which brings the driver as a container starts. It
# puts libraries into the first of these folders if there is an /etc/debian_version,
# else into the second, or where the host has them. Then it runs the host's ldconfig,
# which writes a cache only where there was one.
mkdir "$dest/usr/lib/$multiarch"
cp /etc/debian_version "$dest/etc/"
cat >"$dest/etc/ld.so.conf" <<'END'
include /etc/ld.so.conf.d/*.conf
END
printf '/usr/lib/%s\n/usr/lib64\n' "$multiarch" >"$dest/etc/ld.so.conf.d/driver.conf"
ldconfig -r "$dest"

# What scanners for known vulnerabilities read, of packages unpacked without dpkg.
cp /etc/os-release "$dest/etc/"
while read -r package _; do
  dpkg-query -s "$package" >"$dest/var/lib/dpkg/status.d/$package"
done < <(cat "$dest/usr/share/doc/attnd/packages.txt"; echo ca-certificates; echo tzdata)

writable=$(find "$dest" -perm /6022 ! -type l)
[ -z "$writable" ] || { echo "root.sh: others may write to, or run as another: $writable" >&2; exit 1; }
