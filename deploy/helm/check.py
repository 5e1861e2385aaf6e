"""Checks the Helm chart and the compose file: `cargo xtask chart`.

    check.py HELM

Each file of casement/ci is a set of values. Its rendering is compared with the schemas of the last three versions of Kubernetes,
in which unknown fields are errors, and with what the chart promises. Wrong values have to be refused.
"""

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import kubernetes_validate
import yaml

HERE = Path(__file__).resolve().parent
CHART = HERE / "casement"
ROOT = HERE.parent.parent
KUBERNETES = ["1.35", "1.36", "1.37"]
# Kinds of operators, which Kubernetes has no schema for.
FOREIGN = {"HTTPRoute", "PrometheusRule", "ServiceMonitor", "ScaledObject", "TriggerAuthentication"}
HELM = sys.argv[1]
MINIMAL = CHART / "ci/minimal-values.yaml"

# Values that are refused, each with a word of the message.
REFUSED = [
    (["nonsense=1"], "nonsense"),
    (["seccomp.typ=Unconfined"], "typ"),
    (["seccomp.type=RuntimeDefault"], "/seccomp/type"),
    (["replicas=0"], "/replicas"),
    (["database.existingSecret="], "/database/existingSecret"),
    (["masterKey.existingSecret="], "/masterKey/existingSecret"),
    (["objectStore.url=https://bucket"], "/objectStore/url"),
    (["settings.data_dir=/elsewhere"], "data_dir"),
    (["settings.sessionMemory=1024"], "sessionMemory"),
    (["ingress.enabled=true"], "/ingress/host"),
    (["serviceMonitor.enabled=true"], "/serviceMonitor/existingSecret"),
    (["httpRoute.enabled=true"], "/httpRoute/parentRefs"),
    (["image.digest=latest"], "/image/digest"),
    (["persistence.whenScaled=Keep"], "/persistence/whenScaled"),
]


def main():
    check_versions()
    check_values_are_documented()
    renderings = {path.stem: render("--values", path) for path in sorted(CHART.glob("ci/*.yaml"))}
    assert len(renderings) >= 4, renderings.keys()
    for path in sorted(CHART.glob("ci/*.yaml")):
        helm("lint", "--strict", CHART, "--values", path)
    for version in KUBERNETES:
        for path in sorted(CHART.glob("ci/*.yaml")):
            count = validate(render("--values", path, "--kube-version", version), version)
            print(f"Kubernetes {version}, {path.name}: {count} objects are valid")
    for name, objects in renderings.items():
        check_pods(objects)
        check_drain(objects)
        check_network(objects)
        check_configuration(objects)
        print(f"{name}: the promises are kept")
    check_options(renderings)
    check_settings_exist(renderings["everything-values"])
    check_refused()
    check_compose()
    print("the chart and the compose file are good")


