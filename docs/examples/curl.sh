# Takes a browser from the pool `default`, takes a picture of it, gives it back.
#
#   CASEMENT_KEY=$(cat /var/lib/casement/api-key) sh curl.sh
#
# It leaves screenshot.png where it runs.
set -eu
api=${CASEMENT_URL:-http://127.0.0.1:8080}
auth="Authorization: Bearer $CASEMENT_KEY"
json='Content-Type: application/json'

# 200 with the session, or 204 and no body when none became free in time: ask again.
session=
until [ -n "$session" ]; do
  session=$(curl -sS --fail-with-body -X POST "$api/browser_pools/default/acquire" -H "$auth")
done
id=$(printf %s "$session" | sed -E 's/.*"session_id": ?"([^"]+)".*/\1/')
# Whatever happens from here on: give it back. Its machine is destroyed, and a fresh one takes its place.
trap 'curl -sS --fail-with-body -X POST "$api/browser_pools/default/release" -H "$auth" -H "$json" -d "{\"session_id\": \"$id\"}"' EXIT

curl -sS --fail-with-body -X POST "$api/browsers/$id/computer/screenshot" -H "$auth" -o screenshot.png
echo "screenshot.png"
