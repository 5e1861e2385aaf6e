#!/usr/bin/env bash
# The steps of test-package.sh, in the container: installs the package, takes a browser and a picture of its page, upgrades the
# package while the session lives, removes and purges it, and checks that nothing is left; then the same page with the tarball.
set -euo pipefail

API=http://127.0.0.1:8080
PAGE=http://127.0.0.1:8000/
TITLE='The first page'
MAX_FIRST_PAGE_MS=60000
LOG=/test/log

say() { echo "==> $*"; }

fail() {
  echo "FAILED: $*"
  tail -n 40 "$LOG"
  journalctl --no-pager --lines 60 --unit casement
  exit 1
}

now_ms() { date +%s%3N; }
seconds_since() { awk -v ms=$(($(now_ms) - $1)) 'BEGIN { printf "%.1f s", ms / 1000 }'; }

# Runs a command of which only a failure is of interest.
quietly() { "$@" >"$LOG" 2>&1 || fail "$*"; }

call() {
  local method=$1 path=$2
  shift 2
  curl -sS --fail-with-body --max-time 120 -X "$method" "$API$path" -H "Authorization: Bearer $(cat /var/lib/casement/api-key)" \
    -H 'Content-Type: application/json' "$@" 2>>"$LOG"
}

wait_until_ready() {
  for _ in $(seq 600); do
    if curl -sf "$API/readyz" >/dev/null; then return; fi
    # It is active when the server accepts calls.
    state=$(systemctl is-active casement || true)
    [[ $state == active || $state == activating ]] || fail "the service is $state"
    sleep 0.2
  done
  fail "the server is not ready after two minutes"
}

# Sets the variable `session`.
acquire() {
  call POST /browser_pools/default/acquire -d '{"acquire_timeout_seconds": 60}' >/test/session.json || fail "no browser"
  session=$(sed -E 's/.*"session_id": ?"([^"]+)".*/\1/' /test/session.json)
  [ -n "$session" ] || fail "no browser within a minute"
}

# Runs a script in the session and compares what it returns.
expect_script() {
  local code=$1 wanted=$2 answer
  answer=$(call POST "/browsers/$session/playwright/execute" -d "{\"code\": \"$code\"}") || fail "no script runs: $answer"
  [[ $answer == *"$wanted"* ]] || fail "the script returned $answer instead of $wanted"
}

open_page() { expect_script "await page.goto('$PAGE'); return page.title()" "$TITLE"; }

