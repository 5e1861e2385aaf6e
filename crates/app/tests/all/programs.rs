//! Helpers: small apps to deploy. They include the required part of the client's framework, so nothing is installed and
//! they are built in seconds. They can wait for a profile of their project, which the test creates to let them
//! continue.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Server, until};
use serde_json::{Value, json};

use super::host::{sql, uuid};

/// The timeout of a step of an app, sufficient on a busy machine.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The part of the framework that the app needs, as in the tests of `crates/runner`.
const FRAMEWORK: &str = include_str!("../../../runner/tests/all/apps/kernel.py");
const SDK: &str = include_str!("../../../runner/tests/all/apps/sdk.js");

/// The app `shop`. With a variable `WAIT` it is loaded only when a profile of that name exists.
const SHOP: &str = "
import json, os, time, urllib.error, urllib.request
import kernel

app = kernel.App('shop')

def ask(name):
    headers = {'Authorization': 'Bearer ' + os.environ['KERNEL_API_KEY']}
    path = os.environ['KERNEL_BASE_URL'] + '/profiles/' + name
    urllib.request.urlopen(urllib.request.Request(path, headers=headers), timeout=20).close()

def until_there(name):
    while True:
        try:
            return ask(name)
        except OSError:
            time.sleep(0.05)

def until_alone():
    while True:
        try:
            ask('nothing')
        except urllib.error.HTTPError:
            time.sleep(0.05)
        except OSError:
            return

if 'WAIT' in os.environ:
    print('waiting')
    until_there(os.environ['WAIT'])

@app.action('echo')
def echo(context, payload):
    return payload

@app.action('wait')
def wait(context, name):
    print('began')
    until_there(name)
    print('done')
    return name

@app.action('browse')
def browse(context):
    # By this name it is known from outside.
    with open('/proc/self/comm', 'w') as file:
        file.write('browsing')
    body = json.dumps({'headless': True, 'invocation_id': context.invocation_id}).encode()
    headers = {'Authorization': 'Bearer ' + os.environ['KERNEL_API_KEY'], 'Content-Type': 'application/json'}
    path = os.environ['KERNEL_BASE_URL'] + '/browsers'
    urllib.request.urlopen(urllib.request.Request(path, body, headers), timeout=100).close()
    print('began')
    while True:
        time.sleep(1)

@app.action('return when alone')
def return_when_alone(context):
    print('began')
    until_alone()
    return 'alone'

@app.action('die when alone')
def die_when_alone(context):
    print('began')
    until_alone()
    os._exit(3)
";

/// Returns the files of a Python app with the framework.
pub(super) const fn python(main: &str) -> [(&str, &str); 2] {
    [("main.py", main), ("kernel.py", FRAMEWORK)]
}

