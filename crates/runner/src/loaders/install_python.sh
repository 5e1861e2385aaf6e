# Creates a virtual environment and installs the dependencies of the project, which is in the root of the package or in the
# folder of the entrypoint: those of requirements.txt, or else of pyproject.toml or setup.py.
set -eu
if "$PYTHON" -m pip --version >/dev/null 2>&1; then
  "$PYTHON" -m venv --without-pip "$VENV"
  pip() { "$PYTHON" -m pip --python "$VENV/bin/python" "$@"; }
else
  "$PYTHON" -m venv "$VENV"
  pip() { "$VENV/bin/python" -m pip "$@"; }
fi

# Installs a project with pyproject.toml in the current folder: as a package, if it is one, and else its dependencies.
install_project() {
  "$PYTHON" - >/tmp/requirements.txt <<'PYTHON'
import re
import sys

try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib


def fail(why):
    sys.exit(f"ERROR: pyproject.toml: {why}")


def next_release(numbers, at):
    return ".".join(map(str, numbers[:at] + [numbers[at] + 1]))


def specifier(name, text):
    """Translates one constraint of Poetry: ^1.2, ~1.2, 1.2, 1.*, * or one of PEP 440."""
    text = text.strip()
    if "|" in text:
        fail(f"{name} = {text!r}: alternatives have no form for pip; name one range, or add a requirements.txt")
    if text in ("", "*"):
        return ""
    found = re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)(\S*)", text)
    if found:
        numbers = [int(number) for number in found[2].split(".")]
        if found[1] == "~":
            at = min(1, len(numbers) - 1)
        else:
            at = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        return f">={found[2]}{found[3]},<{next_release(numbers, at)}"
    return text if re.match(r"[<>=!~]", text) else f"=={text}"


def requirement(name, value):
    """Returns the requirement of one entry of tool.poetry.dependencies; None if it is optional."""
    if isinstance(value, str):
        value = {"version": value}
    if value.get("optional"):
        return None
    extras = f"[{','.join(value['extras'])}]" if value.get("extras") else ""
    marker = f" ; {value['markers']}" if value.get("markers") else ""
    if "path" in value:
        return value["path"] if value["path"].startswith(".") else f"./{value['path']}"
    if "url" in value:
        return f"{name}{extras} @ {value['url']}{marker}"
    if "git" in value:
        at = next((f"@{value[kind]}" for kind in ("rev", "tag", "branch") if kind in value), "")
        return f"{name}{extras} @ git+{value['git']}{at}{marker}"
    parts = [specifier(name, part) for part in str(value.get("version", "*")).split(",")]
    return f"{name}{extras}{','.join(part for part in parts if part)}{marker}"


try:
    with open("pyproject.toml", "rb") as file:
        whole = tomllib.load(file)
except tomllib.TOMLDecodeError as error:
    fail(error)
project, poetry = whole.get("project", {}), whole.get("tool", {}).get("poetry", {})
wanted = list(project.get("dependencies", []))
if "dependencies" not in project:
    for name, values in poetry.get("dependencies", {}).items():
        if name.lower() != "python":
            values = values if isinstance(values, list) else [values]
            wanted += [one for one in (requirement(name, value) for value in values) if one]
is_package = "build-system" in whole and poetry.get("package-mode", True)
# The dependencies of such a package are known only to what builds it.
is_dynamic = "dependencies" in project.get("dynamic", []) or not (project or poetry)
with open("/tmp/kind", "w") as file:
    file.write("dynamic" if is_package and is_dynamic else "package" if is_package else "dependencies")
print("\n".join(wanted))
PYTHON
  case $(cat /tmp/kind) in
  dynamic)
    echo "installing the package of pyproject.toml"
    pip install .
    return
    ;;
  package)
    echo "installing the package of pyproject.toml"
    if pip install .; then
      return
    fi
    echo "the project cannot be installed as a package, see above: only its dependencies are installed"
    ;;
  *) echo "installing what pyproject.toml asks for" ;;
  esac
  pip install --requirement /tmp/requirements.txt
}

# Installs what the current folder asks for. Fails if it asks for nothing.
install_folder() {
  if [ -f requirements.txt ]; then
    echo "installing requirements.txt"
    pip install --requirement requirements.txt
  elif [ -f pyproject.toml ]; then
    install_project
  elif [ -f setup.py ]; then
    echo "installing the package of setup.py"
    pip install .
  else
    for other in Pipfile environment.yml; do
      if [ -f "$other" ]; then
        echo "ERROR: $other is not read: list the dependencies in requirements.txt or pyproject.toml" >&2
        exit 1
      fi
    done
    found=
  fi
}

found=1
root=$PWD
install_folder
if [ -z "$found" ] && [ "$(dirname "$ENTRYPOINT")" != . ]; then
  found=1
  cd "$(dirname "$ENTRYPOINT")"
  install_folder
  cd "$root"
fi
if [ -z "$found" ]; then
  echo "there is neither requirements.txt nor pyproject.toml: nothing is installed"
fi
# Compiled now, so that processes load faster.
"$VENV/bin/python" -m compileall -q . >/dev/null 2>&1 || true
