# Installs the dependencies of package.json, which is in the root of the package or in the folder of the entrypoint, with the lock
# file if there is one.
set -eu
npm() { "$NODE" "$NPM" "$@"; }
if [ ! -f package.json ] && [ -f "$(dirname "$ENTRYPOINT")/package.json" ]; then
  cd "$(dirname "$ENTRYPOINT")"
fi
if [ ! -f package.json ]; then
  echo "there is no package.json: nothing is installed"
elif [ -f package-lock.json ] || [ -f npm-shrinkwrap.json ]; then
  echo "installing by the lock file (npm ci)"
  npm ci --no-audit --no-fund --no-progress
else
  for other in pnpm-lock.yaml yarn.lock bun.lock bun.lockb; do
    if [ -f "$other" ]; then
      echo "$other is not read: the versions are those that package.json allows; a package-lock.json fixes them"
    fi
  done
  echo "installing what package.json asks for (npm install)"
  npm install --no-audit --no-fund --no-progress --no-package-lock
fi
