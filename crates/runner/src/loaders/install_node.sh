# Installs the dependencies of package.json, with the lock file if there is one.
set -eu
npm() { "$NODE" "$NPM" "$@"; }
if [ ! -f package.json ]; then
  echo "there is no package.json: nothing is installed"
elif [ -f package-lock.json ] || [ -f npm-shrinkwrap.json ]; then
  echo "installing by the lock file (npm ci)"
  npm ci --no-audit --no-fund --no-progress
else
  echo "installing what package.json asks for (npm install)"
  npm install --no-audit --no-fund --no-progress --no-package-lock
fi
