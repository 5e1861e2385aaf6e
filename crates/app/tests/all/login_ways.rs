//! Tests of the kinds of logins: in several steps, with second factors, through single sign-on, with a captcha, and
//! failed ones.

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Clients, Shared};
use serde_json::{Value, json};

use super::host::sql;
use super::login_site::{Connection, LOGIN, PASSWORD, Site, ann};

/// A page for the user name, below a cookie banner.
const FIRST: &str = r#"<!doctype html><html lang=en><title>Sign in - Shop</title><h1>Sign in</h1>
<form id=f><label>Email or user name <input name=user autocomplete=username required></label><button>Next</button></form>
<div id=cookies role=dialog style="position:fixed;inset:0;background:#fff"><p>We use cookies. May we?</p>
<button onclick="cookies.remove()">Reject all</button><button onclick="cookies.remove()">Accept all</button></div>
<script>f.onsubmit = event => { event.preventDefault(); location = 'password'; };</script>"#;

/// The next page, for the password.
const SECOND: &str = r#"<!doctype html><html lang=en><title>Sign in - Shop</title><h1>Enter your password</h1>
<form id=f><div id=said role=alert></div><label>Password <input name=pw type=password required></label><button>Sign in</button></form>
<script>f.onsubmit = event => {
    event.preventDefault();
    if (f.pw.value === 'hunter2-so-secret') location = 'factors';
    else said.textContent = 'Wrong password. Try again.';
};</script>"#;

/// The next page, to choose a factor.
const FACTORS: &str = r#"<!doctype html><html lang=en><title>Verify your identity</title><h1>Verify your identity</h1>
<p>Choose a method to get a code.</p>
<button onclick="location='sms'">Text message to ••• 42</button>
<button onclick="location='totp'">Authenticator app</button>"#;

/// The next page, for a code of a text message.
const SMS: &str = r#"<!doctype html><html lang=en><title>Enter code</title><h1>Check your messages</h1>
<p>Enter the 6-digit code that we sent by text message to ••• 42.</p>
<form id=f><div id=said role=alert></div><label>Code <input name=code inputmode=numeric autocomplete=one-time-code maxlength=6 required></label><button>Verify</button></form>
<script>f.onsubmit = event => {
    event.preventDefault();
    if (f.code.value === '135790') location = 'boxes';
    else { said.textContent = 'That code is incorrect.'; f.code.value = ''; }
};</script>"#;

/// The next page, which asks whether to stay signed in.
const STAY: &str = r#"<!doctype html><html lang=en><title>Stay signed in?</title><h1>Stay signed in?</h1>
<p>Do this to reduce the number of times you are asked to sign in.</p>
<button onclick="location='login'">No</button>
<button onclick="document.cookie='in=ann; max-age=9999; path=/'; location='home'">Yes</button>"#;

/// The verification of a TOTP code, by RFC 6238.
pub(crate) const TOTP: &str = r#"<!doctype html><html lang=en><title>Two-factor authentication</title><h1>Two-factor authentication</h1>
<p>Open your authenticator app and enter the 6-digit code.</p>
<form id=f><div id=said role=alert></div><label>Authentication code <input name=otp inputmode=numeric autocomplete=one-time-code required></label><button>Verify</button></form>
<script>
async function code(step) {
    const usages = ['sign'], hash = { name: 'HMAC', hash: 'SHA-1' };
    const key = await crypto.subtle.importKey('raw', new TextEncoder().encode('12345678901234567890'), hash, false, usages);
    const counter = new DataView(new ArrayBuffer(8));
    counter.setUint32(4, step);
    const mac = new DataView(await crypto.subtle.sign('HMAC', key, counter.buffer));
    const at = mac.getUint8(19) & 15;
    return String((mac.getUint32(at) & 0x7fffffff) % 1000000).padStart(6, '0');
}
f.onsubmit = async event => {
    event.preventDefault();
    const step = Math.floor(Date.now() / 30000);
    const good = await Promise.all([step - 1, step, step + 1].map(code));
    if (good.includes(f.otp.value)) { document.cookie = 'in=ann; max-age=9999; path=/'; location = 'home'; }
    else { said.textContent = 'The code is incorrect.'; f.otp.value = ''; }
};
</script>"#;

