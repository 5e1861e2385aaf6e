//! Tests of the hosted login page in a separate browser: with a keyboard, a screen reader and a phone; and of the end
//! of the page.

use std::time::Duration;

use anyhow::Context as _;
use casement_test_support::program::{Clients, Shared, until};
use serde_json::json;

use super::host::sql;
use super::login_site::{Connection, HOME, LOGIN, PASSWORD, Site, uuid};
use super::login_ways::LOCKED;

/// The screenshots that are copied to cargo's temporary folder for tests, so that people can look at them.
const PICTURES: [&str; 6] =
    ["asked.png", "refused.png", "browser.png", "done.png", "phone-choice.png", "phone-code.png"];

/// A page to choose the destination of a code.
const CHOOSE: &str = "<!doctype html><html lang=en><title>Two-step verification - Shop</title><h1>Where should we send the code?</h1>\
    <button onclick=\"location='code'\">Text a code to *** 42</button><button onclick=\"location='code'\">Email a code to a***@shop.test</button>";

/// A page for the code.
const CODE: &str = "<!doctype html><html lang=en><title>Two-step verification - Shop</title><h1>Enter the code</h1>\
    <p>We texted a code to the number ending in 42.</p><form id=f><label>Code <input name=code inputmode=numeric autocomplete=one-time-code></label>\
    <button>Verify</button></form><script>f.onsubmit = () => { if (f.code.value === '731946') { document.cookie = 'in=phone; max-age=9999; path=/';\
    location = 'home'; } return false; };</script>";

#[test]
fn a_person_logs_in_at_the_hosted_page_with_a_keyboard_and_on_a_phone() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let desk = Site::new(pages, "shop-hosted");
    let phone = Site::new(pages, "shop-hosted-phone");
    put_steps(&phone);
    let at_desk = Connection::new(server, &desk, &json!({}))?;
    let at_phone = Connection::new(server, &phone, &json!({}))?;
    let hosted = |connection: &Connection<'_>| -> anyhow::Result<String> {
        Ok(connection.login()?["hosted_url"].as_str().context("no page")?.to_owned())
    };
    let (desk_url, phone_url) = (hosted(&at_desk)?, hosted(&at_phone)?);

    let run = Clients::find()?.run(
        server,
        "crates/app/tests/scripts/hosted-login.mjs",
        &[&desk_url, &phone_url, PASSWORD],
    )?;
    for name in PICTURES {
        std::fs::write(format!("{}/hosted-{name}", env!("CARGO_TARGET_TMPDIR")), run.file(name)?)?;
    }
    assert_eq!(
        run.json()?,
        json!({
            "scanner": ["Sign in", true],
            "door": "Continue",
            "labels": ["User name", "Password"],
            "focus": "User name",
            "address": "",
            "stranger": [410, "This link was used"],
            "framed": false,
            "missing": [["true", "Fill this in."], ["true", "Fill this in."]],
            "missed": "User name",
            "refusal": "Wrong user name or password.",
            "kept": ["ann", ""],
            "picture": true,
            "cookie": "",
            "done": "You are signed in",
            "choices": ["Text a code to *** 42", "Email a code to a***@shop.test"],
            "code": ["one-time-code", "numeric"],
            "wider": [0, 0, 0],
            "phoneDone": "You are signed in",
            "back": "You are signed in",
            "faults": [],
        })
    );
    for connection in [&at_desk, &at_phone] {
        assert_eq!(connection.until_over("SUCCESS")?["status"], "AUTHENTICATED");
        connection.until_closed()?;
        server.delete(&connection.path(""))?.expect(204)?;
    }
    let log = server.log();
    for secret in [PASSWORD, "731946"] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
    Ok(())
}

/// The accessibility tree of the form, and the elements that the Tab key reaches.
const FORM: &str = "- status: The site asks for the following. What you type goes to its page.\n- text: User name\n- textbox \"User name\"\n\
    - text: Password\n- textbox \"Password\"\n- button \"Show Password\": Show\n- button \"Continue\"\n";
const REST: &str = "- region \"The browser of the login\":\n  - button \"Show the browser\"\n- paragraph: This page expires in some minutes.";

