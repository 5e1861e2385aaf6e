//! Tests logins at every page of the collection in `crates/test-support/login_pages` through the API: with a person who
//! gives the requested values, in headful browsers; and then unattended, in headless browsers.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use casement_test_support::program::{Cdp, Options, Server, body, until};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::host::sql;
use super::login_site::{Connection, TEST_TIMEOUT, uuid};
use casement_test_support::login_pages::{Login, Origins, given, logins, response};

/// The number of concurrent logins.
const CONCURRENT_LOGINS: usize = 4;
/// The variable that selects the pages whose names contain its value. If it is set, even to an empty value, the
/// unattended logins are tested too.
const ONLY: &str = "CASEMENT_TEST_LOGIN";
/// The expected steps of pages where they differ from `expect`: values that were given before a captcha are not
/// requested again.
const OTHERWISE: [(&str, &str); 1] = [("captcha-beside-the-form", "fields(email password) > elsewhere > SUCCESS")];

/// The steps that need a person.
const ALONE: [&str; 5] = ["totp", "code", "sms", "elsewhere", "FAILED"];

/// Returns the expected steps of a login.
fn wanted(login: &Login) -> Vec<String> {
    if let Some((_, steps)) = OTHERWISE.iter().find(|(name, _)| *name == login.name) {
        return steps.split(" > ").map(str::to_owned).collect();
    }
    login.expect.split(" > ").filter_map(expected_step).collect()
}

/// Returns the step of the flow for a part of `expect`; `None` if the flow needs no person for it.
fn expected_step(part: &str) -> Option<String> {
    let text_of = |kind: &str| Some(part.split_once(&format!("{kind}("))?.1.split_once(')')?.0);
    let first = part.split(['(', ' ']).next().unwrap_or_default();
    Some(match first {
        "step" => return None,
        "logged-in" => "SUCCESS".to_owned(),
        "not-understood" => "page_not_understood".to_owned(),
        "not-allowed" => "domain_not_allowed".to_owned(),
        "external" | "captcha" => "elsewhere".to_owned(),
        "choices" => "choices".to_owned(),
        _ => {
            let refusal = |kind| text_of(kind).map(|words| format!(": {words}"));
            let over = refusal("locked").or_else(|| refusal("rate-limited"));
            if let Some(words) = over {
                return Some(format!("credentials_rejected{words}"));
            }
            if let Some(words) = refusal("site-failed") {
                return Some(format!("navigation_failed{words}"));
            }
            let words = refusal("rejected").unwrap_or_default();
            let fields = text_of("fields").unwrap_or_default().split(' ').filter(|word| !is_count(word));
            format!("fields({}){words}", fields.collect::<Vec<_>>().join(" "))
        }
    })
}

/// Returns true if a word is the number of boxes of a field, which the API does not report.
fn is_count(word: &str) -> bool {
    word.strip_prefix('x').is_some_and(|count| count.parse::<u8>().is_ok())
}

/// A person who gives the values that the API requests.
struct Person<'a> {
    connection: Connection<'a>,
    login: &'a Login,
    /// The steps so far.
    steps: Vec<String>,
    wronged: bool,
    chosen: bool,
    /// The last external action.
    elsewhere: Value,
}

