//! Tests of logins that are interrupted in different states, by a kill of the server or the deletion of the connection.

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Options, Pages, Process, Server, Shared, until};
use serde_json::{Value, json};

use super::host::{id_of, sandboxes, sql};
use super::login_site::{Connection, HOME, LOGIN, PASSWORD, Site, TEST_TIMEOUT, ann, uuid};
use super::login_ways::{BACK, PUSH};

/// The state in which a login is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The login waits for an approval on a phone.
    Elsewhere,
    /// The form is sent, and the next page does not load.
    BetweenPages,
    /// A health check runs, and the page does not load.
    Looking,
    /// An automatic login has sent stored values, and the next page does not load.
    ByItself,
    /// A later login has succeeded, and its profile cannot be stored.
    Saving,
}

impl At {
    /// All states. Those with the shortest timeouts are last.
    const ALL: [Self; 5] = [Self::Saving, Self::Elsewhere, Self::ByItself, Self::Looking, Self::BetweenPages];

    /// Returns true if the connection was logged in before.
    fn is_later(self) -> bool {
        matches!(self, Self::Looking | Self::ByItself | Self::Saving)
    }
}

/// A blocked login.
struct Held<'p> {
    at: At,
    site: Site<'p>,
    id: String,
    profile: String,
    /// The version of the profile before the blocked login; empty if there was none.
    version: String,
}

/// Returns a form that leads to another page.
fn leads_to(page: &str) -> String {
    LOGIN
        .replace("document.cookie = 'in=ann; max-age=9999; path=/';", "")
        .replace("location.pathname.replace('login', 'home')", &format!("'{page}'"))
}

/// Returns the page with another cookie for its login, so that the site has logged the user out.
fn forgotten(page: &str) -> String {
    page.replace("in=ann", "in=ann2")
}

/// Creates a trigger that prevents new versions of profiles of this name.
fn unsaved(server: &Server, profile: &str) -> anyhow::Result<()> {
    let profile = format!("SELECT 1 FROM profiles p WHERE p.id = NEW.profile_id AND p.name = '{profile}'");
    let function = format!("BEGIN IF EXISTS ({profile}) THEN RAISE 'not now'; END IF; RETURN NEW; END");
    let trigger = "CREATE TRIGGER held_up BEFORE INSERT ON profile_versions FOR EACH ROW EXECUTE FUNCTION held_up()";
    sql(server, &format!("CREATE FUNCTION held_up() RETURNS trigger LANGUAGE plpgsql AS $${function}$$; {trigger}"))
        .map(drop)
}

impl<'p> Held<'p> {
    /// Starts the login of a new connection towards its blocked state.
    fn begin(server: &Server, pages: &'p Pages, prefix: &str, at: At) -> anyhow::Result<Self> {
        let profile = format!("shop-{prefix}-{at:?}").to_lowercase();
        let site = Site::new(pages, &profile);
        site.put("push", PUSH);
        pages.hold(&site.path("next"));
        match at {
            At::Elsewhere => site.put("login", &leads_to("push")),
            At::BetweenPages => site.put("login", &leads_to("next")),
            At::Looking | At::ByItself | At::Saving => {}
        }
        let more = if at.is_later() { json!({ "credential": { "name": prefix } }) } else { json!({}) };
        let connection = Connection::new(server, &site, &more)?;
        connection.login()?;
        Ok(Self { at, id: connection.id.clone(), site, profile, version: String::new() })
    }

