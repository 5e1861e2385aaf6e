//! Tests of successful and failing builds.

use std::process::Command;
use std::sync::Arc;

use casement_domain::deployment::{BuildStep, Builder as _};
use casement_runner::EgressPolicy;
use futures_util::FutureExt as _;
use tokio::net::TcpListener;

use crate::support::{Fixture, LOCAL_PYTHON, RecordedLines, for_node, until};

pub(crate) const PYTHON: &[(&str, &str)] =
    &[("requirements.txt", "kernel==0.80.0\n"), ("main.py", include_str!("apps/main.py"))];
pub(crate) const NODE: &[(&str, &str)] = &[
    ("package.json", r#"{"type":"module","dependencies":{"@onkernel/sdk":"0.78.0"}}"#),
    ("main.ts", include_str!("apps/main.ts")),
    (
        "shout.ts",
        "export enum Loud { Yes = '!' }\nexport const shout = (text: string): string => text.toUpperCase() + Loud.Yes;\n",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_program_is_built_once_and_lists_its_apps() {
    let (mut fixture, first) = (Fixture::new(), Arc::new(RecordedLines::default()));
    let built =
        fixture.build(PYTHON, "main.py", &first).await.unwrap_or_else(|failed| panic!("{failed}: {}", first.text()));
    let apps: Vec<_> = built.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(apps, ["trials", "second"]);
    assert!(built.apps[0].actions.contains(&"echo".to_owned()), "{:?}", built.apps);
    let restart = Arc::new(RecordedLines::default());
    fixture.restart();
    assert_eq!(fixture.build(PYTHON, "main.py", &restart).await.unwrap(), built);
    assert!(restart.text().contains("built before"), "{}", restart.text());
    assert_eq!(fixture.gate.requests(), Vec::<String>::new());
}

/// Simulates an upgrade of the system's Python.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_of_another_interpreter_is_not_reused() {
    let mut fixture = Fixture::new();
    let lines = Arc::new(RecordedLines::default());
    fixture.build(PYTHON, "main.py", &lines).await.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    // A second interpreter, which sandboxes do not see, so the installation fails with it.
    let newer = fixture.config.data_dir.join("python");
    let text = fixture.config.data_dir.join("python.sh");
    std::fs::write(&text, "#!/bin/sh\necho cpython-399-x86_64-linux-gnu\n").unwrap();
    // Copied by another program, because a file that this process had open for writing may be busy in the child of
    // another test.
    assert!(Command::new("install").args(["--mode=755"]).args([&text, &newer]).status().unwrap().success());
    fixture.config.python = newer;
    fixture.restart();
    let lines = Arc::new(RecordedLines::default());
    let failed = fixture.build(PYTHON, "main.py", &lines).await.unwrap_err();
    assert_eq!(failed.step, BuildStep::Install, "{failed}");
    assert!(!lines.text().contains("built before"), "{}", lines.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_program_is_built_with_its_dependencies() {
    let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
    let built =
        fixture.build(NODE, "main.ts", &lines).await.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    assert_eq!(built.apps.len(), 1);
    assert_eq!(built.apps[0].name, "trials");
    assert!(built.apps[0].actions.contains(&"echo".to_owned()), "{:?}", built.apps);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_failure_has_a_reason() {
    let (mut fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
    let failed = fixture
        .build(&[("main.py", "print('so far')\nraise ValueError('not today')\n")], "main.py", &lines)
        .await
        .unwrap_err();
    assert_eq!((failed.step, failed.reason.as_str()), (BuildStep::Load, "main.py: ValueError: not today"));
    assert!(lines.text().contains("so far") && lines.text().contains("line 2"), "{}", lines.text());
    let failed = fixture.build(&[("main.py", "x = 1\n")], "main.py", &lines).await.unwrap_err();
    assert!(failed.reason.contains("does not import kernel"), "{failed}");

    // The artifacts of failed builds are listed, although no deployment refers to them. They are not deleted shortly
    // after a build used them.
    let here = fixture.unpacked();
    assert_eq!(here.len(), 2);
    let stored: Vec<String> = fixture.builder.stored().await.into_iter().map(|(name, _)| name).collect();
    assert!(here.iter().all(|name| stored.contains(name)), "{here:?} {stored:?}");
    fixture.builder.discard(&here[0]).await;
    assert_eq!(fixture.unpacked(), here);
    fixture.restart();
    fixture.builder.discard(&here[0]).await;
    assert_eq!(fixture.unpacked(), here[1..]);
    let stored = fixture.builder.stored().await;
    assert!(
        stored.iter().all(|(name, _)| *name != here[0]) && stored.iter().any(|(name, _)| *name == here[1]),
        "{stored:?}"
    );
}

const WITH_A_DEPENDENCY: &str = "import iniconfig, kernel\nkernel.App('local').action('act')(lambda context: None)\n";
const POETRY: &str = "[tool.poetry]\nname = 'x'\nversion = '0.1.0'\ndescription = ''\nauthors = []\nMODE\n\
    [tool.poetry.dependencies]\npython = '>=3.9'\niniconfig = {version = '^2.0', extras = []}\n";
const SETUPTOOLS: &str = "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n\
    [project]\nname = 'x'\nversion = '0'\ndependencies = ['iniconfig>=2,<3']\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_projects_name_their_dependencies_in_every_common_way() {
    let poetry_core = "[build-system]\nrequires = ['poetry-core']\nbuild-backend = 'poetry.core.masonry.api'\n";
    let no_package = POETRY.replace("MODE", "package-mode = false") + poetry_core;
    let no_backend = POETRY.replace("MODE", "");
    for (files, entrypoint) in [
        (vec![("main.py", WITH_A_DEPENDENCY), ("pyproject.toml", &*no_package)], "main.py"),
        (vec![("main.py", WITH_A_DEPENDENCY), ("pyproject.toml", &no_backend)], "main.py"),
        (
            vec![
                ("main.py", WITH_A_DEPENDENCY),
                ("helpers/__init__.py", ""),
                ("data/__init__.py", ""),
                ("pyproject.toml", SETUPTOOLS),
            ],
            "main.py",
        ),
        (vec![("src/main.py", WITH_A_DEPENDENCY), ("src/requirements.txt", "iniconfig==2.0.0\n")], "src/main.py"),
    ] {
        let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
        let built = fixture.build(&[&files[..], &[LOCAL_PYTHON]].concat(), entrypoint, &lines).await;
        let built = built.unwrap_or_else(|failed| panic!("{files:?}: {failed}: {}", lines.text()));
        assert_eq!(built.apps[0].name, "local", "{files:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_of_a_failed_installation_says_what_to_change() {
    let missing = r#"{"dependencies":{"casement-has-no-such-package":"1.0.0"}}"#;
    for (files, entrypoint, reason) in [
        (vec![("main.py", ""), ("requirements.txt", "iniconfig==999\n")], "main.py", "found for iniconfig==999"),
        (vec![("main.py", ""), ("pyproject.toml", "[project\n")], "main.py", "ERROR: pyproject.toml: "),
        (vec![("main.py", ""), ("Pipfile", "")], "main.py", "list the dependencies in requirements.txt"),
        (vec![("main.js", ""), ("package.json", missing)], "main.js", "404 Not Found"),
    ] {
        let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
        let failed = fixture.build(&files, entrypoint, &lines).await.unwrap_err();
        assert!(failed.step == BuildStep::Install && failed.reason.contains(reason), "{failed}: {}", lines.text());
    }
}

/// A program that prints that it is being loaded, and never finishes.
const ENDLESS: &str = "import time\nprint('loading for ever')\nwhile True:\n    time.sleep(1)\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_timeout_fails_the_build_and_ends_its_processes() {
    let (fixture, lines) = (Fixture::with(|config| config.load_seconds = 20), Arc::new(RecordedLines::default()));
    let failed = fixture.build(&[("main.py", ENDLESS)], "main.py", &lines).await.unwrap_err();
    assert_eq!((failed.step, failed.reason.as_str()), (BuildStep::Load, "main.py: its process was not done in time"));
    assert!(lines.text().contains("loading for ever"), "{}", lines.text());
    until("no sandbox of it is left", || fixture.builds().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_build_ends_with_its_sandbox() {
    let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
    tokio::select! {
        ended = fixture.build(&[("main.py", ENDLESS)], "main.py", &lines) => panic!("{ended:?}"),
        () = lines.until("loading for ever") => {}
    }
    until("no sandbox of it is left", || fixture.builds().is_empty()).await;
}

/// A function for install scripts that returns the results of connections and the visible secrets.
const PROBE_SCRIPT: &str = r#"
import os, socket

def ask(request):
    with socket.create_connection(("127.0.0.1", 3128), timeout=60) as connection:
        connection.sendall(request.encode())
        return connection.recv(100).decode().split(" ")[1]

def straight(place):
    try:
        socket.create_connection(place, timeout=5).close()
        return "reached"
    except OSError:
        return "not reached"

def say(port):
    places = [f"127.0.0.1:{port}", "169.254.169.254:80", "10.0.0.1:80", "example.com:80"]
    said = [ask(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n") for place in places]
    said += [ask(f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n\r\n") for place in places]
    said += [straight(("127.0.0.1", int(port))), straight(("10.0.0.1", 80))]
    secrets = [name for name in os.environ if name.startswith("KERNEL_") or name == "GREETING"]
    with open("/proc/1/cmdline", "rb") as file:
        assert b"sk_test" not in file.read()
    return f"script: {said} {secrets}"
"#;
const REFUSED: &str =
    "script: ['403', '403', '403', '403', '403', '403', '403', '403', 'not reached', 'not reached'] []";

/// Builds the files and returns the output. Checks that the build does not reach a listener, whose port replaces `PORT`
/// in the files.
async fn build_beside_a_listener(files: &[(&str, &str)], entrypoint: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let texts: Vec<(&str, String)> = files.iter().map(|(name, text)| (*name, text.replace("PORT", &port))).collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
    let built = fixture.build(&files, entrypoint, &lines).await;
    let built = built.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    assert_eq!(built.apps.iter().map(|app| app.name.as_str()).collect::<Vec<_>>(), ["local"]);
    assert!(listener.accept().now_or_never().is_none(), "the script came to {port}");
    assert_eq!(fixture.gate.reaches()[0], EgressPolicy::Only(fixture.config.registries.clone()));
    lines.text()
}

const LOCAL_MAIN: &str = "import kernel\nkernel.App('local').action('act')(lambda context: None)\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_npm_script_runs_isolated() {
    let script = format!("{PROBE_SCRIPT}\nwith open('/tmp/said', 'w') as file:\n    file.write(say(PORT))\n");
    let package = r#"{"scripts":{"postinstall":"/usr/bin/python3 nosy.py && cat /tmp/said && cp /tmp/said said"},
        "dependencies":{"@onkernel/sdk":"file:./sdk"}}"#;
    let main = "const Kernel = require('@onkernel/sdk');\nconsole.log(require('fs').readFileSync('said', 'utf8'));\n\
        new Kernel().app('local').action('act', async (context) => 1);\n";
    let mut files = for_node("main.cjs", main);
    files[0].1 = package;
    files.push(("nosy.py", &script));
    let output = build_beside_a_listener(&files, "main.cjs").await;
    assert!(output.contains("npm install") && output.contains(REFUSED), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependencies_are_installed_from_the_lock_file() {
    let lock = r#"{"name":"app","lockfileVersion":3,"requires":true,"packages":{
        "":{"dependencies":{"@onkernel/sdk":"file:./sdk"}},
        "node_modules/@onkernel/sdk":{"resolved":"sdk","link":true},
        "sdk":{"name":"@onkernel/sdk","version":"1.0.0"}}}"#;
    let main =
        "const Kernel = require('@onkernel/sdk');\nnew Kernel().app('local').action('act', async (context) => 1);\n";
    let mut files = for_node("main.js", main);
    files.push(("package-lock.json", lock));
    let output = build_beside_a_listener(&files, "main.js").await;
    assert!(output.contains("installing by the lock file (npm ci)"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_setup_script_runs_isolated() {
    // Uses a build backend inside the package, so the index is not needed.
    let backend = format!(
        "{PROBE_SCRIPT}\n\
         import zipfile\n\
         def build_wheel(to, config_settings=None, metadata_directory=None):\n    \
         name = 'local-1.0-py3-none-any.whl'\n    \
         about = 'local-1.0.dist-info/'\n    \
         with zipfile.ZipFile(os.path.join(to, name), 'w') as wheel:\n        \
         wheel.writestr('said.py', 'TEXT = ' + repr(say(PORT)))\n        \
         wheel.writestr(about + 'METADATA', 'Metadata-Version: 2.1\\nName: local\\nVersion: 1.0\\n')\n        \
         wheel.writestr(about + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n        \
         wheel.writestr(about + 'RECORD', '')\n    \
         return name\n"
    );
    let main = format!("import said\nprint(said.TEXT)\n{LOCAL_MAIN}");
    let project = "[build-system]\nrequires = []\nbuild-backend = 'nosy'\nbackend-path = ['.']\n\n[project]\nname = 'local'\nversion = '1.0'\n";
    let files = [LOCAL_PYTHON, ("main.py", &main), ("pyproject.toml", project), ("nosy.py", &backend)];
    let output = build_beside_a_listener(&files, "main.py").await;
    assert!(output.contains("installing the package of pyproject.toml") && output.contains(REFUSED), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_without_a_build_backend_installs_only_dependencies() {
    let project = "[project]\nname = 'local'\nversion = '1.0'\ndependencies = []\n";
    let files = [LOCAL_PYTHON, ("main.py", LOCAL_MAIN), ("pyproject.toml", project)];
    let output = build_beside_a_listener(&files, "main.py").await;
    assert!(output.contains("installing what pyproject.toml asks for"), "{output}");
}