#[test]
fn the_hosted_page_shows_its_end_and_announces_every_change_to_screen_readers() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let sites = ["expiring", "locked", "deleted", "steps"].map(|name| Site::new(pages, &format!("shop-hosted-{name}")));
    let [expiring, locked, deleted, steps] = &sites;
    locked.put("login", LOCKED);
    put_steps(steps);
    let connect = |site| Connection::new(server, site, &json!({ "save_credentials": false }));
    let [expiring, locked, deleted, steps] = [connect(expiring)?, connect(locked)?, connect(deleted)?, connect(steps)?];
    let ids = [&expiring.id, &locked.id, &deleted.id, &steps.id].map(String::as_str);

    let run = std::thread::scope(|scope| {
        let expires = scope.spawn(|| {
            // The timeout is the time in which the script starts its browser and opens the page.
            until("open and asking", Duration::from_secs(600), || {
                (expiring.get().ok()?["health_check_interval"] == 301).then_some(())
            })?;
            let soon = format!(
                "UPDATE auth_flows SET expires_at = now() + interval '3 seconds' WHERE status = 'IN_PROGRESS' AND connection_id = {}",
                uuid(&expiring.id)?
            );
            sql(server, &soon)
        });
        let arguments = [&ids[..], &[PASSWORD]].concat();
        let run = Clients::find()?.run(server, "crates/app/tests/scripts/hosted-login-ends.mjs", &arguments);
        expires.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        run
    })?;
    for name in ["expired.png", "failed.png", "narrow-code.png"] {
        std::fs::write(format!("{}/hosted-{name}", env!("CARGO_TARGET_TMPDIR")), run.file(name)?)?;
    }

    let title = "- heading \"Sign in to localhost\" [level=1]\n";
    let question = format!("{title}{FORM}{REST}");
    let over = |title: &str, words: &str| json!([title, format!("- heading \"{title}\" [level=1]\n- status: {words}")]);
    let refused = "- alert: Wrong user name or password.\n";
    let form = FORM.replace("textbox \"User name\"", "textbox \"User name\": ann");
    let (status, fields) = form.split_at(form.find("- text").context("no field")?);
    let choices = "- status: The site asks how to go on.\n- region \"Choose how to go on\":\n  - heading \"Choose how to go on\" [level=2]\n  \
        - list:\n    - listitem:\n      - button \"Text a code to *** 42\"\n    - listitem:\n      \
        - button \"Email a code to a***@shop.test\"\n";
    let code = "- status: The site asks for the following. What you type goes to its page.\n- text: Code\n- paragraph: We texted a code to the number ending in 42.\n- textbox \"Code\"\n- button \"Continue\"\n";
    assert_eq!(
        run.json()?,
        json!({
            "asked": question,
            "way": ["User name", "Password", "Show Password", "Continue", "Show the browser"],
            "expired": over("This login has expired", "It took too long. Ask for a new link."),
            "late": [410, "This link was used"],
            "failed": over(
                "The login did not succeed",
                "\"The site said: Your account has been locked. Call us. Ask for a new link to try again.\"",
            ),
            "deleted": over("This login is over", "It was canceled, or begun anew."),
            "narrow": question,
            "refused": ["Password", format!("{title}{status}{refused}{fields}{REST}")],
            "choices": [["Text a code to *** 42", "Email a code to a***@shop.test"], format!("{title}{choices}{REST}")],
            "code": ["Code", format!("{title}{code}{REST}")],
            "done": over("You are signed in", "The login at localhost is done. This page can be closed."),
            "faults": [],
        })
    );
    for (connection, status) in [(&expiring, "EXPIRED"), (&locked, "FAILED"), (&steps, "SUCCESS")] {
        connection.until_over(status)?;
        connection.until_closed()?;
        server.delete(&connection.path(""))?.expect(204)?;
    }
    Ok(())
}

/// Puts pages on the site where a factor is chosen after the login, and its code entered.
fn put_steps(site: &Site<'_>) {
    site.put("login", &phone_login());
    site.put("choose", CHOOSE);
    site.put("code", CODE);
    site.put("home", &HOME.replace("in=ann", "in=phone"));
}

fn phone_login() -> String {
    LOGIN
        .replace("document.cookie = 'in=phone; max-age=9999; path=/';", "")
        .replace("location = location.pathname.replace('login', 'home');", "location = 'choose';")
}
