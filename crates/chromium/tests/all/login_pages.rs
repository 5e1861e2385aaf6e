//! Login pages of many kinds, read, understood and filled in by the real agent in a real Chromium.
//!
//! Each test asserts the sequence of understood steps, and that the typed values arrived, because a page only continues
//! with correct ones. The whole program logs in with a display in `crates/app/tests/all/login_pages.rs`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use casement_domain::ids::BrowserId;
use casement_domain::login_page::{
    Act, AllowedHosts, Choice, ChoiceKind, Field, FieldKind, HostPattern, Known, LoginPageError, LoginPages as _, Mark,
    MfaKind, PageQuestion, ReadCondition, Reading, Refusal, RefusalKind, StepKind, Understanding, understand,
};
use futures_util::future::try_join_all;
use secrecy::SecretString;

use super::cdp::Cdp;
use super::support::{Fixture, headless};
use casement_test_support::login_pages::{Login, Origins, given, logins};

/// The timeout for a page to change.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of consecutive reads without a step after which a page counts as not understood.
const MAX_FRUITLESS: u32 = 4;
/// The environment variable with a part of the name of the logins to run. If it is set, every reading is printed.
const ONLY_VARIABLE: &str = "CASEMENT_TEST_LOGIN";
/// The maximum number of steps; no login takes that many.
const MAX_STEPS: usize = 14;

pub(crate) fn origins() -> Origins {
    let origin = |host: &str| format!("http://{host}.test");
    Origins { shop: origin("shop"), id: origin("id"), evil: origin("evil") }
}

fn hosts() -> AllowedHosts {
    AllowedHosts::new("shop.test", vec![HostPattern::parse("id.test").expect("a host")])
}

/// A simulated person who logs in.
struct Person<'a> {
    fixture: &'a Fixture,
    browser: BrowserId,
    login: &'a Login,
    known: Known,
    /// The steps understood so far.
    trace: Vec<String>,
    /// True once the wrong values were given.
    wronged: bool,
    /// The number of reads since the last new step.
    fruitless: u32,
    last: Option<Mark>,
}

/// The result of a login.
struct Ended {
    name: String,
    trace: String,
    expect: String,
    took: Duration,
}

