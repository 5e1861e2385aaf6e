#!/usr/bin/env bash
# Makes the secrets of compose.yaml in the file .env beside it, which only its owner may read. Keep a copy of the master key elsewhere:
# without it, nobody can open the stored passwords and profiles.
set -euo pipefail

file=$(dirname "$0")/.env
# Other keys would not open what the present ones have sealed.
[ ! -e "$file" ] || { echo "$file exists already; it is left as it is" >&2; exit 1; }
random() { head -c 32 /dev/urandom | base64 --wrap=0; }
random_word() { head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
umask 077
# Written under another name first, so that an interrupted run leaves no incomplete file.
printf 'MASTER_KEY=%s\nDATABASE_PASSWORD=%s\nSTORE_SECRET=%s\n' "$(random)" "$(random_word)" "$(random_word)" >"$file.new"
mv "$file.new" "$file"
echo "the secrets are in $file"
