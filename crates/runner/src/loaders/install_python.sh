# Creates a virtual environment and installs the dependencies of requirements.txt, or else of pyproject.toml.
set -eu
if "$PYTHON" -m pip --version >/dev/null 2>&1; then
  "$PYTHON" -m venv --without-pip "$VENV"
  pip() { "$PYTHON" -m pip --python "$VENV/bin/python" "$@"; }
else
  "$PYTHON" -m venv "$VENV"
  pip() { "$VENV/bin/python" -m pip "$@"; }
fi
if [ -f requirements.txt ]; then
  echo "installing requirements.txt"
  pip install --requirement requirements.txt
elif [ -f pyproject.toml ]; then
  # A project without a build backend is not a package: only its dependencies are installed.
  "$PYTHON" - >/tmp/requirements.txt <<'PYTHON'
try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
if "build-system" in project:
    print(".")
else:
    for requirement in project.get("project", {}).get("dependencies", []):
        print(requirement)
PYTHON
  echo "installing what pyproject.toml asks for"
  pip install --requirement /tmp/requirements.txt
else
  echo "there is neither requirements.txt nor pyproject.toml: nothing is installed"
fi
# Compiled now, so that processes load faster.
"$VENV/bin/python" -m compileall -q . >/dev/null 2>&1 || true