    fn connection<'s>(&self, server: &'s Server) -> Connection<'s> {
        Connection { server, id: self.id.clone(), profile: self.profile.clone() }
    }

    fn version_now(&self, server: &Server) -> anyhow::Result<String> {
        sql(server, &format!("SELECT version_id FROM profiles WHERE name = '{}'", self.profile))
    }

    /// Makes the health check due, which also starts an automatic login.
    fn due(&self, server: &Server) -> anyhow::Result<()> {
        let id = uuid(&self.id)?;
        let due = "UPDATE auth_connections SET check_taken_at = now() - interval '2 hours'";
        sql(server, &format!("{due} WHERE id = {id}")).map(drop)
    }

    /// Waits for the last step before the block.
    fn prepare(&mut self, server: &Server) -> anyhow::Result<()> {
        let connection = self.connection(server);
        if !self.at.is_later() {
            return connection.until_awaiting().map(drop);
        }
        connection.until_over("SUCCESS")?;
        connection.until_closed()?;
        self.version = self.version_now(server)?;
        Ok(())
    }

    /// Lets the login continue to the block.
    fn go(&self, server: &Server, pages: &Pages) -> anyhow::Result<()> {
        let connection = self.connection(server);
        match self.at {
            At::Elsewhere | At::BetweenPages => connection.submit(&ann(PASSWORD))?,
            At::Looking => {
                pages.hold(&self.site.path("home"));
                self.due(server)?;
            }
            At::ByItself => {
                self.site.put("home", &forgotten(HOME));
                self.site.put("login", &leads_to("next"));
                self.due(server)?;
            }
            At::Saving => {
                self.site.put("home", &forgotten(HOME));
                self.site.put("login", &forgotten(LOGIN));
                unsaved(server, &self.profile)?;
                connection.login()?;
            }
        }
        Ok(())
    }

    fn until_there(&self, server: &Server, pages: &Pages) -> anyhow::Result<()> {
        let requested = |page: &str, times: usize| {
            let wanted = format!("GET {}", self.site.path(page));
            let found = || (pages.requests().iter().filter(|one| **one == wanted).count() >= times).then_some(());
            until(&format!("{wanted}, {times} times"), TEST_TIMEOUT, found)
        };
        match self.at {
            At::Elsewhere => {
                let elsewhere = |now: &Value| now["flow_step"] == "AWAITING_EXTERNAL_ACTION";
                self.connection(server).until("waiting for the telephone", elsewhere).map(drop)
            }
            At::BetweenPages | At::ByItself => requested("next", 1),
            // The first login has opened the page before and after the form.
            At::Looking => requested("home", 3),
            At::Saving => {
                let saving = "status = 'IN_PROGRESS' AND (details->>'saving')::boolean";
                let saving = format!("SELECT 1 FROM auth_flows WHERE connection_id = {} AND {saving}", uuid(&self.id)?);
                until("its profile being saved", TEST_TIMEOUT, || (sql(server, &saving).ok()? == "1").then_some(()))
            }
        }
    }

    /// Removes the block.
    fn let_go(&self, server: &Server) -> anyhow::Result<()> {
        let back = |html: &str| self.site.put("next", html);
        match self.at {
            At::Elsewhere => self.site.put("approved", "yes"),
            At::BetweenPages => back(BACK),
            At::ByItself => back(&forgotten(BACK)),
            At::Looking => self.site.put("home", HOME),
            At::Saving => drop(sql(server, "DROP FUNCTION held_up CASCADE")?),
        }
        Ok(())
    }

    /// Returns the ids of the browsers with the profile.
    fn browsers(&self, server: &Server) -> anyhow::Result<Vec<String>> {
        let of_it = "SELECT b.id FROM browsers b JOIN profiles p ON p.id = b.profile_id";
        sql(server, &format!("{of_it} WHERE p.name = '{}'", self.profile))?.lines().map(id_of).collect()
    }

    /// Asserts that the login continues to its end without another request to a person.
    fn goes_on(&self, server: &Server) -> anyhow::Result<()> {
        let connection = self.connection(server);
        let timeline = |kind: &str, status: &str| {
            until(&format!("{:?}: {kind} {status}", self.at), TEST_TIMEOUT, || {
                let found = server.get(&connection.path("/timeline")).ok()?.json().ok()?;
                let newest =
                    found.as_array()?.iter().find(|one| one["type"] == kind && one["status"] != "IN_PROGRESS")?;
                Some((newest["status"] == status).then_some(()).with_context(|| format!("{newest}")))
            })?
        };
        match self.at {
            At::Elsewhere | At::BetweenPages | At::Saving => {
                let over = connection.until("over or asked again", |now| {
                    now["flow_status"] == "SUCCESS" || now["flow_step"] == "AWAITING_INPUT"
                })?;
                ensure!(over["flow_status"] == "SUCCESS", "{:?} asks again: {over}", self.at);
            }
            At::Looking => timeline("health_check", "AUTHENTICATED")?,
            At::ByItself => timeline("reauth", "SUCCESS")?,
        }
        connection.until_closed()?;
        let now = self.version_now(server)?;
        ensure!((now == self.version) == (self.at == At::Looking), "{:?}: {} is now {now}", self.at, self.version);
        ensure!(connection.get()?["status"] == "AUTHENTICATED");
        ensure!(connection.seen(&self.site)? == "Your orders - Shop", "{:?}", self.at);
        Ok(())
    }

    /// Asserts that nothing of the login is left, and that nothing was written after its end.
    fn is_gone(&self, server: &Server, browsers: &[String]) -> anyhow::Result<()> {
        let left = format!("SELECT count(*) FROM auth_flows WHERE connection_id = {}", uuid(&self.id)?);
        until("its job gone", TEST_TIMEOUT, || (sql(server, &left).ok()? == "0").then_some(()))?;
        until("its browser gone", TEST_TIMEOUT, || {
            let there = sandboxes(server).ok()?;
            (!browsers.iter().any(|browser| there.contains(browser))).then_some(())
        })?;
        let own = format!("profiles p WHERE p.name = '{}'", self.profile);
        let living = format!("SELECT count(*) FROM sessions s, {own} AND s.profile_id = p.id AND s.state <> 'ended'");
        until("no session of it", TEST_TIMEOUT, || (sql(server, &living).ok()? == "0").then_some(()))?;
        let versions =
            format!("SELECT string_agg(v.id::text, ' ') FROM profile_versions v, {own} AND v.profile_id = p.id");
        ensure!(sql(server, &versions)? == self.version, "{:?}: the profile was saved", self.at);
        let stored = server.get(&format!("/credentials?query={}", self.profile))?.expect(200)?.json()?;
        ensure!(stored == json!([]), "{:?}: what was typed was kept: {stored}", self.at);
        Ok(())
    }
}

