#!/usr/bin/env bash
# Tests the package and the tarball of a release in a fresh Debian, which starts with a systemd of its own. Prints how long the
# steps take and stops at the first failure. The steps are in test-steps.sh.
#
#   deploy/debian/test-package.sh FOLDER    the folder that `cargo xtask dist` has filled, target/dist
#
# Requires root and the packages debootstrap and systemd-container. SUITE and MIRROR choose another Debian.
set -euo pipefail

SUITE=${SUITE:-bookworm}
MIRROR=${MIRROR:-http://deb.debian.org/debian}

say() { echo "==> $*"; }

make_tree() {
  local tree=$1 package=$2 tarball=$3
  say "installing Debian $SUITE in $tree"
  debootstrap --variant=minbase --include=ca-certificates,curl,dbus,procps,systemd,systemd-sysv "$SUITE" "$tree" "$MIRROR" >"$log" ||
    { tail -n 40 "$log" >&2; return 1; }
  # Chromium is in the security updates.
  echo "deb ${MIRROR%/}-security $SUITE-security main" >>"$tree/etc/apt/sources.list"
  mkdir "$tree/test"
  cp "$package" "$tree/test/old.deb"
  cp "$tarball" "$tree/test/casement.tar.gz"
  cp "$(dirname "$0")/test-steps.sh" "$tree/test/"
  later_version "$package" "$tree/test/new.deb"
  write_unit "$tree/etc/systemd/system/test-steps.service"
  mkdir -p "$tree/etc/systemd/system/default.target.wants"
  ln -s ../test-steps.service "$tree/etc/systemd/system/default.target.wants/"
}

# Makes a copy of the package that differs in its version only.
later_version() {
  local package=$1 copy=$2 unpacked
  unpacked=$(mktemp -d)
  dpkg-deb --raw-extract "$package" "$unpacked"
  sed -i 's/^Version: .*/&+later/' "$unpacked/DEBIAN/control"
  dpkg-deb -Znone --root-owner-group --build "$unpacked" "$copy" >"$log"
  rm -rf "$unpacked"
}

# The container ends with the status of this unit.
write_unit() {
  cat >"$1" <<UNIT
[Unit]
After=multi-user.target
SuccessAction=exit
FailureAction=exit

[Service]
Type=oneshot
ExecStart=/bin/bash /test/test-steps.sh
Environment=DEBIAN_FRONTEND=noninteractive
TimeoutStartSec=20min
StandardOutput=file:/test/output
StandardError=inherit
UNIT
}

# Downloads what the package depends on, so that the test itself needs no network.
download_dependencies() {
  say "downloading the dependencies"
  local started=$SECONDS
  systemd-nspawn --quiet --register=no "${scope[@]}" --pipe --directory="$1" bash -euc '
    apt-get update -q
    apt-get install -qy --no-install-recommends --download-only /test/old.deb
  ' >"$log" 2>&1 || { tail -n 40 "$log" >&2; return 1; }
  say "downloaded in $((SECONDS - started)) s"
}

# The container has a loopback network only, so that no server of this machine is in the way. Sandboxes mount a /proc of their
# own, which the kernel forbids where parts of the visible one are covered.
boot() {
  local tree=$1
  : >"$tree/test/output"
  SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes systemd-nspawn --quiet --register=no "${scope[@]}" --private-network --console=read-only \
    --directory="$tree" --boot >"$log" 2>&1 &
  container=$!
  tail --quiet --follow --sleep-interval=0.5 --lines=+1 --pid=$container "$tree/test/output"
  if ! wait $container; then
    container=
    [ -s "$tree/test/output" ] || tail -n 20 "$log" >&2
    return 1
  fi
  container=
}

# The container ends with its supervisor, also where this script is interrupted.
clean_up() {
  if [ -n "$container" ]; then
    kill -KILL "$container" 2>/dev/null || true
    wait "$container" 2>/dev/null || true
  fi
  rm -rf --one-file-system "$tree" "$log"
}

[ $# = 1 ] && [ -d "$1" ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
# Without systemd on this machine, nobody makes a control group for the container.
scope=()
[ -d /run/systemd/system ] || scope=(--keep-unit)
tree=$(mktemp -d)
chmod 755 "$tree"
log=$(mktemp)
container=
trap clean_up EXIT
trap 'exit 130' INT TERM
architecture=$(dpkg --print-architecture)
make_tree "$tree" "$1"/casement_*_"$architecture".deb "$1"/casement-*-"$architecture".tar.gz
download_dependencies "$tree"
boot "$tree"
