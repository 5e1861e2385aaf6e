#!/bin/sh
# Writes the backup of a release to crates/app/tests/backups/VERSION, which later versions must restore. Run once for each
# release, from the top of the repository: crates/app/tests/scripts/make_backup.sh PROGRAM
set -eu
PROGRAM=$(realpath "$1")
VERSION=$("$PROGRAM" --version | cut -d' ' -f2)
TARGET=$(realpath crates/app/tests/backups)/$VERSION
ROOT=$(mktemp -d /tmp/casement-make-backup-XXXXXX)
chmod 711 "$ROOT"
export CASEMENT_CONFIG=/dev/null CASEMENT_DATA_DIR="$ROOT/data" CASEMENT_PASSPHRASE_FILE="$ROOT/passphrase"
printf 'a passphrase for tests' > "$ROOT/passphrase"
"$PROGRAM" serve --listen 127.0.0.1:0 --spares 0 --no-default-pool > "$ROOT/output" 2> "$ROOT/log" &
trap '"$PROGRAM" stop --end-sessions; wait; rm -rf "$ROOT"' EXIT
until URL=$(sed -n 's/^casement ready //p' "$ROOT/output") && [ -n "$URL" ]; do sleep 0.2; done
call() { curl --silent --show-error --fail --output /dev/null -H "Authorization: Bearer $(cat "$ROOT/data/api-key")" "$@"; }

call "$URL/credentials" -H 'Content-Type: application/json' \
  -d '{"name": "shop", "domain": "shop.example", "values": {"username": "me"}, "totp_secret": "gezdgnbvgy3tqojq"}'
python3 -c 'import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z: z.writestr("manifest.json", "{\"manifest_version\":3,\"name\":\"x\",\"version\":\"1\"}")' "$ROOT/extension.zip"
call "$URL/extensions" -F name=stored -F "file=@$ROOT/extension.zip"
"$PROGRAM" backup "$TARGET"