impl Person<'_> {
    /// Logs in until the end, or until there are more than `wanted` steps.
    fn log_in(&mut self, wanted: usize) -> anyhow::Result<()> {
        self.connection.login()?;
        loop {
            let elsewhere = self.elsewhere.clone();
            let now = self.connection.until("asked, or over", |now| {
                let waits =
                    now["flow_step"] == "AWAITING_EXTERNAL_ACTION" && now["external_action_message"] != elsewhere;
                now["flow_status"] != "IN_PROGRESS" || now["flow_step"] == "AWAITING_INPUT" || waits
            })?;
            if now["flow_status"] != "IN_PROGRESS" {
                self.steps.push(over(&now));
                return Ok(());
            }
            if self.steps.len() == wanted {
                return Ok(());
            }
            if now["flow_step"] == "AWAITING_INPUT" {
                self.answer(&now)?;
            } else {
                self.act_elsewhere(&now)?;
            }
        }
    }

    fn answer(&mut self, now: &Value) -> anyhow::Result<()> {
        let fields = fields(now);
        let choice = self.login.answers.split(", ").find_map(|one| one.strip_prefix("choose="));
        let choice = choice.filter(|_| !self.chosen).and_then(|wanted| choice_of(now, wanted));
        let wrong = !self.wronged && self.wrongs(fields.values());
        let answer = match &choice {
            Some(id) => json!({ "selected_choice_id": id }),
            None => {
                let values: BTreeMap<_, _> = fields.iter().map(|(id, what)| (id, given(what, wrong))).collect();
                json!({ "field_values": values })
            }
        };
        let taken = self.connection.server.post(&self.connection.path("/submit"), &answer)?;
        if taken.status == 409 {
            // The page has changed in the meantime.
            return Ok(());
        }
        ensure!(taken.status == 202, "{answer}: {taken:?}");
        self.chosen |= choice.is_some();
        self.wronged |= choice.is_none() && wrong;
        self.steps.push(request_step(now));
        Ok(())
    }

    fn wrongs<'s>(&self, mut fields: impl Iterator<Item = &'s String>) -> bool {
        match self.login.answers.as_str() {
            "wrong-first" => fields.any(|what| what == "password"),
            "wrong-code-first" => fields.any(|what| what == "totp" || what == "code"),
            _ => false,
        }
    }

    /// Performs the action of a person on a phone, in a mail or in the live view.
    fn act_elsewhere(&mut self, now: &Value) -> anyhow::Result<()> {
        let session = now["browser_session_id"].as_str().context("no session")?;
        let mut cdp = Cdp::connect_with_key(self.connection.server, session)?;
        let page = cdp.page()?;
        cdp.evaluate(&page, "void acted()")?;
        self.elsewhere = now["external_action_message"].clone();
        self.steps.push("elsewhere".to_owned());
        Ok(())
    }
}

/// Returns the requested fields by id, with their kinds as in `expect`.
fn fields(now: &Value) -> BTreeMap<String, String> {
    all(&now["fields"]).map(|field| (text(&field["id"]), what(now, field))).collect()
}

fn what(now: &Value, field: &Value) -> String {
    let older = all(&now["discovered_fields"]).find(|older| older["name"] == field["ref"]);
    match (text(&field["type"]).as_str(), older.and_then(|older| older["linked_mfa_type"].as_str())) {
        ("identifier", _) => text(&field["ref"]),
        ("totp_code", _) => "totp".to_owned(),
        ("totp_secret", _) => "totp-secret".to_owned(),
        ("code", Some("email")) => "mail-code".to_owned(),
        ("code", Some(way)) => way.to_owned(),
        (kind, _) => kind.to_owned(),
    }
}

/// Returns the choice with this text.
fn choice_of(now: &Value, wanted: &str) -> Option<String> {
    let says =
        |choice: &&Value| format!("{} {}", text(&choice["label"]), text(&choice["description"])).contains(wanted);
    all(&now["choices"]).find(says).map(|choice| text(&choice["id"]))
}

/// Returns the requested fields in the format of `wanted`.
fn request_step(now: &Value) -> String {
    let fields: Vec<_> = all(&now["fields"]).map(|field| what(now, field)).collect();
    let reason = now["website_error"].as_str().map(|words| format!(": {words}")).unwrap_or_default();
    if fields.is_empty() { format!("choices{reason}") } else { format!("fields({}){reason}", fields.join(" ")) }
}

