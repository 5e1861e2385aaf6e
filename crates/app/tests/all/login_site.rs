//! Helpers: a small site with a login, and an auth connection to it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Pages, Server, until};
use serde_json::{Value, json};

use super::host::sql;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(300);
pub(crate) const PASSWORD: &str = "hunter2-so-secret";
pub(crate) const WRONG: &str = "hunter3-so-wrong";

/// A page that asks for a name and a password, and reports errors.
pub(crate) const LOGIN: &str = r#"<!doctype html><html lang=en><title>Sign in - Shop</title><h1>Sign in</h1>
<form id=f><div id=said role=alert></div>
<label>User name <input name=username autocomplete=username required></label>
<label>Password <input name=password type=password autocomplete=current-password required></label>
<button type=submit>Sign in</button></form>
<script>
f.onsubmit = event => {
    event.preventDefault();
    if (f.username.value === 'ann' && f.password.value === 'hunter2-so-secret') {
        document.cookie = 'in=ann; max-age=9999; path=/';
        location = location.pathname.replace('login', 'home');
    } else {
        said.textContent = 'Wrong user name or password.';
        f.password.value = '';
    }
};
</script>"#;

/// A page for signed-in users; others are redirected to the login.
pub(crate) const HOME: &str = r"<!doctype html><html lang=en><title>Your orders - Shop</title>
<script>if (!document.cookie.includes('in=ann')) location = location.pathname.replace('home', 'login');</script>
<h1>Your orders</h1><p>Welcome back, ann. You have 3 orders.</p><a href='#settings'>Account settings</a> <a href='#out'>Sign out</a>";

/// A page that no login can handle.
pub(crate) const RIDDLE: &str = "<!doctype html><html lang=en><title>Hm</title><canvas width=300 height=300></canvas>";

/// A site below `/<name>/` of the pages. Its host is a name, because a connection cannot have an address.
pub(crate) struct Site<'a> {
    pages: &'a Pages,
    name: String,
}

impl<'a> Site<'a> {
    pub(crate) fn new(pages: &'a Pages, name: &str) -> Self {
        let site = Self { pages, name: name.to_owned() };
        site.put("login", LOGIN);
        site.put("home", HOME);
        site
    }

    pub(crate) fn put(&self, page: &str, html: &str) {
        self.pages.put(&format!("/{}/{page}", self.name), html);
    }

    /// Returns the path of a page.
    pub(crate) fn path(&self, page: &str) -> String {
        format!("/{}/{page}", self.name)
    }

    pub(crate) fn url(&self, page: &str) -> String {
        self.pages.url(&format!("/{}/{page}", self.name)).replace("127.0.0.1", "localhost")
    }
}

/// An auth connection with a profile of its own.
pub(crate) struct Connection<'a> {
    pub(crate) server: &'a Server,
    pub(crate) id: String,
    pub(crate) profile: String,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(server: &'a Server, site: &Site<'_>, more: &Value) -> anyhow::Result<Self> {
        Self::at(server, &site.name, &site.url("home"), more)
    }

    /// Creates a connection for the profile and the login URL. `more` are further fields.
    pub(crate) fn at(server: &'a Server, profile: &str, login_url: &str, more: &Value) -> anyhow::Result<Self> {
        let mut body = json!({ "domain": "localhost", "profile_name": profile, "login_url": login_url });
        body.as_object_mut().context("no object")?.extend(more.as_object().context("no object")?.clone());
        let made = server.post("/auth/connections", &body)?.expect(201)?.json()?;
        let id = made["id"].as_str().context("no id")?.to_owned();
        Ok(Self { server, id, profile: profile.to_owned() })
    }

    pub(crate) fn path(&self, tail: &str) -> String {
        format!("/auth/connections/{}{tail}", self.id)
    }

    pub(crate) fn get(&self) -> anyhow::Result<Value> {
        self.server.get(&self.path(""))?.expect(200)?.json()
    }

    pub(crate) fn login(&self) -> anyhow::Result<Value> {
        self.server.post(&self.path("/login"), &json!({}))?.expect(200)?.json()
    }

    /// Submits values by the names of their fields.
    pub(crate) fn submit(&self, values: &Value) -> anyhow::Result<()> {
        self.submit_as(&json!({ "fields": values }))
    }

    pub(crate) fn submit_as(&self, body: &Value) -> anyhow::Result<()> {
        self.server.post(&self.path("/submit"), body)?.expect(202).map(drop)
    }

    /// Waits until the login is in the described state. Returns the connection.
    pub(crate) fn until(&self, what: &str, stands: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let mut last = Value::Null;
        let found = until(what, TEST_TIMEOUT, || {
            last = self.get().ok()?;
            let over = last["flow_status"] != "IN_PROGRESS";
            (stands(&last) || over).then(|| last.clone())
        });
        let found = found.with_context(|| format!("last: {last}"))?;
        ensure!(stands(&found), "not {what}: {found}");
        Ok(found)
    }

    pub(crate) fn until_awaiting(&self) -> anyhow::Result<Value> {
        self.until("waiting for input", |now| {
            now["flow_step"] == "AWAITING_INPUT" && now["flow_status"] == "IN_PROGRESS"
        })
    }

    /// Waits until the login has succeeded. Fails if it requests something from a person.
    pub(crate) fn until_in_by_itself(&self) -> anyhow::Result<Value> {
        let asks = |now: &Value| now["flow_step"].as_str().is_some_and(|step| step.starts_with("AWAITING"));
        let done = self.until("logged in, or asking", |now| asks(now) || now["flow_status"] == "SUCCESS")?;
        ensure!(done["flow_status"] == "SUCCESS", "it asked: {done}");
        Ok(done)
    }

    pub(crate) fn until_over(&self, status: &str) -> anyhow::Result<Value> {
        self.until(status, |now| now["flow_status"] == status)
    }

    /// Waits until no flow of the connection runs, and its browser has ended.
    pub(crate) fn until_closed(&self) -> anyhow::Result<()> {
        let open = format!(
            "SELECT count(*) FROM auth_flows WHERE connection_id = {} AND (open OR status = 'IN_PROGRESS')",
            uuid(&self.id)?
        );
        until("its browser gone", TEST_TIMEOUT, || (sql(self.server, &open).ok()? == "0").then_some(()))
    }

    /// Returns the title of the home page in a new session with its profile.
    pub(crate) fn seen(&self, site: &Site<'_>) -> anyhow::Result<String> {
        let profile = json!({ "name": self.profile });
        let session = self.server.create(&json!({ "headless": true, "timeout_seconds": 300, "profile": profile }))?;
        let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = cdp.page()?;
        cdp.open(&page, &site.url("home"))?;
        let title = "new Promise(done => setTimeout(() => done(document.title), 300))";
        let title_shown = cdp.evaluate(&page, title)?.as_str().unwrap_or_default().to_owned();
        self.server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
        Ok(title_shown)
    }
}

/// Returns an identifier as an SQL literal.
pub(crate) fn uuid(id: &str) -> anyhow::Result<String> {
    let id = ulid::Ulid::from_string(id).map_err(|bad| anyhow::anyhow!("{bad:?}"))?;
    Ok(format!("'{}'::uuid", uuid_text(id)))
}

fn uuid_text(id: ulid::Ulid) -> String {
    let hex = format!("{:032x}", id.0);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

pub(crate) fn ann(password: &str) -> Value {
    json!({ "username": "ann", "password": password })
}