/// A page with both fields and a captcha.
const CAPTCHA: &str = r#"<!doctype html><html lang=en><title>Sign in - Shop</title><h1>Sign in</h1>
<form id=f><label>User name <input name=username required></label><label>Password <input name=password type=password required></label>
<div class=g-recaptcha style="width:300px;height:70px;background:#ddd"><textarea name=g-recaptcha-response hidden></textarea></div>
<button>Sign in</button></form>
<script>f.onsubmit = event => {
    event.preventDefault();
    if (document.querySelector('textarea').value && f.password.value === 'hunter2-so-secret') location = 'push';
};</script>"#;

/// A page that waits for an approval on a phone.
pub(crate) const PUSH: &str = r#"<!doctype html><html lang=en><title>Approve the request</title><h1>Check your phone</h1>
<p>We sent a notification to your phone. Approve the request to sign in.</p>
<script>setInterval(async () => {
    if ((await fetch('approved')).ok) { document.cookie = 'in=ann; max-age=9999; path=/'; location = 'home'; }
}, 300);</script>"#;

/// A page to choose an account.
const ACCOUNTS: &str = r#"<!doctype html><html lang=en><title>Choose an account</title><h1>Choose an account</h1><p>to continue to Shop</p>
<ul><li><button class=account onclick="location='nobody'"><div>Bob Smith</div><div>bob@shop.example</div></button>
<li><button class=account onclick="location='form'"><div>Ann Smith</div><div>ann@shop.example</div></button>
<li><button onclick="location='nobody'">Use another account</button></ul>"#;

/// A page for another code, one digit per box.
const BOXES: &str = r#"<!doctype html><html lang=en><title>Verification</title><h1>Enter the code</h1>
<p>For your safety we sent one more code by text message to ••• 42.</p>
<form id=f><div id=said role=alert></div><input name=d1 maxlength=1 inputmode=numeric><input name=d2 maxlength=1 inputmode=numeric><input name=d3
maxlength=1 inputmode=numeric><input name=d4 maxlength=1 inputmode=numeric><input name=d5 maxlength=1 inputmode=numeric><input name=d6 maxlength=1
inputmode=numeric><button>Verify</button></form>
<script>
const boxes = [...f.querySelectorAll('input')];
boxes.forEach((box, at) => { box.oninput = () => { if (box.value) boxes[at + 1]?.focus(); }; });
f.onsubmit = event => {
    event.preventDefault();
    if (boxes.map(box => box.value).join('') === '246801') location = 'sent';
    else { said.textContent = 'That code is incorrect.'; for (const box of boxes) box.value = ''; }
};</script>"#;

/// A page that waits until the link in a mail is opened.
const SENT: &str = r#"<!doctype html><html lang=en><title>Check your inbox</title><h1>Check your email</h1>
<p>We sent you a link to a•••@shop.example. Click the link to sign in.</p><button>Resend</button>
<script>setInterval(async () => {
    if ((await fetch('followed')).ok) location = 'stay';
}, 300);</script>"#;

pub(super) const LOCKED: &str = r#"<!doctype html><html lang=en><title>Sign in - Shop</title><h1>Sign in</h1>
<form id=f><label>User name <input name=username required></label><label>Password <input name=password type=password required></label><button>Sign in</button></form>
<script>f.onsubmit = event => {
    event.preventDefault();
    document.body.innerHTML = '<p role=alert>Your account has been locked. Call us.</p>';
};</script>"#;

/// A page with a single sign-on button.
const THROUGH: &str = r#"<!doctype html><html lang=en><title>Sign in - Shop</title><h1>Sign in</h1>
<form><label>User name <input name=username required></label><label>Password <input name=password type=password required></label><button>Sign in</button></form>
<button id=google class=social>Continue with Google</button>
<script>google.onclick = () => { location = 'VOUCHER'; };</script>"#;

