#!/bin/sh
# Installs what `make test` starts and this machine lacks (Java, Maven, a Chromium, buildah and
# mmdebstrap for the container image, Prometheus, systemd's checker, Python's venv module), by the
# package manager of Debian or Ubuntu. Where it may not, it says in one sentence
# what to run. The variables PYTHON and VENV are those of the Makefile.
set -eu
python=${PYTHON:-python3}

has() {
  for name in "$@"; do
    if command -v "$name" >/dev/null 2>&1; then return 0; fi
  done
  return 1
}

# The first of these packages that this release has; the first of all where nobody can say.
first_of() {
  for package in "$@"; do
    if apt-cache show "$package" >/dev/null 2>&1; then
      echo "$package"
      return
    fi
  done
  echo "$1"
}

missing() {
  has make || echo make
  has java || first_of openjdk-17-jre-headless openjdk-21-jre-headless
  has mvn || echo maven
  has chromium chromium-browser google-chrome || first_of chromium chromium-browser
  has buildah || echo buildah
  has mmdebstrap || echo mmdebstrap
  has promtool || echo prometheus
  has systemd-analyze || echo systemd
  [ -x "${VENV:-.venv}/bin/python" ] || "$python" -c 'import ensurepip' 2>/dev/null ||
    echo "${python##*/}-venv"
}

refuse() {
  echo "tests/setup.sh: $1" >&2
  exit 1
}

packages=$(echo $(missing))
[ -n "$packages" ] || exit 0
has apt-get || refuse "no apt-get here to install $packages (named as in Debian); install them yourself"
if [ "$(id -u)" = 0 ]; then
  root=
elif has sudo && sudo -n true 2>/dev/null; then
  root="sudo -n"
else
  refuse "only root may install what is missing; run: sudo apt-get update && sudo apt-get install $packages"
fi

echo "tests/setup.sh: installing $packages"
$root apt-get update -qq
packages=$(echo $(missing)) # what this release has is known only now
$root env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends $packages >/dev/null