/// Returns the end in the format of `wanted`.
fn over(now: &Value) -> String {
    let reason = now["website_error"].as_str().map(|words| format!(": {words}")).unwrap_or_default();
    match now["error_code"].as_str() {
        // No login is meant to end so; the message says why.
        Some("internal") => format!("internal: {}", text(&now["error_message"])),
        Some(code) => format!("{code}{reason}"),
        None => text(&now["flow_status"]),
    }
}

fn all(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The end of a login.
struct Ended {
    name: String,
    steps: String,
    wanted: String,
    took: Duration,
    /// The id of the connection, if it can log in again automatically.
    can_reauth: Option<String>,
}

fn log_in(server: &Server, origins: &Origins, login: &Login) -> Ended {
    let wanted = wanted(login);
    let began = Instant::now();
    let steps = (|| {
        let url = format!("{}/{}/login", origins.shop, login.name);
        let more = json!({ "allowed_domains": ["127.0.0.1"] });
        let connection = Connection::at(server, &login.name, &url, &more)?;
        let (steps, elsewhere) = (Vec::new(), Value::Null);
        let mut person = Person { connection, login, steps, wronged: false, chosen: false, elsewhere };
        let done = person.log_in(wanted.len());
        let took = began.elapsed();
        if let Err(error) = done {
            person.steps.push(format!("FAILED: {error:#}"));
        }
        let can = person.connection.get()?["can_reauth"] == true;
        let steps = person.steps.join(" > ");
        ensure!(!can || !ALONE.iter().any(|what| steps.contains(what)), "it could not log in by itself: {steps}");
        if !can {
            server.delete(&person.connection.path(""))?.expect(204)?;
        }
        anyhow::Ok((steps, took, can.then_some(person.connection.id)))
    })();
    let (steps, took, can_reauth) = steps.unwrap_or_else(|error| (format!("FAILED: {error:#}"), began.elapsed(), None));
    Ended { name: login.name.clone(), steps, wanted: wanted.join(" > "), took, can_reauth }
}

/// Logs in at all pages, [`CONCURRENT_LOGINS`] at a time.
fn log_in_at_all(server: &Server, origins: &Origins, logins: &[Login]) -> anyhow::Result<Vec<Ended>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut ended = Vec::new();
        while let Some(login) = logins.get(next.fetch_add(1, Ordering::Relaxed)) {
            ended.push(log_in(server, origins, login));
        }
        ended
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..CONCURRENT_LOGINS).map(|_| scope.spawn(some)).collect();
        let done = running.into_iter().map(|one| one.join().map_err(|_| anyhow::anyhow!("a thread panicked")));
        Ok(done.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
    })
}

/// Prints the number of right logins and their median time. Fails if a login is wrong.
fn count(server: &Server, what: &str, ended: &[Ended]) -> anyhow::Result<()> {
    let right = ended.iter().filter(|one| one.steps == one.wanted).count();
    let mut took: Vec<_> = ended.iter().filter(|one| one.wanted.ends_with("SUCCESS")).map(|one| one.took).collect();
    took.sort_unstable();
    let p50 = took.get(took.len() / 2).copied().unwrap_or_default();
    eprintln!("{what}: {right} of {} pages, p50 {:.1} s", ended.len(), p50.as_secs_f64());
    let wrong = ended.iter().filter(|one| one.steps != one.wanted);
    let wrong: String =
        wrong.map(|one| format!("\n{}\n    is {}\nshould {}", one.name, one.steps, one.wanted)).collect();
    if !wrong.is_empty() {
        let log = server.log();
        let is_notable = |line: &&str| [" WARN ", "ERROR ", "panicked"].iter().any(|mark| line.contains(mark));
        let notable: Vec<&str> = log.lines().filter(is_notable).collect();
        let last = notable[notable.len().saturating_sub(60)..].join("\n");
        bail!("{what}: ended otherwise:{wrong}\nthe log has:\n{last}");
    }
    Ok(())
}

