//! Tests of browser policies: whether typed values are stored, and which internal pages a person can open.

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use casement_domain::browser::BrowserPolicy;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Server, Session, Shared};
use serde_json::{Value, json};

use super::login_site::{Connection, Site};

/// Returns the policies of a session's browser.
fn in_force(server: &Server, session: &Session) -> anyhow::Result<Value> {
    let read = json!({ "command": "sh", "args": ["-c", "cat /etc/*/policies/managed/*.json /etc/opt/*/policies/managed/*.json 2>/dev/null"] });
    let ran = server.post(&format!("/browsers/{}/process/exec", session.id()), &read)?.expect(200)?.json()?;
    let text = STANDARD.decode(ran["stdout_b64"].as_str().context("no output")?)?;
    Ok(serde_json::from_slice(&text)?)
}

#[test]
fn no_browser_stores_typed_values_unless_its_caller_enables_it() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let asks = json!({ "PasswordManagerEnabled": true });
    for (body, keeps) in [
        (json!({ "headless": true }), false),
        (json!({ "headless": true, "stealth": true }), false),
        (json!({}), false),
        (json!({ "headless": true, "browser_policy": asks }), true),
    ] {
        let session = server.create(&body)?;
        let policies = in_force(server, &session)?;
        assert_eq!(policies["PasswordManagerEnabled"], keeps, "{body}: {policies}");
        for (name, off) in [
            ("AutofillAddressEnabled", json!(false)),
            ("AutofillCreditCardEnabled", json!(false)),
            ("BrowserSignin", json!(0)),
            ("TranslateEnabled", json!(false)),
            ("DefaultBrowserSettingEnabled", json!(false)),
        ] {
            assert_eq!(policies[name], off, "{body}: {policies}");
        }
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}

#[test]
fn the_browser_of_a_login_opens_no_devtools_no_files_and_no_internal_pages() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let policy = BrowserPolicy::of_logins();
    let session = server.create(&json!({ "timeout_seconds": 600, "browser_policy": policy.as_map() }))?;
    for key in ["F12", "Ctrl+Shift+i", "Ctrl+Shift+j", "Ctrl+u"] {
        for key in [key, "Escape"] {
            let path = format!("/browsers/{}/computer/press_key", session.id());
            server.post(&path, &json!({ "keys": [key] }))?.expect(204)?;
        }
    }
    let execute = |code: &str| {
        let path = format!("/browsers/{}/playwright/execute", session.id());
        server.post(&path, &json!({ "code": code }))?.expect(200)?.json()
    };
    for address in ["file:///etc/passwd", "chrome://version/", "chrome://inspect/"] {
        let answer = execute(&format!("await page.goto('{address}')"))?;
        let error = answer["error"].as_str().context("it was opened")?;
        ensure!(error.contains("net::ERR_BLOCKED_BY_ADMINISTRATOR"), "{address}: {answer}");
    }
    let download = "const downloaded = page.waitForEvent('download'); \
        await page.setContent('<a download=a.csv href=data:,a>a</a>'); await page.click('a'); \
        return (await downloaded).failure()";
    assert_eq!(execute(download)?["result"], "canceled");
    let answer = execute("return context.pages().map(page => page.url())")?;
    let opened: Vec<&str> = answer["result"].as_array().context("no list")?.iter().filter_map(Value::as_str).collect();
    ensure!(!opened.iter().any(|url| url.starts_with("devtools:") || url.starts_with("view-source:")), "{opened:?}");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn the_live_view_of_a_login_opens_nothing_else_of_its_session() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-guest");
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    let waiting = connection.until_awaiting()?;
    let session = waiting["browser_session_id"].as_str().context("no session")?;
    let live = waiting["live_view_url"].as_str().context("no live view")?;
    let (_, token) = live.split_once("jwt=").context("no token")?;

    let with_token = |method: &str, path: &str, body: &Value| -> anyhow::Result<u16> {
        let joined = if path.contains('?') { '&' } else { '?' };
        let request = Request::new(method, &format!("{path}{joined}jwt={token}"));
        let request = if body.is_null() { request } else { request.json(body) };
        Ok(request.send(server.address())?.status)
    };
    for (method, path, body) in [
        ("POST", "process/exec", json!({ "command": "id" })),
        ("POST", "playwright/execute", json!({ "code": "return 1" })),
        ("GET", "fs/read_file?path=/etc/passwd", Value::Null),
        ("POST", "computer/screenshot", json!({})),
        ("POST", "curl", json!({ "url": pages.url("/form") })),
        ("GET", "cdp", Value::Null),
        ("GET", "wd/status", Value::Null),
    ] {
        let refused = with_token(method, &format!("/vm/{session}/{path}"), &body)?;
        assert_eq!(refused, 403, "{method} {path}");
    }
    assert_eq!(with_token("GET", &format!("/live/{session}"), &Value::Null)?, 200);
    let record = server.get(&format!("/browsers/{session}"))?.expect(200)?.json()?;
    assert_eq!(record["browser_policy"], json!(BrowserPolicy::of_logins().as_map()));
    server.delete(&connection.path(""))?.expect(204).map(drop)
}
