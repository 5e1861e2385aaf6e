#!/usr/bin/env bash
# Tests a Debian package in a fresh Debian: installs it, starts the server, takes a browser and a picture of its page, upgrades
# the package while the session lives, removes and purges it, and checks that nothing is left. Stops at the first failure.
#
#   deploy/debian/test-package.sh casement_VERSION_ARCH.deb
#
# Requires root on Debian and the package debootstrap; the new tree uses the package sources of this machine. systemd is not
# the first process of the tree, so the unit is not tested: this script starts the server as the unit does.
set -euo pipefail

LISTEN=127.0.0.1:18099
API=http://$LISTEN
SERVER_LOG=/tmp/serve.log

say() { echo "==> $*"; }

fail() {
  echo "FAILED: $*" >&2
  [ ! -f "$SERVER_LOG" ] || tail -n 40 "$SERVER_LOG" >&2
  exit 1
}

make_tree() {
  local tree=$1 package=$2 suite mirror
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" | head -n 1)
  say "installing Debian $suite in $tree"
  debootstrap --variant=minbase --include=ca-certificates,curl,procps "$suite" "$tree" "$mirror"
  cp -a /etc/apt/. "$tree/etc/apt/"
  cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
  # No service starts in a tree without systemd, and Debian's PostgreSQL creates no cluster of its own.
  printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
  chmod +x "$tree/usr/sbin/policy-rc.d"
  mkdir -p "$tree/etc/postgresql-common/createcluster.d"
  echo 'create_main_cluster = false' >"$tree/etc/postgresql-common/createcluster.d/test.conf"
  mkdir "$tree/test"
  cp "$package" "$tree/test/old.deb"
  cp "$0" "$tree/test/test.sh"
  later_version "$package" "$tree/test/new.deb"
}

# Makes a copy of the package that differs in its version only.
later_version() {
  local package=$1 copy=$2 unpacked
  unpacked=$(mktemp -d)
  dpkg-deb --raw-extract "$package" "$unpacked"
  sed -i 's/^Version: .*/&+later/' "$unpacked/DEBIAN/control"
  dpkg-deb -Znone --root-owner-group --build "$unpacked" "$copy"
  rm -rf "$unpacked"
}

# Runs this script with the tree as its root, in namespaces of its own: user namespaces cannot be created in a chroot, and all
# processes end with the script.
enter() {
  unshare --mount --pid --fork --uts --ipc --propagation private bash -euc '
    mount --bind "$1" "$1"
    cd "$1"
    mount --rbind /dev dev
    mount -t proc proc proc
    mount -t tmpfs tmpfs run
    mkdir old
    pivot_root . old
    cd /
    umount --lazy old
    rmdir old
    exec bash /test/test.sh --inside
  ' enter "$1"
}

start_server() {
  casement serve >>"$SERVER_LOG" 2>&1 &
  for _ in $(seq 120); do
    if curl -sf "$API/readyz" >/dev/null; then return; fi
    pgrep -x casement >/dev/null || fail "the server ended"
    sleep 1
  done
  fail "the server is not ready after two minutes"
}

call() {
  local method=$1 path=$2
  shift 2
  curl -sS --fail-with-body -X "$method" "$API$path" -H "Authorization: Bearer $(cat /var/lib/casement/api-key)" \
    -H 'Content-Type: application/json' "$@"
}

take_picture() {
  call POST "/browsers/$1/computer/screenshot" -o /tmp/picture.png || fail "no picture of session $1"
  [ "$(head -c 8 /tmp/picture.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "the picture is no PNG"
}

expect_no_server() { ! pgrep -x casement >/dev/null || fail "$1: the server still runs"; }

# Sandboxes run as users from 1900000000 on. Zombies have ended.
sandbox_processes() { ps -eo uid=,stat=,pid=,args= | awk '$1 >= 1900000000 && $2 !~ /^Z/'; }

install_package() {
  say "installing the package"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -qy --no-install-recommends /test/old.deb
  getent passwd casement >/dev/null || fail "there is no account casement"
  [ "$(stat -c %a /etc/casement/casement.toml)" = 600 ] || fail "others may read the configuration"
  [ -s /usr/lib/casement/runner/runner.blob ] || fail "the script runner has no snapshot"
  [ -s /usr/share/man/man1/casement.1 ] || fail "there is no manual page"
  [ -s /usr/share/bash-completion/completions/casement ] || fail "there are no completions"
  echo "listen = \"$LISTEN\"" >>/etc/casement/casement.toml
}

take_session() {
  say "starting the server and taking a browser"
  start_server
  [ "$(stat -c %U /var/lib/casement/postgres)" = casement ] || fail "the database does not belong to casement"
  call POST /browser_pools/default/acquire -d '{"acquire_timeout_seconds": 120}' >/tmp/session.json || fail "no browser"
  session=$(sed -E 's/.*"session_id": ?"([^"]+)".*/\1/' /tmp/session.json)
  [ -n "$session" ] || fail "no session within two minutes"
  take_picture "$session"
  call POST "/browsers/$session/playwright/execute" -d '{"code": "return 6 * 7"}' | grep -q 42 || fail "no script runs"
}

upgrade_package() {
  say "upgrading the package while session $session lives"
  dpkg --install /test/new.deb
  expect_no_server "after the upgrade"
  [ -n "$(sandbox_processes)" ] || fail "the upgrade ended the session"
  grep -q "$LISTEN" /etc/casement/casement.toml || fail "the upgrade replaced the configuration"
  start_server
  take_picture "$session"
}

remove_package() {
  say "removing the package"
  apt-get remove -qy casement
  expect_no_server "after the removal"
  [ -z "$(sandbox_processes)" ] || fail "sandboxes are left: $(sandbox_processes)"
  [ -d /var/lib/casement/postgres ] || fail "the removal removed the data"
  [ -f /etc/casement/casement.toml ] || fail "the removal removed the configuration"
  [ ! -e /usr/lib/casement ] || fail "the removal left $(find /usr/lib/casement)"
}

purge_package() {
  say "purging the package"
  apt-get purge -qy casement
  ! getent passwd casement >/dev/null || fail "the account casement is left"
  local left
  left=$(find / -xdev -name '*casement*' -not -path '/test/*' -not -path '/var/cache/*' -not -path '/var/log/*')
  left+=$(find /run -name '*casement*')
  [ -z "$left" ] || fail "the purge left: $left"
}

if [ "${1:-}" = --inside ]; then
  install_package
  take_session
  upgrade_package
  remove_package
  purge_package
  say "the package is good"
  exit
fi

[ $# = 1 ] && [ -f "$1" ] || { echo "usage: $0 PACKAGE.deb" >&2; exit 2; }
tree=$(mktemp -d)
chmod 755 "$tree"
trap 'rm -rf --one-file-system "$tree"' EXIT
make_tree "$tree" "$1"
enter "$tree"
