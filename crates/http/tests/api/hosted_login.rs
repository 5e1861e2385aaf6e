//! The routes `/login/{connection_id}`: the page is opened once by a code, then by a cookie only, and is never framed.

use std::collections::BTreeMap;
use std::sync::Arc;

use casement_domain::{
    audit::AuthStrategy,
    auth_connection::{AuthConnection, Flow, FlowStatus, FlowStep},
    testing::{NOON, project_id},
};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::auth_connections::{connection, flow, id};
use super::support::{Ports, Reply, TestApi, Trail};

const OWN: &str = "Sec-Fetch-Site: same-origin";
const ORIGIN: &str = "Origin: https://casement.test";
const GIVEN: &str = r#"{"field_values":{"identifier":"ann"}}"#;

/// The stored login of the connection.
type StoredFlow = Arc<Mutex<Option<Flow>>>;

/// Returns ports that store one flow in memory as the database would.
fn storing(flow: Flow) -> (Ports, StoredFlow) {
    let stored: StoredFlow = Arc::new(Mutex::new(Some(flow)));
    let mut ports = Ports::default();
    let found = Arc::clone(&stored);
    ports.auth_connections.expect_any().returning(move |which| {
        let flow = found.lock().clone().map(Box::new);
        Ok((which == id()).then(|| AuthConnection { flow, ..connection() }))
    });
    let put = Arc::clone(&stored);
    ports.auth_connections.expect_put().returning(move |flow| {
        let next = Flow { revision: flow.revision + 1, ..flow.clone() };
        *put.lock() = Some(next);
        Ok(true)
    });
    ports.flow_notifier.expect_follow().returning(|_| stream::pending().boxed());
    (ports, stored)
}

fn page(tail: &str) -> String {
    format!("/login/{}{tail}", id())
}

async fn get(api: &TestApi, tail: &str, headers: &[&str]) -> Reply {
    api.request("GET", &page(tail), headers, "").await
}

async fn enter(api: &TestApi, tail: &str, headers: &[&str]) -> Reply {
    api.request("POST", &page(tail), headers, "").await
}