take_picture() {
  call POST "/browsers/$session/computer/screenshot" -o /test/picture.png || fail "no picture of session $session"
  [ "$(head -c 8 /test/picture.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "the picture is no PNG"
}

serve_page() {
  local runner=$1
  quietly systemd-run --unit=test-page "$runner"/node_modules/node-linux-*/bin/node --eval \
    "require('http').createServer((_, answer) => answer.end('<title>$TITLE</title>$TITLE')).listen(8000, '127.0.0.1')"
}

# Sandboxes run as users from 1900000000 on. Zombies have ended.
sandbox_processes() { ps -eo uid=,stat=,pid=,args= | awk '$1 >= 1900000000 && $2 !~ /^Z/'; }

server_processes() { ps -eo comm=,stat=,pid=,args= | awk '$1 ~ /^(casement|postgres|bwrap)$/ && $2 !~ /^Z/'; }

expect_no_processes() {
  [ -z "$(sandbox_processes)" ] || fail "$1: sandboxes are left: $(sandbox_processes)"
  [ -z "$(server_processes)" ] || fail "$1: processes are left: $(server_processes)"
}

prepare() {
  mkdir -p /etc/postgresql-common/createcluster.d /etc/systemd/system/casement.service.d
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/test.conf
  # The page is on this machine, which pages may not reach otherwise.
  printf '[Service]\nEnvironment=CASEMENT_EGRESS_ALLOW=127.0.0.1\n' >/etc/systemd/system/casement.service.d/test.conf
}

install_package() {
  say "installing the package"
  local started
  started=$(now_ms)
  quietly apt-get install -qy --no-install-recommends /test/old.deb
  installed_ms=$(now_ms)
  say "unpacked and configured with its dependencies in $(seconds_since "$started")"
}

take_first_page() {
  wait_until_ready
  say "ready $(seconds_since "$installed_ms") after the installation"
  serve_page /usr/lib/casement/runner
  acquire
  open_page
  take_picture
  say "first page $(seconds_since "$installed_ms") after the installation"
  (($(now_ms) - installed_ms <= MAX_FIRST_PAGE_MS)) || fail "the first page took more than $MAX_FIRST_PAGE_MS ms"
}

check_installation() {
  getent passwd casement >/dev/null || fail "there is no account casement"
  [ "$(stat -c %U /var/lib/casement/postgres)" = casement ] || fail "the database does not belong to casement"
  [ "$(stat -c %a /etc/casement/casement.toml)" = 600 ] || fail "others may read the configuration"
  [ -s /usr/lib/casement/runner/runner.blob ] || fail "the script runner has no snapshot"
  [ -s /usr/share/man/man1/casement.1 ] || fail "there is no manual page"
  [ -s /usr/share/man/man1/casement-sessions-exec.1 ] || fail "a verb has no manual page"
  [ -s /usr/share/casement/casement-alerts.yaml ] || fail "the alert rules are missing"
  [ -s /usr/share/casement/grafana-dashboard.json ] || fail "the dashboard is missing"
  [ -s /usr/share/doc/casement/guides/troubleshooting.md ] || fail "the guides are missing"
  [ -s /usr/share/bash-completion/completions/casement ] || fail "there are no completions"
  systemctl --quiet is-enabled casement || fail "the service does not start with the machine"
  quietly casement doctor
}

upgrade_package() {
  say "upgrading the package while session $session lives"
  local server started
  server=$(systemctl show --property MainPID casement)
  echo '# kept' >>/etc/casement/casement.toml
  started=$(now_ms)
  quietly apt-get install -qy --no-install-recommends /test/new.deb
  wait_until_ready
  say "ready again $(seconds_since "$started") after the start of the upgrade"
  [ "$(systemctl show --property MainPID casement)" != "$server" ] || fail "the old server still runs"
  [ "$(tail -n 1 /etc/casement/casement.toml)" = '# kept' ] || fail "the upgrade replaced the configuration"
  expect_script 'return page.title()' "$TITLE"
  take_picture
}

remove_package() {
  say "removing the package while session $session lives"
  quietly apt-get remove -qy casement
  expect_no_processes "after the removal"
  [ -d /var/lib/casement/postgres ] || fail "the removal removed the data"
  [ -f /etc/casement/casement.toml ] || fail "the removal removed the configuration"
  [ ! -e /usr/lib/casement ] || fail "the removal left $(find /usr/lib/casement)"
}

expect_nothing_left() {
  local left
  ! getent passwd casement >/dev/null || fail "the account casement is left"
  ! getent group casement >/dev/null || fail "the group casement is left"
  left=$(find / -xdev -name '*casement*' -not -path '/test/*' -not -path '/var/cache/*')
  left+=$(find /run /tmp /dev/shm -name '*casement*')
  # Not all of it: hierarchies of version 1 show the groups of this machine too.
  left+=$(find /sys/fs/cgroup -type d -path '*/system.slice/*casement*')
  left+=$(grep casement /proc/self/mountinfo || true)
  left+=$(systemctl list-units --all --plain --no-legend '*casement*')
  [ -z "$left" ] || fail "$1 left: $left"
  expect_no_processes "$1"
}

purge_package() {
  say "purging the package"
  quietly apt-get purge -qy casement
  rm -r /etc/systemd/system/casement.service.d
  systemctl daemon-reload
  expect_nothing_left "the purge"
}

# The commands are those of docs/install.md.
try_tarball() {
  say "installing the tarball"
  prepare
  tar --extract --gzip --file /test/casement.tar.gz --directory /usr/local --strip-components 1 --no-same-owner
  install -D --mode 600 /usr/local/etc/casement/casement.toml /etc/casement/casement.toml
  # Bash has remembered the path of the package.
  hash -r
  useradd --system --no-create-home --shell /usr/sbin/nologin casement
  (cd /usr/local/lib/casement/runner && quietly node_modules/node-linux-*/bin/node snapshot.cjs runner.blob)
  casement doctor || fail "casement doctor"
  systemctl daemon-reload
  quietly systemctl enable --now casement
  wait_until_ready
  acquire
  open_page
  take_picture
  quietly casement stop --end-sessions
  expect_no_processes "after the stop"
}

session=
installed_ms=
prepare
install_package
take_first_page
check_installation
upgrade_package
remove_package
purge_package
try_tarball
say "the package and the tarball are good"
