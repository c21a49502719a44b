# shellcheck shell=bash disable=SC2034  # used by whoever sources this
# Sourced from the root of the repository. Sets
#   engine     the command that builds and runs containers: docker or, where no Docker
#              engine answers, podman, whose packages it installs
#   confined   flags of a container that may do nothing and write nowhere
confined=(--read-only --cap-drop=ALL --security-opt=no-new-privileges)
if docker info >/dev/null 2>&1; then
  engine=(docker)
else
  deploy/packages.sh image
  # Unlike crun, runc also runs where there are control groups of both versions.
  engine=(podman --runtime=runc)
  # podman would ask for higher limits than its caller has, which not every root may, and
  # mount folders for temporary files over a read-only root.
  confined+=(--ulimit="nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit=nproc=4096:4096 --read-only-tmpfs=false)
fi
