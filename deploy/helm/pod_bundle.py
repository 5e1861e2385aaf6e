"""Writes the OCI configuration of one container of the rendered chart, with the rights and mounts that a container runtime of
Kubernetes gives it.

    pod_bundle.py SETTINGS container NAME      the configuration of the container with this name
    pod_bundle.py SETTINGS prestop NAME        the process of its preStop hook, as `crun exec --process` reads it
    pod_bundle.py SETTINGS exec NAME COMMAND…  the process of a command in it, as of `kubectl exec`

SETTINGS is a JSON file:

    manifests    the output of `helm template`

    rootfs       the folder of the image's files, which belong to the users of the pod
    host_user    the first user of the machine that the pod's 65,536 users are mapped to
    secrets      {name: {key: value}}
    volumes      {name: folder}, for volumes that are not made here: claims and emptyDir
    files        {path in the container: file}, for example /etc/hosts
    profiles     the folder of the seccomp profiles, as /var/lib/kubelet/seccomp
"""

import json
import os
import re
import sys

import yaml

POD_NAME = "casement-0"
USERS = 65536
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What containerd and CRI-O cover and protect, unless the pod says `procMount: Unmasked`.
MASKED = [
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
    "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def main():
    settings_file, kind, name, *command = sys.argv[1:]
    with open(settings_file) as file:
        settings = json.load(file)
    with open(settings["manifests"]) as file:
        objects = [found for found in yaml.safe_load_all(file) if found]
    pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    containers = {found["name"]: found for found in pod["containers"] + pod.get("initContainers", [])}
    container = containers[name]
    if kind == "container":
        written = configuration(objects, pod, container, settings)
    else:
        hook = container.get("lifecycle", {}).get("preStop", {})
        written = process(pod, container, hook["exec"]["command"] if kind == "prestop" else command, settings)
    print(json.dumps(written))


def one(objects, kind, name=None):
    """Returns the only object of this kind, or the one of this name."""
    found = [it for it in objects if it["kind"] == kind and name in (None, it["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects of the kind {kind}"
    return found[0]


def environment(container, secrets):
    values = {"PATH": PATH}
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        if "value" in variable:
            # $(NAME) is a variable that stands before this one.
            value = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], variable["value"])
        elif "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "metadata.name", source
            value = POD_NAME
        else:
            reference = source["secretKeyRef"]
            value = secrets.get(reference["name"], {}).get(reference["key"])
            if value is None and reference.get("optional"):
                continue
            assert value is not None, f"the pod would wait for the secret {reference}"
        values[variable["name"]] = value
    return [f"{name}={value}" for name, value in values.items()]


def process(pod, container, command, settings):
    of_pod, rights = pod["securityContext"], container["securityContext"]
    assert rights["capabilities"] == {"drop": ["ALL"]} and rights["privileged"] is False, rights
    # Without root, no capability becomes effective; none may be in the bounding set either.
    none = {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")}
    return {
        "terminal": False,
        "user": {"uid": of_pod["runAsUser"], "gid": of_pod["runAsGroup"], "additionalGids": [of_pod["fsGroup"]]},
        "args": command,
        "env": environment(container, settings["secrets"]),
        "cwd": "/",
        "capabilities": none,
        "noNewPrivileges": not rights["allowPrivilegeEscalation"],
        "oomScoreAdj": 900,
    }


def configuration(objects, pod, container, settings):
    rights = container["securityContext"]
    covered = rights.get("procMount", "Default") == "Default"
    assert pod["hostUsers"] is False
    users = [{"containerID": 0, "hostID": settings["host_user"], "size": USERS}]
    return {
        "ociVersion": "1.0.2",
        "hostname": POD_NAME,
        "process": process(pod, container, container["command"] + container["args"], settings),
        "root": {"path": settings["rootfs"], "readonly": rights["readOnlyRootFilesystem"]},
        "mounts": system_mounts() + volume_mounts(objects, pod, container, settings),
        "linux": {
            "uidMappings": users,
            "gidMappings": users,
            "namespaces": [{"type": kind} for kind in ("user", "pid", "mount", "ipc", "uts", "cgroup", "network")],
            "maskedPaths": MASKED if covered else [],
            "readonlyPaths": READ_ONLY if covered else [],
            **seccomp(pod["securityContext"]["seccompProfile"], settings["profiles"]),
        },
    }


def seccomp(profile, folder):
    if profile["type"] == "Unconfined":
        return {}
    assert profile["type"] == "Localhost", profile
    with open(os.path.join(folder, profile["localhostProfile"])) as file:
        return {"seccomp": json.load(file)}


def system_mounts():
    def mount(at, kind, *options):
        return {"destination": at, "type": kind, "source": kind, "options": list(options)}

    return [
        mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
        mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
    ]


def volume_mounts(objects, pod, container, settings):
    config_maps = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    mounts = [bind(path, file) for path, file in settings["files"].items()]
    for wanted in container["volumeMounts"]:
        name = wanted["name"]
        if name in config_maps:
            folder = os.path.join(os.path.dirname(settings["rootfs"]), f"config-{name}")
            os.makedirs(folder, exist_ok=True)
            for file_name, text in one(objects, "ConfigMap", config_maps[name])["data"].items():
                with open(os.path.join(folder, file_name), "w") as file:
                    file.write(text)
        else:
            folder = settings["volumes"][name]
        mounts.append(bind(wanted["mountPath"], folder, "ro" if wanted.get("readOnly") else "rw"))
    return mounts


def bind(at, source, mode="ro"):
    return {"destination": at, "type": "bind", "source": source, "options": ["rbind", "rprivate", mode]}


main()