impl Person<'_> {
    /// Runs until there is nothing left to do.
    async fn log_in(&mut self) -> anyhow::Result<()> {
        self.fixture.engine.open(self.browser, &format!("{}/{}/login", origins().shop, self.login.name)).await?;
        for _ in 0..200 {
            // The login is expected to end here, and one read confirmed it: the next reads need not wait long.
            let whole = self.trace.iter().map(String::as_str).chain(["not-understood"]).collect::<Vec<_>>().join(" > ");
            let hopeless = self.login.expect == whole && self.fruitless > 0;
            let within = if hopeless { Duration::from_millis(300) } else { PAGE_TIMEOUT };
            let wait = ReadCondition { differs_from: self.last.clone(), within };
            match self.look(wait).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // The page changed after it was read, or does not answer.
                Err(error) if error.downcast_ref::<LoginPageError>().is_some_and(again) => {
                    self.fruitless += 1;
                    ensure!(self.fruitless < MAX_FRUITLESS, "{error}");
                }
                Err(error) => return Err(error),
            }
        }
        anyhow::bail!("no end")
    }

    async fn look(&mut self, wait: ReadCondition) -> anyhow::Result<bool> {
        let reading = self.fixture.engine.read(self.browser, wait).await?;
        let understood = understand(&reading, &self.known, &hosts());
        if std::env::var(ONLY_VARIABLE).is_ok_and(|only| !only.is_empty()) {
            eprintln!("{reading:#?}\n{understood:#?}");
        }
        self.step(&reading, understood).await
    }

    /// Handles one read. Returns true at the end.
    async fn step(&mut self, reading: &Reading, understood: Understanding) -> anyhow::Result<bool> {
        let given = step_name(&understood);
        if let Some(given) = &given {
            let same = self.trace.last() == Some(given) && self.last.as_ref() == Some(&reading.mark);
            if !same {
                self.trace.push(given.clone());
            }
            // The same step again without an error message would be an endless loop.
            let count = self.trace.iter().filter(|one| *one == given).count();
            let reported_off = matches!(&understood, Understanding::Fields(PageQuestion { refusal: Some(_), .. }));
            let waits = matches!(understood, Understanding::External(_) | Understanding::Captcha { .. });
            let asks = given.starts_with("fields") && !given.contains("captcha");
            let stuck = self.known.progress.any() && count > 1 && !reported_off && asks;
            if (same && !waits) || stuck || self.trace.len() > MAX_STEPS {
                return Ok(true);
            }
            self.fruitless = 0;
        }
        let before = reading.mark.clone();
        match understood {
            Understanding::Busy | Understanding::NotUnderstood => {
                self.fruitless += 1;
                if self.fruitless >= MAX_FRUITLESS {
                    self.trace.push("not-understood".to_owned());
                    return Ok(true);
                }
                self.last = Some(before);
                return Ok(false);
            }
            Understanding::LoggedIn { .. } | Understanding::Refused(_) | Understanding::NotAllowed { .. } => {
                return Ok(true);
            }
            Understanding::Step(step) => self.act(step.acts).await?,
            Understanding::External(_) => {
                self.elsewhere().await?;
                self.known.progress.external = true;
            }
            Understanding::Captcha { .. } => self.elsewhere().await?,
            Understanding::Fields(requested) | Understanding::Choices(requested) => {
                if requested.refusal.as_ref().is_some_and(|refusal| refusal.kind == RefusalKind::Locked) {
                    return Ok(true);
                }
                self.answer(requested).await?;
            }
        }
        self.last = Some(before);
        Ok(false)
    }

    async fn answer(&mut self, requested: PageQuestion) -> anyhow::Result<()> {
        if requested.captcha.is_some() && !self.known.progress.captcha {
            self.known.progress.captcha = true;
            return self.elsewhere().await;
        }
        let wanted = self.login.answers.split(", ").find_map(|one| one.strip_prefix("choose="));
        let fits = |choice: &&Choice| {
            wanted.is_some_and(|wanted| {
                let of = format!("{} {}", choice.label, choice.description.as_deref().unwrap_or_default());
                of.contains(wanted)
            })
        };
        if !self.known.progress.choice
            && let Some(choice) = requested.choices.iter().find(fits)
        {
            self.act(choice.choose()).await?;
            self.known.progress.choice = true;
            return Ok(());
        }
        ensure!(!requested.fields.is_empty(), "nothing to choose: {:?}", requested.choices);
        let wrong = !self.wronged && self.wrongs(&requested.fields);
        self.wronged |= wrong;
        let values: BTreeMap<String, SecretString> =
            requested.fields.iter().map(|field| (field.key.clone(), given(word(field), wrong).into())).collect();
        self.act(requested.answer(&values)?).await?;
        self.known.progress = self.known.progress.sent(&requested.fields);
        Ok(())
    }

    fn wrongs(&self, fields: &[Field]) -> bool {
        let has = |kinds: &[FieldKind]| fields.iter().any(|field| kinds.contains(&field.kind));
        match self.login.answers.as_str() {
            "wrong-first" => has(&[FieldKind::Password]),
            "wrong-code-first" => has(&[FieldKind::Code, FieldKind::TotpCode]),
            _ => false,
        }
    }

    async fn act(&self, acts: Vec<Act>) -> anyhow::Result<()> {
        Ok(self.fixture.engine.act(self.browser, acts).await?)
    }

    /// Simulates the part of the login that a person does outside of the page, or in the live view.
    async fn elsewhere(&self) -> anyhow::Result<()> {
        let mut cdp = Cdp::attach(&self.fixture.engine, self.browser).await?;
        cdp.evaluate("void acted()").await.map(drop)
    }
}

