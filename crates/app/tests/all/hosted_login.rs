//! A person at the page of a login, in a browser of the person's own: with a keyboard, and on a phone.

use anyhow::Context as _;
use serde_json::json;

use super::login_site::{Connection, HOME, LOGIN, PASSWORD, Site};
use super::support::{Clients, Shared};

/// Kept to be looked at, in the folder that cargo gives tests for such things.
const PICTURES: [&str; 6] =
    ["asked.png", "refused.png", "browser.png", "done.png", "phone-choice.png", "phone-code.png"];

/// Where a code may be sent.
const CHOOSE: &str = "<!doctype html><html lang=en><title>Two-step verification - Shop</title><h1>Where should we send the code?</h1>\
    <button onclick=\"location='code'\">Text a code to *** 42</button><button onclick=\"location='code'\">Email a code to a***@shop.test</button>";

/// Takes the code.
const CODE: &str = "<!doctype html><html lang=en><title>Two-step verification - Shop</title><h1>Enter the code</h1>\
    <p>We texted a code to the number ending in 42.</p><form id=f><label>Code <input name=code inputmode=numeric autocomplete=one-time-code></label>\
    <button>Verify</button></form><script>f.onsubmit = () => { if (f.code.value === '731946') { document.cookie = 'in=phone; max-age=9999; path=/';\
    location = 'home'; } return false; };</script>";

#[test]
fn a_person_logs_in_at_the_hosted_page_with_a_keyboard_and_on_a_phone() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let desk = Site::new(pages, "shop-hosted");
    let phone = Site::new(pages, "shop-hosted-phone");
    phone.put("login", &phone_login());
    phone.put("choose", CHOOSE);
    phone.put("code", CODE);
    phone.put("home", &HOME.replace("in=ann", "in=phone"));
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

fn phone_login() -> String {
    LOGIN
        .replace("document.cookie = 'in=phone; max-age=9999; path=/';", "")
        .replace("location = location.pathname.replace('login', 'home');", "location = 'choose';")
}
