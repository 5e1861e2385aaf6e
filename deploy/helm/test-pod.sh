#!/usr/bin/env bash
# Starts the containers of the rendered chart with the rights and mounts that Kubernetes gives them: the users of the pod mapped to
# others of the machine, no capability, a read-only root, the seccomp profile. `casement doctor` has to find everything, a page
# is opened over the API, the queries of the autoscaler run, and the preStop hook ends the node. Stops at the first failure.
#
#   deploy/helm/test-pod.sh FOLDER    the files of the image: docker export $(docker create casement) | tar --extract --directory FOLDER
#
# Requires root, crun, iproute2, util-linux, PostgreSQL's server and curl. `cargo xtask chart` has installed helm, Python's
# packages and the S3-compatible store below target/chart; TOOLS names another folder.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
TOOLS=${TOOLS:-$here/../../target/chart}
POD=10.99.0.2
HOST=10.99.0.1
# The first user of the machine to which the users of the pod are mapped.
HOST_USER=1000000
TITLE='A page in a pod'

# Everything runs in namespaces of its own, so nothing outlives this script, and no server of this machine is in the way.
if [ "${INSIDE:-}" != yes ]; then
  [ $# = 1 ] && [ -d "$1" ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
  chmod 755 "$work"
  INSIDE=yes unshare --net --mount --pid --ipc --uts --fork --kill-child --mount-proc "$0" "$1" "$work"
  exit
fi
image=$(realpath "$1") work=$2

say() { echo "==> $*"; }

fail() {
  echo "FAILED: $*"
  tail -n 60 "$work"/*.log
  exit 1
}

quietly() { "$@" >"$work/command.log" 2>&1 || fail "$*"; }

until_true() {
  local seconds=$1
  shift
  for _ in $(seq $((seconds * 5))); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "not within $seconds s: $*"
}

# The files of the image belong to the users of the pod, as after an idmapped mount. Only their owners are copied.
unpack() {
  say "giving the files of the image to the users of the pod"
  mkdir "$work/rootfs" "$work/changes" "$work/overlay"
  mount -t overlay -o "metacopy=on,lowerdir=$image,upperdir=$work/changes,workdir=$work/overlay" image "$work/rootfs"
  python - "$work/rootfs" "$HOST_USER" <<'PYTHON'
import os, sys
root, first = sys.argv[1], int(sys.argv[2])
def shift(path):
    found = os.lstat(path)
    os.lchown(path, found.st_uid + first, found.st_gid + first)
shift(root)
for folder, folders, files in os.walk(root):
    for name in folders + files:
        shift(os.path.join(folder, name))
PYTHON
}

start_database() {
  say "starting PostgreSQL"
  local programs data=$work/database
  programs=$(find /usr/lib/postgresql -name initdb -printf '%h\n' | sort -V | tail -n 1)
  [ -n "$programs" ] || fail "there is no PostgreSQL"
  install --directory --owner postgres "$data" "$work/run"
  quietly setpriv --reuid postgres --regid postgres --clear-groups "$programs/initdb" --pgdata "$data" --auth trust --username casement
  echo "host all all $POD/32 trust" >>"$data/pg_hba.conf"
  setpriv --reuid postgres --regid postgres --clear-groups "$programs/postgres" -D "$data" -k "$work/run" \
    -c listen_addresses=$HOST -c fsync=off >"$work/postgres.log" 2>&1 &
  until_true 60 psql --host "$work/run" --username casement postgres --command 'CREATE DATABASE casement'
}

start_store() {
  say "starting the S3-compatible store"
  mkdir "$work/store"
  AWS_ACCESS_KEY_ID=casement AWS_SECRET_ACCESS_KEY=swordfish "$TOOLS/venv/bin/weed" mini -dir="$work/store" -ip=$HOST -ip.bind=0.0.0.0 \
    -bucket=casement -admin.ui=false -webdav=false >"$work/store.log" 2>&1 &
  until_true 60 curl --fail --silent "http://$HOST:8333/healthz"
}

serve_page() {
  mkdir "$work/page"
  echo "<!doctype html><title>$TITLE</title>$TITLE" >"$work/page/index.html"
  python -m http.server --bind $HOST --directory "$work/page" 8000 >"$work/page.log" 2>&1 &
}

# Renders the chart with the value sets of this test, and more values as arguments.
render() {
  cat >"$work/values.yaml" <<VALUES
database: {existingSecret: database}
masterKey: {existingSecret: keys}
objectStore: {url: "s3://casement", endpoint: "http://$HOST:8333", region: us-east-1, pathStyle: true, existingSecret: store}
longestSession: 30
# The page and the store are on private addresses.
settings: {egress_allow: ["$HOST"], session_memory: 1024}
# For the queries of the autoscaler.
autoscaling: {enabled: true}
VALUES
  "$TOOLS/helm" template casement "$here/casement" --namespace browsers --values "$work/values.yaml" "$@" >"$work/pod.yaml"
}

describe() {
  local key
  key=$(head -c 32 /dev/urandom | base64 --wrap=0)
  rm -rf "$work/data" "$work/temporary"
  # As Kubernetes makes them: for root of the pod and its fsGroup.
  install --directory --mode 2775 --owner $HOST_USER --group $((HOST_USER + 10001)) "$work/data"
  install --directory --mode 2777 --owner $HOST_USER --group $((HOST_USER + 10001)) "$work/temporary"
  printf '127.0.0.1 localhost\n%s casement-0.casement-nodes.browsers.svc casement-0\n' $POD >"$work/hosts"
  printf 'nameserver %s\n' $HOST >"$work/resolv.conf"
  cat >"$work/settings.json" <<SETTINGS
{"manifests": "$work/pod.yaml", "rootfs": "$work/rootfs", "host_user": $HOST_USER, "profiles": "$here/casement/files",
 "secrets": {"database": {"url": "postgresql://casement@$HOST/casement"}, "keys": {"master-key": "$key"},
             "store": {"AWS_ACCESS_KEY_ID": "casement", "AWS_SECRET_ACCESS_KEY": "swordfish"}},
 "volumes": {"data": "$work/data", "temporary": "$work/temporary"},
 "files": {"/etc/hosts": "$work/hosts", "/etc/resolv.conf": "$work/resolv.conf"}}
SETTINGS
}

crun() { command crun --root "$work/crun" --cgroup-manager disabled "$@"; }

# Makes a container of the pod with a network of its own, and starts it.
start() {
  local name=$1 pid
  mkdir -p "$work/$name"
  bundle container "$name" >"$work/$name/config.json"
  crun create --bundle "$work/$name" "$name" >"$work/$name.log" 2>&1 || fail "crun create $name"
  pid=$(crun state "$name" | python -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
  ip link add name "pod-$name" type veth peer name eth0 netns "$pid"
  ip link set "pod-$name" up
  ip route replace $POD/32 dev "pod-$name" src $HOST
  nsenter --target "$pid" --net sh -c "ip link set lo up; ip address add $POD/24 dev eth0; ip link set eth0 up; ip route add default via $HOST"
  crun start "$name"
}

is_stopped() { crun state "$1" | grep -q '"status": "stopped"'; }

run_doctor() {
  say "casement doctor, as the init container"
  start doctor
  until_true 120 is_stopped doctor
  cat "$work/doctor.log"
  if grep -q '^MISSING\|^casement:\|^Error' "$work/doctor.log" || ! grep -q '^ok .*a browser' "$work/doctor.log"; then
    fail "the machine of the pod lacks something"
  fi
  crun delete doctor
}

# A machine that lacks something keeps the pod from starting: here, /proc is covered as in usual pods.
refuse_covered_proc() {
  say "casement doctor, where /proc is covered"
  render
  sed --in-place 's/procMount: Unmasked/procMount: Default/' "$work/pod.yaml"
  describe
  start doctor
  until_true 120 is_stopped doctor
  grep '^MISSING' "$work/doctor.log" || fail "casement doctor does not notice: $(cat "$work/doctor.log")"
  crun delete doctor
}

# Runs a command in the container, as `kubectl exec` does.
inside() {
  bundle exec casement "$@" >"$work/exec.json"
  crun exec --process "$work/exec.json" casement
}

# Compares one line of /proc/PID/status of the server.
expect_status() {
  local wanted=$1
  grep -qxP "$wanted" "/proc/$server/status" || fail "the server has not $wanted: $(cat "/proc/$server/status")"
}

check_rights() {
  local user=$((HOST_USER + 10001))
  server=$(pgrep --newest --uid $user --full '^casement serve')
  expect_status "Uid:\t$user\t$user\t$user\t$user"
  expect_status 'Cap(Eff|Prm|Bnd)\S*:\t0{16}'
  expect_status 'NoNewPrivs:\t1'
  expect_status "Seccomp:\t$1"
  if inside touch /written 2>/dev/null; then fail "the root can be written"; fi
  [ "$(inside id -u)" = 10001 ] || fail "the user is $(inside id -u)"
}

call() {
  local method=$1 path=$2
  shift 2
  curl --silent --show-error --fail-with-body --max-time 120 --request "$method" "http://$POD:8080$path" \
    --header "Authorization: Bearer $key" --header 'Content-Type: application/json' "$@" 2>>"$work/calls.log"
}

# Sets the variable `session`.
acquire() {
  local answer
  answer=$(call POST /browser_pools/default/acquire --data '{"acquire_timeout_seconds": 60}') || fail "no browser: $answer"
  session=$(sed -E 's/.*"session_id": ?"([^"]+)".*/\1/' <<<"$answer")
}

release() { call POST /browser_pools/default/release --data "{\"session_id\": \"$session\"}" >/dev/null || fail "no release"; }

open_page() {
  local answer
  answer=$(call POST "/browsers/$session/playwright/execute" \
    --data "{\"code\": \"await page.goto('http://$HOST:8000/'); return page.title()\"}") || fail "no script runs: $answer"
  [[ $answer == *"$TITLE"* ]] || fail "the script returned $answer"
}

use_browser() {
  say "a page over the API"
  key=$(inside casement keys create --name test | grep --only-matching 'csk_[A-Za-z0-9_-]*' | tail -n 1) || true
  [ -n "$key" ] || fail "no key was made"
  acquire
  open_page
  call POST "/browsers/$session/computer/screenshot" --output "$work/picture.png" || fail "no picture"
  [ "$(head -c 8 "$work/picture.png" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "the picture is no PNG"
  release
}

# The queries stand in the rendered chart; both are whole numbers for KEDA.
run_queries() {
  say "the queries of the autoscaler"
  local query number
  while IFS= read -r query; do
    number=$(psql --host "$work/run" --username casement --no-align --tuples-only --command "$query" casement) || fail "$query"
    [[ $number =~ ^[0-9]+$ ]] || fail "$query returned $number"
    echo "    $number  $query"
  done < <(python -c '
import sys, yaml
for found in yaml.safe_load_all(open(sys.argv[1])):
    if found and found["kind"] == "ScaledObject":
        for trigger in found["spec"]["triggers"]:
            print(" ".join(trigger["metadata"]["query"].split()))' "$work/pod.yaml")
}

status_of() { curl --silent --output /dev/null --write-out '%{http_code}' --max-time 5 "http://$POD:8080$1"; }

# Not degraded either: the object store responds.
is_ready() { [[ $(curl --silent --max-time 5 "http://$POD:8080/readyz") == *'"status":"ok"'* ]]; }

is_draining() { [ "$(status_of /readyz)" = 503 ]; }

# A session continues while its node is drained; the hook ends with it, long before its deadline.
drain() {
  say "the preStop hook, while a session lives"
  local hook
  acquire
  bundle prestop casement >"$work/exec.json"
  crun exec --process "$work/exec.json" casement >"$work/drain.log" 2>&1 &
  hook=$!
  until_true 10 is_draining
  [ "$(status_of /healthz)" = 200 ] || fail "a node that is drained is not alive"
  open_page
  kill -0 $hook || fail "the hook did not wait for the session"
  release
  wait $hook || fail "the hook ended with $?"
}

end_node() {
  say "the end"
  crun kill casement TERM || is_stopped casement || fail "the server does not take the signal"
  until_true 30 is_stopped casement
  crun delete casement
  [ -z "$(pgrep --uid $((HOST_USER + 10001)))" ] || fail "processes of the pod are left: $(pgrep --list-full --uid $((HOST_USER + 10001)))"
}

# Starts a node with this filter of system calls, and uses it. The second argument is the mode of the kernel.
try_pod() {
  local filter=$1 mode=$2
  say "a pod with seccomp.type $filter"
  # A store belongs to one database.
  render --set "seccomp.type=$filter" --set seccomp.localhostProfile=seccomp.json --set "objectStore.url=s3://casement/${filter,,}"
  quietly psql --host "$work/run" --username casement postgres --command 'DROP DATABASE casement' --command 'CREATE DATABASE casement'
  describe
  run_doctor
  start casement
  until_true 120 is_ready
  [ "$(status_of /healthz)" = 200 ] || fail "/healthz responds $(status_of /healthz)"
  check_rights "$mode"
  use_browser
  run_queries
  drain
  end_node
}

python() { "$TOOLS/venv/bin/python" "$@"; }

bundle() { python "$here/pod_bundle.py" "$work/settings.json" "$@"; }

mount --make-rprivate /
# crun refuses machines that have both versions of control groups.
[ ! -d /sys/fs/cgroup/unified ] || mount --bind /sys/fs/cgroup/unified /sys/fs/cgroup
# As the service of a container runtime has it.
ulimit -n "$(ulimit -Hn)"
ip link set lo up
# The address of the machine, at an end of a cable of its own, so that it exists before the first pod.
ip link add name machine type veth peer name other-end
ip address add $HOST/32 dev machine
ip link set machine up
ip link set other-end up
unpack
start_database
start_store
serve_page
refuse_covered_proc
try_pod Unconfined 0
try_pod Localhost 2
say "the pod of the chart works"