/// Makes the health checks of these connections due, [`CONCURRENT_LOGINS`] at a time. The sites have no login any more,
/// so each connection logs in unattended, in a headless browser. Returns the ends of these logins.
fn log_in_again(server: &Server, ended: &[&Ended]) -> anyhow::Result<Vec<Ended>> {
    let mut all = Vec::new();
    for some in ended.chunks(CONCURRENT_LOGINS) {
        let ids =
            some.iter().map(|one| one.can_reauth.as_deref().context("it cannot")).collect::<Result<Vec<_>, _>>()?;
        for id in &ids {
            let due = "UPDATE auth_connections SET check_taken_at = now() - interval '2 hours' WHERE id =";
            sql(server, &format!("{due} {}", uuid(id)?))?;
        }
        for (one, id) in some.iter().zip(ids) {
            let event = again(server, id).with_context(|| format!("of {}", one.name))?;
            let at = |key: &str| OffsetDateTime::parse(&text(&event[key]), &Rfc3339);
            let took = Duration::try_from(at("updated_at")? - at("timestamp")?)?;
            let (name, steps, wanted) = (one.name.clone(), text(&event["status"]), "SUCCESS".to_owned());
            all.push(Ended { name, steps, wanted, took, can_reauth: None });
        }
    }
    Ok(all)
}

/// Returns the end of a connection's automatic login.
fn again(server: &Server, id: &str) -> anyhow::Result<Value> {
    let path = format!("/auth/connections/{id}/timeline?type=reauth");
    until("logged in by itself", TEST_TIMEOUT, || {
        let event = server.get(&path).ok()?.json().ok()?[0].clone();
        (event["status"].is_string() && event["status"] != "IN_PROGRESS").then_some(event)
    })
}

fn serve(listener: TcpListener, logins: &Arc<Vec<Login>>, origins: &Origins) {
    let (logins, origins) = (Arc::clone(logins), origins.clone());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (logins, origins) = (Arc::clone(&logins), origins.clone());
            // The browser may close a connection early.
            thread::spawn(move || drop(answer(stream, &logins, &origins)));
        }
    });
}

fn answer(mut stream: TcpStream, logins: &[Login], origins: &Origins) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let body = body(&mut reader)?;
    let body = (method == "POST").then(|| String::from_utf8_lossy(&body));
    stream.write_all(response(path.trim_start_matches('/'), body.as_deref(), logins, origins).as_bytes())
}

#[test]
fn login_flows_end_as_expected_at_every_page_of_the_collection() -> anyhow::Result<()> {
    let only = std::env::var(ONLY);
    let mut files = logins("own")?;
    files.extend(logins("products")?);
    files.retain(|login| only.as_ref().is_ok_and(|only| login.name.contains(only)) || only.is_err());
    let files = Arc::new(files);
    // `shop` serves the host of the site and an allowed one, `evil` a forbidden one.
    let (shop, evil) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.2:0")?);
    let (address, elsewhere) = (shop.local_addr()?, evil.local_addr()?);
    let origins = Origins {
        shop: format!("http://localhost:{}", address.port()),
        id: format!("http://{address}"),
        evil: format!("http://{elsewhere}"),
    };
    serve(shop, &files, &origins);
    serve(evil, &files, &origins);
    let egress_allow = vec![address.to_string(), elsewhere.to_string()];
    let server = Server::start(Options { egress_allow, ..Options::default() })?;

    let ended = log_in_at_all(&server, &origins, &files)?;
    count(&server, "flows with a person, with a display", &ended)?;
    if only.is_err() && ended.len() < 33 {
        bail!("only {} pages", ended.len());
    }

    // Each page needs a health check and a login, so this is tested only on request.
    if only.is_err() {
        return Ok(());
    }
    let able: Vec<_> = ended.iter().filter(|one| one.can_reauth.is_some()).collect();
    let again = log_in_again(&server, &able)?;
    count(&server, "flows by themselves, without a display", &again)?;
    Ok(())
}