/// Returns concurrent logins that are blocked in every state.
fn held_up<'p>(server: &Server, pages: &'p Pages, prefix: &str) -> anyhow::Result<Vec<Held<'p>>> {
    let values = json!({ "email": "ann", "password": PASSWORD });
    server.post("/credentials", &json!({ "name": prefix, "domain": "localhost", "values": values }))?.expect(201)?;
    let begun = At::ALL.map(|at| Held::begin(server, pages, prefix, at));
    let mut held = begun.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    for one in &mut held {
        one.prepare(server).with_context(|| format!("{:?}", one.at))?;
    }
    let there = |one: &Held<'_>| one.until_there(server, pages).with_context(|| format!("{:?}", one.at));
    for one in &held {
        one.go(server, pages).with_context(|| format!("{:?}", one.at))?;
        // `ByItself` becomes due together with `Looking`, which is next.
        if one.at != At::ByItself {
            there(one)?;
        }
    }
    held.iter().try_for_each(there)?;
    Ok(held)
}

#[test]
fn logins_in_every_state_continue_after_the_server_is_killed() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options::reaching(&pages))?;
    let held = held_up(&server, &pages, "killed")?;
    server.kill()?;
    server.restart()?;
    for one in &held {
        ensure!(one.version_now(&server)? == one.version, "{:?}: an old profile or a new one, whole", one.at);
        one.let_go(&server)?;
    }
    for one in &held {
        one.goes_on(&server).with_context(|| format!("{:?}", one.at))?;
    }
    until("no browser left", TEST_TIMEOUT, || {
        let rows = sql(&server, "SELECT count(*) FROM browsers").ok()?;
        let browsers = server.processes().iter().filter(|process| Process::is_browser(process)).count();
        (rows == "0" && browsers == 0 && sandboxes(&server).ok()?.is_empty()).then_some(())
    })
}

#[test]
fn deleting_a_connection_ends_its_login_in_every_state() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let held = held_up(server, pages, "cancelled")?;
    let mut browsers = Vec::new();
    for one in &held {
        let found = one.browsers(server)?;
        ensure!(found.len() == 1, "{:?}: {found:?}", one.at);
        browsers.push(found);
        server.delete(&one.connection(server).path(""))?.expect(204)?;
        ensure!(server.get(&one.connection(server).path(""))?.status == 404);
    }
    for one in &held {
        one.let_go(server)?;
    }
    for (one, browsers) in held.iter().zip(&browsers) {
        one.is_gone(server, browsers).with_context(|| format!("{:?}", one.at))?;
    }
    server.delete("/credentials/cancelled")?.expect(204).map(drop)
}