/// Returns true if another read may help.
const fn again(error: &LoginPageError) -> bool {
    !matches!(error, LoginPageError::NavigationFailed { .. } | LoginPageError::WrongOrigin { .. })
}

/// Returns the short name of what was understood.
fn step_name(understood: &Understanding) -> Option<String> {
    Some(match understood {
        Understanding::Fields(requested) | Understanding::Choices(requested) => {
            let fields: Vec<String> = requested.fields.iter().map(field).collect();
            let choices: Vec<String> = requested.choices.iter().filter_map(choice).collect();
            let mut given = if fields.is_empty() { String::new() } else { format!("fields({})", fields.join(" ")) };
            given += &requested.refusal.as_ref().map(|refusal| format!(" {}", refused(refusal))).unwrap_or_default();
            if !requested.ticks.is_empty() {
                given += &format!(" ticks({})", requested.ticks.len());
            }
            if !choices.is_empty() {
                given += &format!(" choices({})", choices.join(" "));
            }
            given += &requested.captcha.as_ref().map(|kind| format!(" captcha({kind})")).unwrap_or_default();
            given.trim().to_owned()
        }
        Understanding::External(external) => format!("external({})", external.mfa.map_or("", way)),
        Understanding::LoggedIn { url } => {
            let home = ["/home", "/wp-admin"].iter().any(|end| url.ends_with(end));
            if home { "logged-in".to_owned() } else { format!("logged-in at {url}") }
        }
        Understanding::Captcha { kind } => format!("captcha({kind})"),
        Understanding::Refused(refusal) => format!("refused {}", refused(refusal)),
        Understanding::Step(step) => {
            let what = match step.kind {
                StepKind::CookieBanner => "cookie-banner",
                StepKind::Dialog => "dialog",
                StepKind::OpenLogin => "open-login",
                StepKind::StaySignedIn => "stay-signed-in",
                StepKind::Decline => "decline",
                StepKind::Continue => "continue",
            };
            format!("step({what})")
        }
        Understanding::NotAllowed { host } => format!("not-allowed({host})"),
        Understanding::Busy | Understanding::NotUnderstood => return None,
    })
}

fn field(field: &Field) -> String {
    let what = word(field);
    if field.boxes.len() > 1 { format!("{what} x{}", field.boxes.len()) } else { what.to_owned() }
}

fn word(field: &Field) -> &str {
    match (field.kind, field.mfa) {
        (FieldKind::Identifier, _) => field.reference.as_str(),
        (FieldKind::Password, _) => "password",
        (FieldKind::TotpCode, _) => "totp",
        (FieldKind::Code, Some(MfaKind::Email)) => "mail-code",
        (FieldKind::Code, Some(kind)) => way(kind),
        (FieldKind::Code, None) => "code",
        (FieldKind::TotpSecret, _) => "totp-secret",
        (FieldKind::Text, _) => "text",
    }
}

fn choice(choice: &Choice) -> Option<String> {
    Some(match choice.kind {
        // Not counted, because many pages offer another method.
        ChoiceKind::MfaMethod if choice.mfa == Some(MfaKind::Switch) => return None,
        ChoiceKind::MfaMethod => format!("mfa:{}", choice.mfa.map_or("other", way)),
        ChoiceKind::SsoProvider => format!("sso:{}", choice.provider.as_deref().unwrap_or_default()),
        ChoiceKind::SignInMethod if choice.mfa == Some(MfaKind::Switch) => return None,
        ChoiceKind::SignInMethod => "method".to_owned(),
        ChoiceKind::AuthMethod => return None,
        ChoiceKind::IdentifierMethod => "identifier".to_owned(),
        ChoiceKind::Account => "account".to_owned(),
        ChoiceKind::Other => "other".to_owned(),
    })
}