/// The site of the single sign-on.
const VOUCHER: &str = r#"<!doctype html><html lang=en><title>Sign in - Accounts</title><h1>Sign in</h1>
<form id=f><label>Email <input name=email type=email required></label><label>Password <input name=password type=password required></label><button>Next</button></form>
<script>f.onsubmit = event => {
    event.preventDefault();
    if (f.password.value === 'hunter2-so-secret') location = 'BACK';
};</script>"#;

/// The page after the single sign-on.
pub(crate) const BACK: &str = "<!doctype html><title>One moment</title><script>
document.cookie = 'in=ann; max-age=9999; path=/'; location = 'home';</script>";

/// The secret of the codes of [`TOTP`], in base 32.
pub(super) const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

/// Makes the site ask for a TOTP code after the password.
pub(super) fn ask_for_app_code(site: &Site<'_>) {
    let login = LOGIN.replace("document.cookie = 'in=ann; max-age=9999; path=/';", "").replace("'home')", "'totp')");
    site.put("login", &login);
    site.put("totp", TOTP);
}

fn kinds(record: &Value, of: &str) -> Vec<String> {
    let items = record[of].as_array().into_iter().flatten();
    items.map(|one| one["type"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_login_with_a_chosen_factor_requests_its_fields_step_by_step() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-steps");
    for (page, html) in [
        ("login", FIRST),
        ("password", SECOND),
        ("factors", FACTORS),
        ("sms", SMS),
        ("boxes", BOXES),
        ("sent", SENT),
        ("totp", TOTP),
        ("stay", STAY),
    ] {
        site.put(page, html);
    }
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    let first = connection.until_awaiting()?;
    assert_eq!(kinds(&first, "fields"), ["identifier"], "{first}");
    let id = first["fields"][0]["id"].as_str().context("no id")?;
    connection.submit_as(&json!({ "field_values": { id: "ann@shop.example" } }))?;

    let second = connection.until("asked for the password", |now| kinds(now, "fields") == ["password"])?;
    assert!(second["website_error"].is_null(), "{second}");
    connection.submit(&json!({ "password": PASSWORD }))?;

    let third = connection.until("asked for a choice", |now| now["mfa_options"].is_array())?;
    assert_eq!(kinds(&third, "mfa_options"), ["sms", "totp"], "{third}");
    connection.submit_as(&json!({ "mfa_option_id": "sms" }))?;

    let fourth = connection.until("asked for a code", |now| kinds(now, "fields") == ["code"])?;
    let name = fourth["fields"][0]["ref"].as_str().context("no name")?.to_owned();
    connection.submit(&json!({ name.as_str(): "000000" }))?;
    let again = connection.until("refused", |now| now["website_error"].is_string())?;
    assert_eq!(again["website_error"], "That code is incorrect.");
    connection.until_awaiting()?;
    connection.submit(&json!({ name.as_str(): "135790" }))?;

    // Six boxes are one field. A second code of the same kind is requested, and so is another value after a rejected
    // one.
    let boxes = connection.until("asked for a code in boxes", |now| {
        now["flow_step"] == "AWAITING_INPUT" && now["website_error"].is_null()
    })?;
    assert_eq!(kinds(&boxes, "fields"), ["code"], "{boxes}");
    let id = boxes["fields"][0]["id"].as_str().context("no id")?.to_owned();
    connection.submit_as(&json!({ "field_values": { id.as_str(): "111111" } }))?;
    connection.until("refused again", |now| now["website_error"].is_string())?;
    connection.until_awaiting()?;
    connection.submit_as(&json!({ "field_values": { id.as_str(): "246801" } }))?;

    let sent = connection.until("waiting for the link in the mail", |now| {
        let says_mail = now["external_action_message"].as_str().is_some_and(|message| message.contains("mail"));
        now["flow_step"] == "AWAITING_EXTERNAL_ACTION" && says_mail
    })?;
    assert!(sent["fields"].is_null(), "{sent}");
    site.put("followed", "yes");
    let done = connection.until_over("SUCCESS")?;
    assert_eq!([&done["can_reauth"], &done["can_reauth_reason"]], [&json!(false), &json!("requires_sms_code")]);
    connection.until_closed()?;
    assert_eq!(connection.seen(&site)?, "Your orders - Shop");
    let stored = done["credential"]["name"].as_str().context("nothing was kept")?.replace(' ', "%20");
    let stored = server.get(&format!("/credentials/{stored}"))?.expect(200)?.json()?;
    assert_eq!(stored["value_keys"].as_array().map(Vec::len), Some(2), "no code is kept: {stored}");
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

#[test]
fn stored_credentials_with_a_totp_secret_log_in_automatically() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-totp");
    ask_for_app_code(&site);
    let values = json!({ "name": "by itself", "domain": "localhost", "values": ann(PASSWORD), "totp_secret": SECRET });
    server.post("/credentials", &values)?.expect(201)?;
    let connection = Connection::new(server, &site, &json!({ "credential": { "name": "By itself" } }))?;
    assert_eq!(connection.login()?["flow_type"], "LOGIN");
    let done = connection.until_in_by_itself()?;
    assert_eq!(done["can_reauth_reason"], "requirements_satisfiable");
    connection.until_closed()?;
    assert_eq!(connection.seen(&site)?, "Your orders - Shop");
    server.delete("/credentials/by%20itself")?.expect(204)?;
    assert_eq!(connection.get()?["can_reauth_reason"], "no_credential", "what it names may go");
    let _ = server.post("/credentials", &values)?.expect(201)?;
    let arguments = ["localhost", "shop-totp-again", &site.url("home"), "by itself"];
    let run = Clients::find()?.run(server, "docs/examples/auth_connection.py", &arguments)?;
    assert_eq!(run.stdout, format!("SUCCESS {}\nYour orders - Shop\n", site.url("home")));
    for table in ["auth_connections", "auth_flows", "audit_records"] {
        let found = sql(server, &format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%{SECRET}%'"))?;
        assert_eq!(found, "0", "{table} holds the secret");
    }
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

/// The login begins with the choice of an account.
#[test]
fn a_person_solves_the_captcha_in_the_live_view_and_approves_on_a_phone() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-elsewhere-steps");
    let done = "document.cookie = 'in=ann; max-age=9999; path=/'; location = 'home';";
    let (push, sent) =
        (PUSH.replace(done, "location = 'sent';"), SENT.replace("location = 'stay';", &format!("{{ {done} }}")));
    for (page, html) in [("login", ACCOUNTS), ("form", CAPTCHA), ("push", &push), ("sent", &sent)] {
        site.put(page, html);
    }
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    let who = connection.until("asked for the account", |now| !kinds(now, "choices").is_empty())?;
    let choices: Vec<_> = who["choices"].as_array().into_iter().flatten().collect();
    assert_eq!(kinds(&who, "choices"), ["account"; 3], "{who}");
    let ann_smith = choices.iter().find(|one| one["label"].as_str().is_some_and(|label| label.contains("Ann")));
    let ann_smith = &ann_smith.context("no such account")?["id"];
    connection.submit_as(&json!({ "selected_choice_id": ann_smith }))?;
    connection.until("asked for name and password", |now| kinds(now, "fields") == ["identifier", "password"])?;
    connection.submit(&ann(PASSWORD))?;
    let elsewhere = |now: &Value| now["flow_step"] == "AWAITING_EXTERNAL_ACTION";
    let stuck = connection.until("at the captcha", elsewhere)?;
    let message = stuck["external_action_message"].as_str().unwrap_or_default();
    assert!(message.contains("captcha") && message.contains("live view"), "{stuck}");

    // Has the effect of a person who solves the captcha.
    let session = stuck["browser_session_id"].as_str().context("no session")?;
    let mut cdp = Cdp::connect_with_key(server, session)?;
    let page = cdp.page()?;
    cdp.evaluate(&page, "document.querySelector('textarea').value = 'solved'")?;
    drop(cdp);

    let push = connection.until("waiting for the telephone", |now| {
        elsewhere(now) && now["external_action_message"].as_str().is_some_and(|message| message.contains("phone"))
    })?;
    assert!(push["fields"].is_null(), "{push}");
    site.put("approved", "yes");
    // One external action directly follows the other.
    connection.until("waiting for the link in the mail", |now| {
        elsewhere(now) && now["external_action_message"].as_str().is_some_and(|message| message.contains("mail"))
    })?;
    site.put("followed", "yes");
    let done = connection.until_over("SUCCESS")?;
    assert_eq!(done["can_reauth_reason"], "requires_external_action");
    connection.until_closed()?;
    assert_eq!(connection.seen(&site)?, "Your orders - Shop");
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

#[test]
fn a_locked_account_ends_the_login_with_the_message_of_the_site() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-locked");
    site.put("login", LOCKED);
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    connection.until_awaiting()?;
    connection.submit(&ann(PASSWORD))?;
    let over = connection.until_over("FAILED")?;
    assert_eq!(over["error_code"], "credentials_rejected");
    assert_eq!(over["website_error"], "Your account has been locked. Call us.");
    assert_eq!(over["status"], "NEEDS_AUTH");
    let late = server.post(&connection.path("/submit"), &json!({ "fields": ann(PASSWORD) }))?;
    assert_eq!((late.status, late.json()?["code"].clone()), (409, json!("invalid_state")));
    connection.until_closed()?;
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

#[test]
fn single_sign_on_works_only_with_an_allowed_site() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-through");
    let voucher = pages.url("/shop-through/voucher");
    site.put("login", &THROUGH.replace("VOUCHER", &voucher));
    site.put("voucher", &VOUCHER.replace("BACK", &site.url("back")));
    site.put("back", BACK);
    let connection = Connection::new(server, &site, &json!({ "save_credentials": false }))?;
    for allowed in [json!([]), json!(["127.0.0.1"])] {
        server.send("PATCH", &connection.path(""), Some(&json!({ "allowed_domains": allowed })))?.expect(200)?;
        connection.login()?;
        let waiting = connection.until_awaiting()?;
        assert_eq!(waiting["pending_sso_buttons"][0]["provider"], "google", "{waiting}");
        connection.submit_as(&json!({ "sso_provider": "google" }))?;
        if allowed == json!([]) {
            let over = connection.until_over("FAILED")?;
            assert_eq!(over["error_code"], "domain_not_allowed", "{over}");
            ensure!(over["error_message"].as_str().is_some_and(|message| message.contains("127.0.0.1")), "{over}");
            continue;
        }
        let there = connection.until("asked by the other site", |now| {
            now["flow_step"] == "AWAITING_INPUT" && now["pending_sso_buttons"].is_null()
        })?;
        assert_eq!(kinds(&there, "fields"), ["identifier", "password"], "{there}");
        connection.submit(&json!({ "email": "ann@voucher.example", "password": PASSWORD }))?;
        let done = connection.until_over("SUCCESS")?;
        assert!(done["credential"].is_null(), "nothing is to be kept: {done}");
    }
    connection.until_closed()?;
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

#[test]
fn every_call_of_the_python_client_for_auth_connections_works() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-python");
    let saw = json!({
        "made": ["NEEDS_AUTH", null, ["id.shop.example"], 600],
        "again": ["ConflictError", "already_exists"],
        "bad": ["BadRequestError", "invalid_input"],
        "changed": [false, 900, ["id.shop.example"]],
        "listed": [1, 1, 0],
        "begun": ["LOGIN", true, true],
        "stream": {
            "ends": "SUCCESS",
            "asked": ["identifier", "password"],
            "said": ["Wrong user name or password."],
            "both": ["BadRequestError", "invalid_input"],
            "stale": ["BadRequestError", "invalid_input"],
            "reasons": ["missing", "missing", "rejected", "rejected"],
        },
        "done": ["AUTHENTICATED", "SUCCESS", "COMPLETED"],
        "kept": true,
        "timeline": [["login", "SUCCESS"]],
        "in use": ["ConflictError", "resource_in_use"],
        "late": ["ConflictError", "invalid_state"],
        "gone": ["NotFoundError", "not_found"],
        "async": "NEEDS_AUTH",
        "called": "9 of 9",
    });
    for clients in Clients::of_both_versions()? {
        let run = clients.run(server, "crates/app/tests/scripts/kernel_auth_connections.py", &[&site.url("home")])?;
        assert_eq!(run.json()?, saw, "newest: {}", clients.is_newest());
    }
    Ok(())
}