/// Opens the page with its code and returns the header line with the cookie.
async fn opened(api: &TestApi) -> String {
    let reply = enter(api, "?code=the-code", &[OWN, ORIGIN]).await;
    assert_eq!((reply.status, reply.header("location")), (303, Some(page("").as_str())), "{reply}");
    let set = reply.header("set-cookie").expect("a cookie").to_owned();
    let (pair, rest) = set.split_once("; ").expect("attributes");
    assert_eq!(rest, format!("Path={}; HttpOnly; SameSite=Lax; Max-Age=3600; Secure", page("")));
    format!("Cookie: other=1; {pair}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_opens_the_page_once_and_then_the_cookie_does() {
    let (ports, stored) = storing(flow());
    let api = TestApi::start(ports);
    // A view of the link, a prefetch by a browser and a fetch by a program do not use it up.
    assert_eq!(api.request("HEAD", &page("?code=the-code"), &[], "").await.status, 204);
    assert_eq!(get(&api, "?code=the-code", &["Sec-Purpose: prefetch;prerender"]).await.status, 204);
    for _ in 0..2 {
        let door = get(&api, "?code=the-code", &[]).await;
        assert_eq!((door.status, door.header("set-cookie")), (200, None), "{door}");
        assert!(door.text().contains("<form method=\"post\">") && !door.text().contains("the-code"), "{door}");
        let policy = door.header("content-security-policy").expect("a policy");
        assert!(policy.contains("form-action 'self';") && policy.contains("script-src 'self';"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none';") && !policy.contains("unsafe"), "{policy}");
        // The referrer policy hides the code from other sites and still sends the form's origin to this server.
        assert_eq!(door.header("referrer-policy"), Some("strict-origin"));
    }
    assert_eq!(stored.lock().as_ref(), Some(&flow()), "nothing was changed");
    for headers in [&[][..], &["Origin: null"], &["Sec-Fetch-Site: cross-site", "Origin: https://evil.example"]] {
        assert_eq!(enter(&api, "?code=the-code", headers).await.status, 403, "{headers:?}");
    }
    assert_eq!(stored.lock().as_ref(), Some(&flow()), "nothing was changed by another site");

    let cookie = opened(&api).await;
    let shown = get(&api, "", &[&cookie]).await;
    assert_eq!(shown.status, 200);
    for again in [get(&api, "?code=the-code", &[]).await, enter(&api, "?code=the-code", &[OWN, ORIGIN]).await] {
        assert!(again.status == 410 && again.text().contains("This link was used"), "{again}");
        assert_eq!(again.header("set-cookie"), None);
    }
    // The same browser may follow the same link again.
    for back in
        [get(&api, "?code=the-code", &[&cookie]).await, enter(&api, "?code=the-code", &[&cookie, OWN, ORIGIN]).await]
    {
        assert_eq!((back.status, back.header("set-cookie")), (303, None), "{back}");
    }
    let stored = stored.lock().clone().expect("a flow");
    let value = cookie.rsplit('=').next().expect("a value");
    assert!(!format!("{:?}", stored.page_key).contains(value), "kept as a hash alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_else_opens_the_page_and_refusals_do_not_reveal_logins() {
    let (ports, _) = storing(flow());
    let api = TestApi::start(ports);
    let other = "/login/01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let nothing = get(&api, "?code=another", &[]).await;
    assert!(nothing.status == 404 && nothing.text().contains("This link opens nothing"), "{nothing}");
    let mut answers = Vec::new();
    for (path, headers) in [
        (page(""), vec![]),
        (page("?code="), vec![]),
        (page(&format!("?code={}", "x".repeat(5000))), vec![]),
        (page(""), vec!["Cookie: __Secure-casement_login=AAAA"]),
        (page(""), vec!["Cookie: casement_login=AAAA"]),
        (other.to_owned(), vec![]),
        (format!("{other}?code=the-code"), vec![]),
        ("/login/no-such-thing?code=the-code".to_owned(), vec![]),
    ] {
        let reply = api.request("GET", &path, &headers, "").await;
        answers.push((reply.status, reply.text() == nothing.text()));
        let reply = api.request("POST", &path, &[&headers[..], &[OWN, ORIGIN]].concat(), "").await;
        answers.push((reply.status, reply.text() == nothing.text()));
    }
    assert_eq!(answers, vec![(404, true); 16]);

    // The cookie of one connection's page does not open another one's.
    let cookie = opened(&api).await;
    for path in [other.to_owned(), format!("{other}/events"), format!("{other}/live")] {
        let reply = api.request("GET", &path, &[&cookie, OWN], "").await;
        assert_eq!(reply.status, 404, "{path}: {reply}");
    }
    let reply = api.request("POST", &format!("{other}/submit"), &[&cookie, OWN, ORIGIN], GIVEN).await;
    assert_eq!(reply.status, 404, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_an_ended_login_says_so() {
    for over in [
        Flow { expires_at: NOON, ..flow() },
        Flow { status: FlowStatus::Success, step: FlowStep::Completed, ..flow() },
        Flow { status: FlowStatus::Canceled, ..flow() },
    ] {
        let (ports, _) = storing(over);
        let api = TestApi::start(ports);
        for reply in [get(&api, "?code=the-code", &[]).await, enter(&api, "?code=the-code", &[OWN, ORIGIN]).await] {
            assert!(reply.status == 410 && reply.text().contains("This link has expired"), "{reply}");
            assert_eq!(reply.header("set-cookie"), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_cannot_be_framed_and_loads_nothing_from_other_origins() {
    let (ports, _) = storing(flow());
    let api = TestApi::start(ports);
    let cookie = opened(&api).await;
    for path in [page(""), page("?code=x"), "/login/x".to_owned(), "/login/assets/login.js".to_owned()] {
        let reply = api.request("GET", &path, &[&cookie], "").await;
        let policy = reply.header("content-security-policy").expect("a policy");
        for part in [
            "default-src 'none';",
            "script-src 'self';",
            "frame-ancestors 'none';",
            "form-action 'none';",
            "base-uri 'none';",
            "require-trusted-types-for 'script';",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(reply.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_accepted_from_the_page_and_from_no_other_site() {
    let (ports, stored) = storing(flow());
    let api = TestApi::start(ports);
    let cookie = opened(&api).await;
    let submit = async |headers: &[&str], body: &str| api.request("POST", &page("/submit"), headers, body).await;
    for (headers, body, status) in [
        (vec![OWN, ORIGIN], GIVEN, 404),
        (vec![cookie.as_str()], GIVEN, 403),
        (vec![&cookie, "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"], GIVEN, 403),
        (vec![&cookie, "Sec-Fetch-Site: same-site", "Origin: https://other.casement.test"], GIVEN, 403),
        (vec![&cookie, "Origin: null"], GIVEN, 403),
        (vec![&cookie, OWN, ORIGIN, "Content-Type: text/plain"], GIVEN, 415),
        (vec![&cookie, OWN, ORIGIN, "Content-Type: application/x-www-form-urlencoded"], "field_values=x", 415),
        (vec![&cookie, OWN, ORIGIN], r#"{"field_values":{"other":"x"}}"#, 400),
        (vec![&cookie, OWN, ORIGIN], "{}", 400),
    ] {
        let reply = submit(&headers, body).await;
        assert_eq!(reply.status, status, "{headers:?} {body}: {reply}");
    }
    assert!(stored.lock().as_ref().is_some_and(|flow| flow.submission.is_none()), "nothing was taken");

    let reply = submit(&[&cookie, OWN, ORIGIN], GIVEN).await;
    assert_eq!((reply.status, reply.json()), (202, json!({ "accepted": true })), "{reply}");
    let flow = stored.lock().clone().expect("a flow");
    assert!(flow.submission.is_some() && flow.step == FlowStep::Submitting);
    // The login requests no input now.
    assert_eq!(submit(&[&cookie, OWN, ORIGIN], GIVEN).await.status, 409);
    let answers = reply.text();
    assert!(!answers.contains("ann"), "what is given is not repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_gets_the_requested_inputs_and_no_credentials() {
    let (ports, stored) = storing(flow());
    let api = TestApi::start(ports);
    let cookie = opened(&api).await;
    assert_eq!(get(&api, "/events", &[OWN]).await.status, 404);
    assert_eq!(get(&api, "/events", &[&cookie, "Sec-Fetch-Site: cross-site"]).await.status, 403);
    // The login has ended, so that the stream ends too.
    {
        let mut stored = stored.lock();
        let flow = stored.take().expect("a flow");
        *stored = Some(Flow { status: FlowStatus::Success, step: FlowStep::Completed, ..flow });
    }
    let reply = get(&api, "/events", &[&cookie, OWN]).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")), "{reply}");
    let frame = reply.text().split_once("data: ").expect("a frame").1.split("\n\n").next().expect("its end").to_owned();
    let state: serde_json::Value = serde_json::from_str(&frame).expect("JSON");
    assert_eq!(state["status"], "SUCCESS");
    assert_eq!(
        [&state["domain"], &state["fields"], &state["live"]],
        [&json!("shop.example"), &json!([]), &json!(false)]
    );
    assert!(!frame.contains("the-code") && !frame.contains("jwt"), "{frame}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_view_is_available_with_the_cookie_while_the_login_runs() {
    let (ports, _) = storing(flow());
    let api = TestApi::start(ports);
    let cookie = opened(&api).await;
    assert_eq!(get(&api, "/live", &[OWN]).await.status, 404);
    assert_eq!(get(&api, "/live", &[&cookie, "Sec-Fetch-Site: cross-site"]).await.status, 403);
    // The login has no browser yet.
    assert_eq!(get(&api, "/live", &[&cookie, OWN]).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_the_code_or_the_cookie_are_recorded_without_the_submitted_values() {
    let trail = Trail::default();
    let (ports, _) = storing(flow());
    let api = TestApi::start(Ports { trail: trail.clone(), ..ports });
    // A request without a valid code or cookie leaves no record.
    get(&api, "?code=the-code", &[]).await;
    api.request("POST", &page("/submit"), &["Cookie: __Secure-casement_login=AAAA", OWN, ORIGIN], GIVEN).await;
    let cookie = opened(&api).await;
    for (headers, body, status) in [
        ([cookie.as_str(), OWN, ORIGIN], r#"{"field_values":{"other":"secret-word"}}"#, 400),
        ([cookie.as_str(), OWN, ORIGIN], r#"{"field_values":{"identifier":"secret-word"}}"#, 202),
    ] {
        assert_eq!(api.request("POST", &page("/submit"), &headers, body).await.status, status);
    }
    let recorded = trail.entries().await;
    let calls: Vec<_> = recorded
        .iter()
        .map(|(waited, it)| {
            (*waited, it.auth_strategy, it.api_key, it.project, it.method.as_str(), it.route.as_str(), it.status)
        })
        .collect();
    let by_cookie = |route, status| (true, AuthStrategy::SessionToken, None, Some(project_id()), "POST", route, status);
    let submit = "/login/{connection_id}/submit";
    assert_eq!(calls, [by_cookie("/login/{connection_id}", 303), by_cookie(submit, 400), by_cookie(submit, 202)]);
    let text = format!("{recorded:?}");
    assert!(!text.contains("secret-word") && !text.contains("the-code"), "{text}");
}

/// An element of a page.
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
}

impl Element {
    fn has(&self, name: &str, value: &str) -> bool {
        self.attributes.get(name).is_some_and(|has| has == value)
    }
}

/// Parses the elements of a page in order. The page must be well-formed, without `<` or `>` in attributes.
fn elements(html: &str) -> Vec<Element> {
    let tags = html.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag);
    let one = |tag: &str| {
        let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = BTreeMap::new();
        while let Some(at) = rest.trim_start().chars().next().map(|_| rest.trim_start()) {
            let end = at.find([' ', '=']).unwrap_or(at.len());
            let (attribute, after) = at.split_at(end);
            let value = after.strip_prefix("=\"").map(|quoted| quoted.split_once('"').expect("a closing quote"));
            let (value, after) = value.unwrap_or(("", after));
            attributes.insert(attribute.to_owned(), value.to_owned());
            rest = after;
        }
        Element { name: name.to_owned(), attributes }
    };
    tags.filter(|tag| tag.starts_with(|c: char| c.is_ascii_alphabetic())).map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_labelled_for_screen_readers() {
    let (ports, _) = storing(flow());
    let api = TestApi::start(ports);
    let door = elements(&get(&api, "?code=the-code", &[]).await.text());
    let nothing = elements(&get(&api, "?code=another", &[]).await.text());
    let cookie = opened(&api).await;
    let page = elements(&get(&api, "", &[&cookie]).await.text());
    for (what, page) in [("door", &door), ("nothing", &nothing), ("page", &page)] {
        let named = |name: &str| page.iter().filter(|one| one.name == name).count();
        assert!(page.iter().any(|one| one.name == "html" && one.has("lang", "en")), "{what}");
        assert_eq!((named("title"), named("main"), named("h1")), (1, 1, 1), "{what}");
        assert!(page.iter().any(|one| one.name == "meta" && one.has("name", "viewport")), "{what}");
        // Zoom and tab order are not restricted, and everything clickable is a button.
        assert!(
            !page.iter().any(|one| one
                .attributes
                .get("content")
                .is_some_and(|all| all.contains("maximum") || all.contains("user"))),
            "{what}"
        );
        assert!(
            page.iter().all(|one| one.attributes.get("tabindex").is_none_or(|at| at == "-1" || at == "0")),
            "{what}"
        );
        assert!(page.iter().all(|one| one.name != "button" || one.attributes.contains_key("type")), "{what}");
        let ids: Vec<&String> = page.iter().filter_map(|one| one.attributes.get("id")).collect();
        for reference in ["aria-labelledby", "aria-describedby", "aria-controls", "for"] {
            for wanted in page.iter().filter_map(|one| one.attributes.get(reference)).flat_map(|all| all.split(' ')) {
                assert_eq!(ids.iter().filter(|id| **id == wanted).count(), 1, "{what}: {reference}={wanted}");
            }
        }
    }
    let of = |id: &str| page.iter().find(|one| one.has("id", id)).unwrap_or_else(|| panic!("no {id}"));
    // Screen readers announce status messages politely, and errors at once.
    assert!(of("status").has("role", "status") && of("refusal").has("role", "alert"));
    assert!(of("title").has("tabindex", "-1"), "the focus goes there when it is over");
    assert!(of("look").has("aria-expanded", "false") && of("look").has("aria-controls", "view"));
    for section in page.iter().filter(|one| one.name == "section") {
        assert!(["aria-label", "aria-labelledby"].iter().any(|name| section.attributes.contains_key(*name)));
    }
    assert!(page.iter().any(|one| one.name == "noscript"));
}
