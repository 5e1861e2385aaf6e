//! Small programs to deploy. They bring as much of the client's framework as they need, so nothing is installed and they are built in
//! seconds. What they wait for is a profile of their project: whoever makes it lets them go on.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::host::{sql, uuid};
use super::support::http::{Answer, Request};
use super::support::{Server, until};

/// Longer than anything of a program takes on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(120);

const FRAMEWORK: &str = "
class Action:
    def __init__(self, name, handler):
        self.name, self.handler = name, handler


class Registry:
    apps = []

    def get_apps(self):
        return self.apps


app_registry = Registry()


class App:
    def __init__(self, name):
        self.name, self.actions = name, []
        app_registry.apps.append(self)

    def action(self, name):
        return lambda handler: self.actions.append(Action(name, handler)) or handler

    def get_actions(self):
        return self.actions
";

const CONTEXT: &str = "
class KernelContext:
    def __init__(self, invocation_id):
        self.invocation_id = invocation_id
";

/// The app `shop`. With a variable `WAIT` it is loaded only once there is a profile of that name.
const SHOP: &str = "
import os, time, urllib.error, urllib.request
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

/// A project of a server, in which a test is alone with its programs.
pub(super) struct Place<'a> {
    server: &'a Server,
    project: String,
}

impl<'a> Place<'a> {
    /// A new one.
    pub(super) fn new(server: &'a Server, name: &str) -> anyhow::Result<Self> {
        let made = server.post("/org/projects", &json!({ "name": name }))?.expect(201)?.json()?;
        Ok(Self::of(server, made["id"].as_str().context("no id")?))
    }

    /// One that is there.
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

    /// Brings the shop; its id.
    pub(super) fn bring(&self, version: &str, variables: &Value) -> anyhow::Result<String> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("kernel"))?;
        for (path, text) in [("main.py", SHOP), ("kernel/__init__.py", FRAMEWORK), ("kernel/app_framework.py", CONTEXT)]
        {
            std::fs::write(folder.path().join(path), text)?;
        }
        let archive = casement_archive::package::pack(folder.path())?;
        let part = |name: &str, content: &[u8]| {
            let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            [head.as_bytes(), content, b"\r\n"].concat()
        };
        let variables = variables.to_string();
        let body = [
            part("entrypoint_rel_path", b"main.py"),
            part("version", version.as_bytes()),
            part("env_vars", variables.as_bytes()),
            part("file", &archive),
            b"--b--\r\n".to_vec(),
        ];
        let mut request =
            self.request("POST", "/deployments").header("Content-Type", "multipart/form-data; boundary=b");
        request.body = Some(body.concat());
        let made = request.send(self.server.address())?.expect(201)?.json()?;
        Ok(made["id"].as_str().context("no id")?.to_owned())
    }

    /// Waits until a deployment runs.
    pub(super) fn until_running(&self, deployment: &str) -> anyhow::Result<()> {
        let found = self.until_status(&format!("/deployments/{deployment}"), &["running", "failed", "stopped"])?;
        anyhow::ensure!(found["status"] == "running", "{found}");
        Ok(())
    }

    /// Brings the shop and waits until it runs; its id. Its processes have the project in a variable `MARK`.
    pub(super) fn running(&self, version: &str) -> anyhow::Result<String> {
        let deployment = self.bring(version, &json!({ "MARK": self.project }))?;
        self.until_running(&deployment)?;
        Ok(deployment)
    }

    /// Asks for an action of the shop.
    pub(super) fn invoke(&self, version: &str, action: &str, more: &Value) -> anyhow::Result<Answer> {
        self.send("POST", "/invocations", &invocation(version, action, more))
    }

    /// Has an action begin for which nobody waits, and waits until it says that it has begun; its id.
    pub(super) fn begun(&self, version: &str, action: &str, payload: Option<&str>) -> anyhow::Result<String> {
        let mut more = json!({ "async": true });
        if let Some(payload) = payload {
            more["payload"] = payload.into();
        }
        let made = self.invoke(version, action, &more)?.expect(202)?.json()?;
        let id = made["id"].as_str().context("no id")?;
        until("it has begun", LONG, || {
            lines(self.server, id).ok()?.first().is_some_and(|line| line == "began").then_some(())
        })?;
        Ok(id.to_owned())
    }

    /// Waits until an invocation has ended, and reads it.
    pub(super) fn end(&self, invocation: &str) -> anyhow::Result<Value> {
        self.until_status(&format!("/invocations/{invocation}"), &["succeeded", "failed"])
    }

    /// Lets go on what waits for this.
    pub(super) fn allow(&self, name: &str) -> anyhow::Result<()> {
        self.send("POST", "/profiles", &json!({ "name": name }))?.expect(201).map(drop)
    }

    fn until_status(&self, path: &str, wanted: &[&str]) -> anyhow::Result<Value> {
        until(&format!("{path} is one of {wanted:?}"), LONG, || {
            let found = self.get(path).ok()?;
            wanted.iter().any(|status| found["status"] == *status).then_some(found)
        })
    }
}

/// The body that asks for an action of the shop.
pub(super) fn invocation(version: &str, action: &str, more: &Value) -> Value {
    let mut body = json!({ "app_name": "shop", "version": version, "action_name": action });
    let more = more.as_object().cloned().unwrap_or_default();
    body.as_object_mut().unwrap().extend(more);
    body
}

/// What a build or a call has written so far.
pub(super) fn lines(server: &Server, subject: &str) -> anyhow::Result<Vec<String>> {
    let rows = format!("select message from app_lines where subject_id = '{}' order by number", uuid(subject)?);
    Ok(sql(server, &rows)?.lines().map(str::to_owned).collect())
}