const fn way(kind: MfaKind) -> &'static str {
    match kind {
        MfaKind::Sms => "sms",
        MfaKind::Call => "call",
        MfaKind::Email => "email",
        MfaKind::Totp => "totp",
        MfaKind::Push => "push",
        MfaKind::Password => "password",
        MfaKind::Switch => "switch",
    }
}

fn refused(refusal: &Refusal) -> String {
    let kind = match refusal.kind {
        RefusalKind::Rejected => "rejected",
        RefusalKind::CodeRejected => "code-rejected",
        RefusalKind::Locked => "locked",
        RefusalKind::RateLimited => "rate-limited",
        RefusalKind::SiteFailed => "site-failed",
        RefusalKind::Other => "other",
    };
    format!("{kind}({})", refusal.website_error)
}

/// Runs all logins, in several browsers at a time, and returns the results.
async fn log_in_at(fixture: &Fixture, browsers: usize, logins: &[Login]) -> anyhow::Result<Vec<Ended>> {
    let next = AtomicUsize::new(0);
    let one = async || {
        let browser = fixture.start(headless()).await?;
        let mut ended = Vec::new();
        while let Some(login) = logins.get(next.fetch_add(1, Ordering::Relaxed)) {
            ended.push(log_in(fixture, browser, login).await);
        }
        anyhow::Ok(ended)
    };
    let all = try_join_all((0..browsers).map(|_| one())).await?;
    fixture.engine.end_all().await?;
    Ok(all.into_iter().flatten().collect())
}

async fn log_in(fixture: &Fixture, browser: BrowserId, login: &Login) -> Ended {
    let (trace, known) = (Vec::new(), Known::default());
    let mut person = Person { fixture, browser, login, known, trace, wronged: false, fruitless: 0, last: None };
    let began = Instant::now();
    if let Err(error) = person.log_in().await {
        person.trace.push(format!("FAILED: {error:#}"));
    }
    let (name, expect) = (login.name.clone(), login.expect.clone());
    Ended { name, expect, trace: person.trace.join(" > "), took: began.elapsed() }
}

/// Checks that all logins end as expected; prints the number that do, and the median duration.
fn count(what: &str, mut ended: Vec<Ended>, at_least: usize) -> anyhow::Result<()> {
    let right = ended.iter().filter(|one| one.trace == one.expect).count();
    ended.sort_by_key(|one| one.took);
    let median = ended.get(ended.len() / 2).map(|one| one.took).unwrap_or_default();
    eprintln!("{what}: {right} of {} right; median {median:?}", ended.len());
    let mut wrong = String::new();
    for one in ended.iter().filter(|one| one.trace != one.expect) {
        wrong += &format!("\n{}\n    is {}\nshould {}", one.name, one.trace, one.expect);
    }
    ensure!(wrong.is_empty(), "{what}: not understood:{wrong}");
    ensure!(ended.len() >= at_least, "{what}: only {} pages", ended.len());
    Ok(())
}

/// Returns the logins that the environment selects, or all.
fn chosen(folder: &str) -> anyhow::Result<Vec<Login>> {
    let only = std::env::var(ONLY_VARIABLE).unwrap_or_default();
    let all = logins(folder)?;
    Ok(all.into_iter().filter(|login| login.name.contains(&only)).collect())
}

async fn log_in_at_all(what: &str, browsers: usize, logins: Vec<Login>, at_least: usize) -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.egress.serve_logins(logins.clone(), origins());
    let ended = log_in_at(&fixture, browsers, &logins).await?;
    count(what, ended, at_least)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_end_right_without_a_display() -> anyhow::Result<()> {
    log_in_at_all("headless", 3, chosen("own")?, 25).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_laid_out_as_those_of_well_known_products_end_right() -> anyhow::Result<()> {
    log_in_at_all("like products", 1, chosen("products")?, 8).await
}