def helm(*arguments):
    done = subprocess.run([HELM, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def render(*arguments):
    text = helm("template", "casement", CHART, "--namespace", "browsers", *arguments)
    return [found for found in yaml.safe_load_all(text) if found]


def of_kind(objects, kind):
    return [it for it in objects if it["kind"] == kind]


def only(objects, kind):
    found = of_kind(objects, kind)
    assert len(found) == 1, f"{len(found)} of the kind {kind}"
    return found[0]


def configuration(objects):
    (file,) = [it["data"]["casement.toml"] for it in of_kind(objects, "ConfigMap") if "casement.toml" in it["data"]]
    return tomllib.loads(file)


def pod_of(objects):
    return only(objects, "StatefulSet")["spec"]["template"]["spec"]


def check_versions():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert chart["version"] == chart["appVersion"] == workspace, "Chart.yaml: the versions are that of the workspace"


def check_values_are_documented():
    """The schema names the same values as values.yaml, and refuses others at every level."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    schema["properties"].pop("global")
    compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "")
    documented = False
    for line in (CHART / "values.yaml").read_text().splitlines():
        if not re.match(r" *\w+:", line):
            # A comment is about all values up to the next empty line or comment.
            documented = line.lstrip().startswith("#")
        else:
            assert documented or re.fullmatch(r"\w+:", line), f"values.yaml: {line}: say what it is"


def compare(values, schema, path):
    if "properties" not in schema:
        return
    assert schema["additionalProperties"] is False, f"{path}: unknown values are not refused"
    assert set(values) == set(schema["properties"]), f"{path}: {set(values) ^ set(schema['properties'])}"
    for name, value in values.items():
        compare(value, schema["properties"][name], f"{path}/{name}")


def validate(objects, version):
    known = [it for it in objects if it["kind"] not in FOREIGN]
    for found in known:
        kubernetes_validate.validate(found, version, strict=True)
    return len(known)


def check_pods(objects):
    """No right, no root, no token; both containers alike."""
    pod = pod_of(objects)
    assert pod["hostUsers"] is False and pod["automountServiceAccountToken"] is False
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    user = pod["securityContext"]
    assert user["runAsNonRoot"] and user["runAsUser"] == user["runAsGroup"] == user["fsGroup"] == 10001, user
    wanted = {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "procMount": "Unmasked",
        "capabilities": {"drop": ["ALL"]},
    }
    containers = pod["containers"] + [it for it in pod.get("initContainers", []) if it["name"] == "doctor"]
    for container in containers:
        assert container["securityContext"] == wanted, container["securityContext"]
        assert container["env"] == containers[0]["env"] and container["volumeMounts"] == containers[0]["volumeMounts"]
    secrets = {"CASEMENT_DATABASE_URL", "CASEMENT_MASTER_KEY", "AWS_SECRET_ACCESS_KEY"}
    in_plain = [it["name"] for it in containers[0]["env"] if it["name"] in secrets and "value" in it]
    assert not in_plain, in_plain
    probes = {name: containers[0][name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}, probes
    operational = (ROOT / "crates/http/src/operational.rs").read_text()
    assert all(f'"{path}"' in operational for path in probes.values()), "the server has no such paths"


def check_drain(objects):
    """A node that ends is drained first, one at a time, and has the time for it."""
    workload = only(objects, "StatefulSet")["spec"]
    pod = workload["template"]
    command = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:4] == ["casement", "drain", "--wait", "--deadline"], command
    env = {it["name"]: it.get("value") for it in pod["spec"]["containers"][0]["env"]}
    assert env["CASEMENT_DRAIN_DEADLINE"] == command[4] and env["CASEMENT_DRAIN_ON_TERM"] == "true"
    assert pod["spec"]["terminationGracePeriodSeconds"] >= int(command[4]) + 60
    assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert workload["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    assert workload["podManagementPolicy"] == "Parallel"
    for budget in of_kind(objects, "PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1


def check_network(objects):
    """Drained nodes are found by the others; strangers do not reach the port between nodes."""
    workload = only(objects, "StatefulSet")["spec"]
    selector = workload["selector"]["matchLabels"]
    # Kubernetes refuses changes of these, so no version may be in them.
    assert set(selector) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
    labels = workload["template"]["metadata"]["labels"]
    assert not [name for name in labels if "version" in name or "chart" in name], labels
    for service in of_kind(objects, "Service"):
        assert not service["spec"]["selector"].items() <= only(objects, "Pod")["metadata"]["labels"].items()
    for claim in workload.get("volumeClaimTemplates", []):
        assert claim["metadata"]["labels"] == selector
    services = {it["metadata"]["name"]: it["spec"] for it in of_kind(objects, "Service")}
    headless = services.pop(workload["serviceName"])
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"] is True
    (public,) = services.values()
    assert public["sessionAffinity"] == "None" and [port["targetPort"] for port in public["ports"]] == ["http"]
    ports = {port["name"]: port["containerPort"] for port in workload["template"]["spec"]["containers"][0]["ports"]}
    env = {it["name"]: it.get("value") for it in workload["template"]["spec"]["containers"][0]["env"]}
    address = f"$(POD_NAME).{workload['serviceName']}.browsers.svc:{ports['cluster']}"
    assert env["CASEMENT_CLUSTER_ADDRESS"] == address
    assert env["CASEMENT_CLUSTER_LISTEN"].endswith(f":{ports['cluster']}")
    assert env["CASEMENT_LISTEN"].endswith(f":{ports['http']}")
    for policy in of_kind(objects, "NetworkPolicy"):
        to_cluster = [rule for rule in policy["spec"]["ingress"] if {"port": "cluster"} in rule["ports"]]
        assert [rule["from"] for rule in to_cluster] == [[{"podSelector": {"matchLabels": selector}}]]
        assert all("ports" in rule for rule in policy["spec"]["ingress"])


def check_configuration(objects):
    file = configuration(objects)
    assert "casement.browsers.svc" in file["allowed_host"], file


def check_options(renderings):
    """What is switched on is there, and what is switched off is not."""
    kinds = {name: {it["kind"] for it in objects} for name, objects in renderings.items()}
    always = {"ConfigMap", "Pod", "Service", "ServiceAccount", "StatefulSet"}
    usual = always | {"NetworkPolicy", "PodDisruptionBudget"}
    assert kinds["bare-values"] == always
    assert kinds["minimal-values"] == usual
    assert kinds["everything-values"] == usual | {"HTTPRoute", "Ingress", "PrometheusRule", "ServiceMonitor"}
    assert kinds["autoscaling-values"] == usual | {"ScaledObject", "TriggerAuthentication"}
    replicas = {name: only(it, "StatefulSet")["spec"].get("replicas") for name, it in renderings.items()}
    expected = {"bare-values": 1, "minimal-values": 3, "everything-values": 5, "autoscaling-values": None}
    assert replicas == expected, replicas
    assert "initContainers" not in pod_of(renderings["bare-values"])
    file = configuration(renderings["everything-values"])
    # Numbers keep their kind.
    assert (file["session_memory"], file["otlp_traces"], file["no_default_pool"]) == (1024, 0.1, True), file
    assert type(file["session_memory"]) is int and file["allowed_host"][-1] == "casement.internal"
    beside = pod_of(renderings["everything-values"])["initContainers"]
    assert [(it["name"], it.get("restartPolicy")) for it in beside] == [("database-proxy", "Always"), ("doctor", None)]
    mounts = pod_of(renderings["everything-values"])["containers"][0]["volumeMounts"]
    assert {"name": "database-ca", "mountPath": "/etc/database", "readOnly": True} in mounts, mounts
    check_outside(renderings["everything-values"])
    profiles = pod_of(renderings["everything-values"])["securityContext"]
    assert profiles["seccompProfile"] == {"type": "Localhost", "localhostProfile": "profiles/casement.json"}
    assert profiles["appArmorProfile"] == {"type": "Localhost", "localhostProfile": "casement"}


def check_outside(objects):
    """Every host name is accepted, and Prometheus and `helm test` pass the network policy."""
    hosts = {"casement.example.com", "browsers.example.com", "route.example.com"}
    assert hosts <= set(configuration(objects)["allowed_host"]), configuration(objects)
    ingress = only(objects, "Ingress")["spec"]
    assert {rule["host"] for rule in ingress["rules"]} == set(ingress["tls"][0]["hosts"]) == hosts - {"route.example.com"}
    containers = pod_of(objects)["containers"] + only(objects, "Pod")["spec"]["containers"]
    assert all(it["image"].startswith("registry.example.com/casement@sha256:0123") for it in containers)
    (public,) = [it for it in only(objects, "NetworkPolicy")["spec"]["ingress"] if {"port": "http"} in it["ports"]]
    labels = [it["podSelector"]["matchLabels"] for it in public["from"] if "podSelector" in it]
    test = {key: value for key, value in only(objects, "Pod")["metadata"]["labels"].items() if "managed" not in key}
    assert test in labels and {"app.kubernetes.io/name": "prometheus"} in labels, public
    retention = only(objects, "StatefulSet")["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert retention == {"whenDeleted": "Delete", "whenScaled": "Delete"}
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    assert only(objects, "PrometheusRule")["spec"] == rules
    (dashboard,) = [it for it in of_kind(objects, "ConfigMap") if "casement.json" in it["data"]]
    assert json.loads(dashboard["data"]["casement.json"]) == json.loads((ROOT / "deploy/grafana/casement.json").read_text())


def check_settings_exist(objects):
    """Every variable that the chart sets is a setting of the server, by the list of all of them."""
    example = (ROOT / "docs/examples/casement.toml").read_text()
    settings = set(re.findall(r"^#? ?(\w+) = ", example, re.MULTILINE))
    names = [it["name"] for it in pod_of(objects)["containers"][0]["env"]]
    ours = {name.removeprefix("CASEMENT_").lower() for name in names if name.startswith("CASEMENT_")}
    missing = ours - settings - {"config"}
    assert not missing, f"docs/examples/casement.toml has not the settings {missing}"
    unknown = set(yaml.safe_load((CHART / "ci/everything-values.yaml").read_text())["settings"]) - settings
    assert not unknown, unknown


def check_refused():
    for values, word in REFUSED:
        arguments = [it for value in values for it in ("--set-string" if "=/" in value else "--set", value)]
        command = [HELM, "template", "casement", CHART, "--values", MINIMAL, *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode != 0, f"{values} is accepted"
        assert word in done.stderr, f"{values}: {done.stderr}"
    without = subprocess.run([HELM, "template", "casement", str(CHART)], capture_output=True, text=True)
    assert without.returncode != 0, "values without a default are not required"
    print(f"{len(REFUSED) + 1} wrong values are refused")


def check_compose():
    file = ROOT / "deploy/compose/compose.yaml"
    command = [str(Path(sys.executable).parent / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    services = yaml.safe_load(file.read_text())["services"]
    for name, service in services.items():
        assert "healthcheck" in service and "volumes" in service, name
        assert name == "casement" or re.search(r":[0-9]+\.[0-9]+", service["image"]), f"{name}: pin the version"
    ours = services["casement"]
    assert ours["user"] == "10001:10001" and ours["cap_drop"] == ["ALL"] and ours["read_only"] is True
    profile = [it.split("=", 1)[1] for it in ours["security_opt"] if it.startswith("seccomp=")]
    assert [(file.parent / it).resolve() for it in profile] == [CHART / "files/seccomp.json"]
    check_secrets(file.parent / "secrets.sh", file.read_text())


def check_secrets(script, compose):
    """The script writes what the compose file wants, for its owner only, and never replaces it."""
    with tempfile.TemporaryDirectory() as folder:
        copy, file = Path(shutil.copy(script, folder)), Path(folder) / ".env"
        subprocess.run([copy], check=True, capture_output=True)
        secrets = dict(line.split("=", 1) for line in file.read_text().splitlines())
        assert set(secrets) == set(re.findall(r"\$\{(\w+):\?", compose)), secrets.keys()
        assert len(base64.b64decode(secrets["MASTER_KEY"], validate=True)) == 32
        assert file.stat().st_mode & 0o777 == 0o600
        assert subprocess.run([copy], capture_output=True).returncode != 0
        assert "=".join(secrets.popitem()) in file.read_text()


main()
