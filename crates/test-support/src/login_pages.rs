//! The login pages of the folder `login_pages`, served as web sites. The format of a file:
//!
//! ```text
//! answers: wrong-first, choose=<text of a choice>      how the person answers, if not with the right values
//! expect: fields(username password) > logged-in        the expected steps in order
//! === login user=ann&pass=s3cret-of-ann->home; else->login
//! the page <name>/login, and the view that follows a POST
//! === gone status=410
//! === away to={{id}}/login
//! ```
//!
//! Each page is at `/<name>/<view>` on each host. `{{shop}}`, `{{id}}` and `{{evil}}` are the URL of `/<name>` on the
//! site's own host, on one that the login may visit, and on one that it may not visit. `ok()` of the pages' scripts
//! checks the login.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The script of every page, which defines `ok(name, password)`.
const SCRIPT: &str = "<script>const ok = (name, word) => \
     ['ann', 'ann@shop.test'].includes(name) && word === 's3cret-of-ann';</script>";
/// The page after a login, unless a file has one.
const HOME: &str = "<title>Your orders</title><h1>Your orders</h1><p>Welcome back, Ann.</p><a href=#>Sign out</a>";

/// A login and its pages.
#[derive(Clone, Debug)]
pub struct Login {
    /// The name of the file, without extension.
    pub name: String,
    /// The expected steps, in order.
    pub expect: String,
    /// The person's answers that differ from the right values.
    pub answers: String,
    views: BTreeMap<String, View>,
}

#[derive(Clone, Debug, Default)]
struct View {
    status: Option<u16>,
    to: Option<String>,
    /// Pairs of expected form values and the view that follows.
    rules: Vec<(Vec<(String, String)>, String)>,
    html: String,
}

/// The origins of the hosts of pages.
#[derive(Clone, Debug)]
pub struct Origins {
    /// The site of the login.
    pub shop: String,
    /// A site that the login may visit.
    pub id: String,
    /// A site that the login may not visit.
    pub evil: String,
}

/// A server's response.
struct Answer {
    status: u16,
    location: Option<String>,
    html: String,
}

/// Returns Ann's value for a field that `expect` names. `wrong`: a wrong value.
pub fn given(what: &str, wrong: bool) -> &'static str {
    match what {
        "email" => "ann@shop.test",
        "phone" => "+4915112345642",
        "password" if wrong => "s3cret-of-bob",
        "password" => "s3cret-of-ann",
        "totp" | "code" | "mail-code" | "sms" | "call" if wrong => "111111",
        "mail-code" => "550271",
        "sms" => "731946",
        "totp" | "code" | "call" => "287082",
        "text" | "totp-secret" => "acme",
        _ => "ann",
    }
}

/// Returns a server's whole response for `path`, which has no leading slash.
pub fn response(path: &str, posted: Option<&str>, logins: &[Login], origins: &Origins) -> String {
    let (name, view) = path.split_once('/').unwrap_or((path, ""));
    let view = view.split('?').next().unwrap_or_default();
    let found = logins.iter().find(|login| login.name == name).map(|login| login.answer(view, posted, origins));
    let Answer { status, location, html } = found.unwrap_or_else(Answer::nothing);
    let location = location.map(|to| format!("Location: {to}\r\n")).unwrap_or_default();
    let length = html.len();
    format!(
        "HTTP/1.1 {status} X\r\n{location}Content-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{html}"
    )
}

impl Answer {
    fn nothing() -> Self {
        Self { status: 404, location: None, html: "<title>404</title>nothing here".to_owned() }
    }
}

/// Returns the logins in a folder of `login_pages`, in order.
pub fn logins(folder: &str) -> anyhow::Result<Vec<Login>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("login_pages").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().map(|path| login(path).with_context(|| path.display().to_string())).collect()
}

fn login(path: &Path) -> anyhow::Result<Login> {
    let name = path.file_stem().and_then(|name| name.to_str()).context("no name")?.to_owned();
    let text = std::fs::read_to_string(path)?;
    let mut login = Login { name, expect: String::new(), answers: String::new(), views: BTreeMap::new() };
    let mut at: Option<String> = None;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("=== ") {
            let (name, head) = head.split_once(' ').unwrap_or((head, ""));
            login.views.insert(name.to_owned(), view(head)?);
            at = Some(name.to_owned());
        } else if let Some(view) = at.as_ref().and_then(|at| login.views.get_mut(at)) {
            view.html.push_str(line);
            view.html.push('\n');
        } else if let Some(expect) = line.strip_prefix("expect: ") {
            expect.clone_into(&mut login.expect);
        } else if let Some(answers) = line.strip_prefix("answers: ") {
            answers.clone_into(&mut login.answers);
        }
    }
    anyhow::ensure!(!login.expect.is_empty() && login.views.contains_key("login"), "nothing expected, or no page");
    Ok(login)
}

fn view(head: &str) -> anyhow::Result<View> {
    let mut view = View::default();
    for part in head.split("; ").filter(|part| !part.is_empty()) {
        if let Some(status) = part.strip_prefix("status=") {
            view.status = Some(status.parse()?);
        } else if let Some(to) = part.strip_prefix("to=") {
            view.to = Some(to.to_owned());
        } else {
            let (posted, to) = part.split_once("->").with_context(|| format!("no rule: {part}"))?;
            let pair = |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            let wanted = if posted == "else" { Some(Vec::new()) } else { posted.split('&').map(pair).collect() };
            view.rules.push((wanted.context("no pairs")?, to.to_owned()));
        }
    }
    Ok(view)
}

impl Login {
    /// Returns the server's response. `posted`: the body of the request, if it has one.
    fn answer(&self, view: &str, posted: Option<&str>, origins: &Origins) -> Answer {
        let plain = View { html: HOME.to_owned(), ..View::default() };
        let fallback = (view == "home").then_some(&plain);
        let Some(view) = self.views.get(view).or(fallback) else {
            return Answer::nothing();
        };
        if let Some(location) = posted.and_then(|body| view.leads(body)).or(view.to.as_deref()) {
            return Answer { status: 303, location: Some(self.placed(location, origins)), html: String::new() };
        }
        let html = format!("<!doctype html><meta charset=utf-8>{SCRIPT}{}", self.placed(&view.html, origins));
        Answer { status: view.status.unwrap_or(200), location: None, html }
    }

    fn placed(&self, text: &str, origins: &Origins) -> String {
        let hosts = [("shop", &origins.shop), ("id", &origins.id), ("evil", &origins.evil)];
        hosts.iter().fold(text.to_owned(), |text, (name, origin)| {
            text.replace(&format!("{{{{{name}}}}}"), &format!("{origin}/{}", self.name))
                .replace(&format!("{{{{{name}-origin}}}}"), origin)
        })
    }
}

impl View {
    fn leads(&self, body: &str) -> Option<&str> {
        let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
        let posted: Vec<(String, String)> = pairs.map(|(key, value)| (decoded(key), decoded(value))).collect();
        let fits = |wanted: &[(String, String)]| wanted.iter().all(|pair| posted.contains(pair));
        self.rules.iter().find(|(wanted, _)| fits(wanted)).map(|(_, to)| to.as_str())
    }
}

/// Decodes a form value.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap_or(b'?'));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