/// Returns the files of a Node app with the framework as a local package.
pub(super) const fn node(main: &str) -> [(&str, &str); 4] {
    [
        ("main.cjs", main),
        ("package.json", r#"{"dependencies":{"@onkernel/sdk":"file:./sdk"}}"#),
        ("sdk/package.json", r#"{"name":"@onkernel/sdk","version":"1.0.0"}"#),
        ("sdk/index.js", SDK),
    ]
}

/// Writes files below a folder.
pub(super) fn write_files(folder: &Path, files: &[(&str, &str)]) -> anyhow::Result<()> {
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().context("a path")?)?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// A project for the apps of one test.
pub(super) struct Place<'a> {
    server: &'a Server,
    project: String,
}

impl<'a> Place<'a> {
    /// Creates the project.
    pub(super) fn new(server: &'a Server, name: &str) -> anyhow::Result<Self> {
        let made = server.post("/org/projects", &json!({ "name": name }))?.expect(201)?.json()?;
        Ok(Self::of(server, made["id"].as_str().context("no id")?))
    }

    /// Returns the place of an existing project.
    pub(super) fn of(server: &'a Server, project: &str) -> Self {
        Self { server, project: project.to_owned() }
    }

    pub(super) fn project(&self) -> &str {
        &self.project
    }

    pub(super) fn request(&self, method: &str, path: &str) -> Request {
        Request::new(method, path).bearer(self.server.key()).header("X-Kernel-Project-Id", &self.project)
    }

    pub(super) fn send(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.request(method, path).json(body).send(self.server.address())
    }

    pub(super) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.request("GET", path).send(self.server.address())?.expect(200)?.json()
    }

    /// Deploys the shop. Returns the deployment.
    pub(super) fn deploy(&self, version: &str, variables: &Value) -> anyhow::Result<String> {
        self.bring_files(&python(SHOP), "main.py", version, variables)
    }

    /// Deploys an app of these files. Returns the deployment.
    pub(super) fn bring_files(
        &self,
        files: &[(&str, &str)],
        entrypoint: &str,
        version: &str,
        variables: &Value,
    ) -> anyhow::Result<String> {
        let folder = tempfile::tempdir()?;
        write_files(folder.path(), files)?;
        self.bring_folder(folder.path(), entrypoint, version, variables)
    }

    /// Deploys an app of this folder. Returns the deployment.
    pub(super) fn bring_folder(
        &self,
        folder: &Path,
        entrypoint: &str,
        version: &str,
        variables: &Value,
    ) -> anyhow::Result<String> {
        let archive = casement_archive::package::pack(folder)?;
        let variables = variables.to_string();
        let parts: [(&str, &[u8]); 4] = [
            ("entrypoint_rel_path", entrypoint.as_bytes()),
            ("version", version.as_bytes()),
            ("env_vars", variables.as_bytes()),
            ("file", &archive),
        ];
        let made = self.form(&parts).send(self.server.address())?.expect(201)?.json()?;
        Ok(made["id"].as_str().context("no id")?.to_owned())
    }

    /// Returns the request for a deployment of these parts.
    pub(super) fn form(&self, parts: &[(&str, &[u8])]) -> Request {
        let part = |&(name, content): &(&str, &[u8])| {
            let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            [head.as_bytes(), content, b"\r\n"].concat()
        };
        let mut body: Vec<u8> = parts.iter().flat_map(part).collect();
        body.extend(b"--b--\r\n");
        let mut request =
            self.request("POST", "/deployments").header("Content-Type", "multipart/form-data; boundary=b");
        request.body = Some(body);
        request
    }

    /// Waits until a deployment runs.
    pub(super) fn until_running(&self, deployment: &str) -> anyhow::Result<()> {
        let found = self.until_status(&format!("/deployments/{deployment}"), &["running", "failed", "stopped"])?;
        anyhow::ensure!(found["status"] == "running", "{found}");
        Ok(())
    }

    /// Deploys the shop and waits until it runs. Returns the deployment. Its processes have the project in a variable
    /// `MARK`.
    pub(super) fn running(&self, version: &str) -> anyhow::Result<String> {
        let deployment = self.deploy(version, &json!({ "MARK": self.project }))?;
        self.until_running(&deployment)?;
        Ok(deployment)
    }

    /// Invokes an action of the shop.
    pub(super) fn invoke(&self, version: &str, action: &str, more: &Value) -> anyhow::Result<Answer> {
        self.send("POST", "/invocations", &invocation(version, action, more))
    }

    /// Starts an asynchronous invocation and waits until it runs. Returns its id.
    pub(super) fn begun(&self, version: &str, action: &str, payload: Option<&str>) -> anyhow::Result<String> {
        let mut more = json!({ "async": true });
        if let Some(payload) = payload {
            more["payload"] = payload.into();
        }
        let made = self.invoke(version, action, &more)?.expect(202)?.json()?;
        let id = made["id"].as_str().context("no id")?;
        until("it has begun", TEST_TIMEOUT, || {
            lines(self.server, id).ok()?.iter().any(|line| line == "began").then_some(())
        })?;
        Ok(id.to_owned())
    }

    /// Waits until an invocation has ended, and returns it.
    pub(super) fn end(&self, invocation: &str) -> anyhow::Result<Value> {
        self.until_status(&format!("/invocations/{invocation}"), &["succeeded", "failed"])
    }

    /// Lets apps continue that wait for this name.
    pub(super) fn allow(&self, name: &str) -> anyhow::Result<()> {
        self.send("POST", "/profiles", &json!({ "name": name }))?.expect(201).map(drop)
    }

    pub(super) fn until_status(&self, path: &str, wanted: &[&str]) -> anyhow::Result<Value> {
        until(&format!("{path} is one of {wanted:?}"), TEST_TIMEOUT, || {
            let found = self.get(path).ok()?;
            wanted.iter().any(|status| found["status"] == *status).then_some(found)
        })
    }
}

/// Returns the body that invokes an action of the shop.
pub(super) fn invocation(version: &str, action: &str, more: &Value) -> Value {
    let mut body = json!({ "app_name": "shop", "version": version, "action_name": action });
    let more = more.as_object().cloned().unwrap_or_default();
    body.as_object_mut().unwrap().extend(more);
    body
}

/// Returns the log of a build or an invocation so far.
pub(super) fn lines(server: &Server, subject: &str) -> anyhow::Result<Vec<String>> {
    let rows = format!("select message from app_lines where subject_id = '{}' order by number", uuid(subject)?);
    Ok(sql(server, &rows)?.lines().map(str::to_owned).collect())
}
