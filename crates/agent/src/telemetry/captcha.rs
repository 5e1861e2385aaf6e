//! Captchas that pages show, and what becomes of them.
//!
//! A captcha is a frame of one of the services that make them. It is solved when the field is filled in with which its page proves
//! that; nothing but whether that field is empty is read, and only while a captcha is open.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::capture::{Capture, PendingQuery, Timer};
use super::event::{Event, beginning};
use super::page::TreeFrame;
use casement_agent_protocol::telemetry::Category;

/// Captchas that are watched at once.
const MAX_COUNT: usize = 50;
/// How often it is looked whether one is solved.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);
/// How long one may be open before it counts as not solved in time.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Longest host and path that are told.
const MAX_PLACE: usize = 2 << 10;
/// The world in which it is looked.
const WORLD: &str = "casement-captcha";

/// Who makes them, as the frames' hosts tell: the host or its end after a dot, the beginning of the path, the name in events.
const MAKERS: [(&str, &str, &str); 13] = [
    ("hcaptcha.com", "/captcha/", "hcaptcha"),
    ("google.com", "/recaptcha/", "recaptcha_v2"),
    ("recaptcha.net", "/recaptcha/", "recaptcha_v2"),
    ("challenges.cloudflare.com", "/", "turnstile"),
    ("geetest.com", "/", "geetest"),
    ("geevisit.com", "/", "geetest"),
    ("arkoselabs.com", "/", "other"),
    ("funcaptcha.com", "/", "other"),
    ("captcha-delivery.com", "/captcha/", "other"),
    ("captcha.awswaf.com", "/", "other"),
    ("mtcaptcha.com", "/", "other"),
    ("friendlycaptcha.com", "/", "other"),
    ("smartcaptcha.yandexcloud.net", "/", "other"),
];

/// Whether a field with the proof is filled in. The prototype's own getter: a page could name an element like a property.
const SOLVED: &str = "[...document.querySelectorAll('\
    [name=g-recaptcha-response],[name=h-captcha-response],[name=cf-turnstile-response],[name=geetest_validate],\
    [name=fc-token],[name=frc-captcha-solution],[name=smart-token],[name=mtcaptcha-verifiedtoken]')]\
    .some(field => typeof field.value === 'string' && field.value !== '')";

/// One that is open.
#[derive(Debug)]
struct Captcha {
    kind: &'static str,
    session: String,
    /// The frame around it, whose page it guards.
    around: String,
    since: Instant,
    /// When it counts as not solved in time.
    until: Instant,
    host: String,
    path: String,
    /// The script context in which it is looked, and whether an answer is still to come.
    context: Option<i64>,
    requested: bool,
}

/// Those that are open, by their frame.
#[derive(Debug, Default)]
pub(super) struct Captchas(HashMap<String, Captcha>);

impl Captchas {
    pub(super) fn clear(&mut self) {
        self.0 = HashMap::new();
    }
}

impl Capture {
    /// A frame shows something else: maybe a captcha, maybe one no more.
    pub(super) fn note_captcha(&mut self, session: &str, frame: &TreeFrame) {
        if let Some(captcha) = self.captchas.0.get(&frame.id) {
            if frame.unreachable_url.is_some() {
                self.captcha_ends(&frame.id, "failure", Some("frame_not_loaded"));
            } else if kind_of(&frame.url) != Some(captcha.kind) {
                self.captcha_ends(&frame.id, "abandoned", None);
            }
        }
        // What was around it is gone with it.
        let inside: Vec<String> =
            self.captchas.0.iter().filter(|(_, one)| one.around == frame.id).map(|(id, _)| id.clone()).collect();
        inside.iter().for_each(|id| self.captcha_ends(id, "abandoned", None));
        let url = frame.unreachable_url.as_deref().unwrap_or(&frame.url);
        let (Some(kind), Some(around)) = (kind_of(url), self.parent_of(session, frame)) else { return };
        // A maker may show several frames for one.
        let known = self.captchas.0.values().any(|one| one.kind == kind && one.around == around.frame);
        if known || self.captchas.0.contains_key(&frame.id) {
            return;
        }
        if self.captchas.0.len() >= MAX_COUNT {
            return self.lose();
        }
        let (host, path) = place(&around.url);
        let captcha = Captcha {
            kind,
            session: around.session,
            around: around.frame,
            since: Instant::now(),
            until: Instant::now() + TIMEOUT,
            host,
            path,
            context: None,
            requested: false,
        };
        if self.captchas.0.is_empty() {
            self.timers.set(Instant::now() + CHECK_INTERVAL, Timer::Captchas);
        }
        self.captchas.0.insert(frame.id.clone(), captcha);
        if frame.unreachable_url.is_some() {
            self.captcha_ends(&frame.id, "failure", Some("frame_not_loaded"));
        }
    }

    /// The frame around another, in whatever session it is.
    fn parent_of(&self, session: &str, frame: &TreeFrame) -> Option<Around> {
        let parent = match &frame.parent_id {
            Some(parent) => parent.clone(),
            // A frame in a process of its own does not always say in what it is.
            None => self.sessions.get(session).filter(|one| one.id != one.root)?.parent_frame.clone()?,
        };
        let holds = |one: &&super::session::Session| one.frame(&parent).is_some() || one.target == parent;
        let holder = self.sessions.0.values().find(holds)?;
        let url = holder.frame(&parent).map_or(&holder.url, |known| &known.url).clone();
        Some(Around { session: holder.id.clone(), frame: parent, url })
    }

    /// A frame is gone.
    pub(super) fn captcha_unframed(&mut self, frame: &str) {
        self.captcha_ends(frame, "abandoned", None);
        let inside: Vec<String> =
            self.captchas.0.iter().filter(|(_, one)| one.around == frame).map(|(id, _)| id.clone()).collect();
        inside.iter().for_each(|id| self.captcha_ends(id, "abandoned", None));
    }

    /// A page is gone.
    pub(super) fn captchas_of_session_end(&mut self, session: &str) {
        let gone: Vec<String> = self
            .captchas
            .0
            .iter()
            .filter(|(id, one)| one.session == session || self.sessions.get(session).is_some_and(|s| s.target == **id))
            .map(|(id, _)| id.clone())
            .collect();
        gone.iter().for_each(|id| self.captcha_ends(id, "abandoned", None));
    }

    /// The session is at its end, or its browser.
    pub(super) fn captchas_end(&mut self) {
        let open: Vec<String> = self.captchas.0.keys().cloned().collect();
        open.iter().for_each(|id| self.captcha_ends(id, "abandoned", None));
    }

    /// Looks at those that are open.
    pub(super) fn look_at_captchas(&mut self) {
        let late: Vec<String> = self
            .captchas
            .0
            .iter()
            .filter(|(_, one)| one.until <= Instant::now())
            .map(|(frame, _)| frame.clone())
            .collect();
        late.iter().for_each(|frame| self.captcha_ends(frame, "timeout", None));
        let open: Vec<(String, String, String, Option<i64>)> = self
            .captchas
            .0
            .iter_mut()
            .filter(|(_, one)| !one.requested)
            .map(|(frame, one)| {
                one.requested = true;
                (frame.clone(), one.session.clone(), one.around.clone(), one.context)
            })
            .collect();
        for (frame, session, around, context) in open {
            match context {
                None => {
                    let world = json!({ "frameId": around, "worldName": WORLD });
                    self.ask(Some(&session), "Page.createIsolatedWorld", world, PendingQuery::CaptchaWorld { frame });
                }
                Some(context) => {
                    let look = json!({
                        "expression": SOLVED, "contextId": context, "returnByValue": true, "silent": true, "timeout": 100,
                    });
                    self.ask(Some(&session), "Runtime.evaluate", look, PendingQuery::CaptchaToken { frame });
                }
            }
        }
        if !self.captchas.0.is_empty() {
            self.timers.set(Instant::now() + CHECK_INTERVAL, Timer::Captchas);
        }
    }

    /// `Page.createIsolatedWorld` answered.
    pub(super) fn captcha_world(&mut self, frame: &str, result: Option<&RawValue>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct World {
            execution_context_id: i64,
        }
        let Some(captcha) = self.captchas.0.get_mut(frame) else { return };
        captcha.requested = false;
        let world = result.and_then(|result| serde_json::from_str::<World>(result.get()).ok());
        captcha.context = world.map(|world| world.execution_context_id);
    }

    /// `Runtime.evaluate` answered.
    pub(super) fn captcha_token(&mut self, frame: &str, result: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Seen {
            result: SeenValue,
        }
        #[derive(Deserialize)]
        struct SeenValue {
            #[serde(default)]
            value: serde_json::Value,
        }
        let Some(captcha) = self.captchas.0.get_mut(frame) else { return };
        captcha.requested = false;
        match result.and_then(|result| serde_json::from_str::<Seen>(result.get()).ok()) {
            Some(seen) if seen.result.value == true => self.captcha_ends(frame, "success", None),
            Some(_) => {}
            None => captcha.context = None,
        }
    }

    fn captcha_ends(&mut self, frame: &str, status: &str, error: Option<&str>) {
        let Some(captcha) = self.captchas.0.remove(frame) else { return };
        let mut event = Event::reported("captcha_solve_result", Category::Captcha, "Page.frameNavigated");
        event.put("captcha_type", captcha.kind);
        event.put("status", status);
        event.put("duration_ms", u64::try_from(captcha.since.elapsed().as_millis()).unwrap_or(u64::MAX));
        event.put_text("error_code", error.unwrap_or_default());
        event.put_text("website_host", &captcha.host);
        event.put_text("website_path", &captcha.path);
        self.buffered.add(event);
    }
}

/// What is around a frame.
struct Around {
    session: String,
    frame: String,
    url: String,
}

/// Which captcha an address shows.
pub(crate) fn kind_of(url: &str) -> Option<&'static str> {
    let (host, path) = place(url);
    let of_host = |name: &str| host.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'));
    let (.., kind) = MAKERS.iter().find(|(name, start, _)| of_host(name) && path.starts_with(start))?;
    // One that shows nothing judges by itself.
    let unseen = *kind == "recaptcha_v2" && url.contains("size=invisible");
    Some(if unseen { "recaptcha_v3" } else { kind })
}

/// Host and path of an address.
fn place(url: &str) -> (String, String) {
    let Some((_, rest)) = url.split_once("://") else { return Default::default() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host
        .rsplit_once(':')
        .map_or(host, |(host, port)| if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { authority });
    (beginning(host, MAX_PLACE).to_ascii_lowercase(), beginning(path, MAX_PLACE).to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::fake_browser::{capture, retained_after};
    use super::*;

    #[tokio::test]
    async fn one_that_no_one_solves_in_time_is_reported_of_once() {
        let (mut capture, buffered) = capture(&[]).await;
        let now = Instant::now();
        let around = || "around".to_owned();
        let open = |until| Captcha {
            kind: "turnstile",
            session: "session".to_owned(),
            around: around(),
            since: now,
            until,
            host: "shop.test".to_owned(),
            path: "/pay".to_owned(),
            context: None,
            requested: false,
        };
        capture.captchas.0.insert("late".to_owned(), open(now));
        capture.captchas.0.insert("early".to_owned(), open(now + TIMEOUT));
        capture.look_at_captchas();
        capture.look_at_captchas();
        let reported = retained_after(&buffered, 0).await;
        let mut data = reported["data"].clone();
        data["duration_ms"] = 0.into();
        let expected = json!({
            "captcha_type": "turnstile", "status": "timeout", "duration_ms": 0, "website_host": "shop.test", "website_path": "/pay",
        });
        assert_eq!((&reported["type"], data), (&json!("captcha_solve_result"), expected));
        // Its page goes away.
        capture.captcha_unframed("around");
        let reported = retained_after(&buffered, 1).await;
        assert_eq!((&reported["seq"], &reported["data"]["status"]), (&json!(2), &json!("abandoned")));
    }

    #[test]
    fn captchas_are_known_by_the_address_of_their_frame() {
        for (url, kind) in [
            ("https://newassets.hcaptcha.com/captcha/v1/abc/static/hcaptcha.html", Some("hcaptcha")),
            ("https://www.google.com/recaptcha/api2/anchor?ar=1&size=normal", Some("recaptcha_v2")),
            ("https://www.google.com/recaptcha/enterprise/anchor?size=invisible", Some("recaptcha_v3")),
            ("https://www.recaptcha.net/recaptcha/api2/bframe", Some("recaptcha_v2")),
            ("https://challenges.cloudflare.com/cdn-cgi/challenge-platform/h/b/turnstile", Some("turnstile")),
            ("https://geo.captcha-delivery.com/captcha/?x", Some("other")),
            ("https://www.google.com/maps", None),
            ("https://evilhcaptcha.com/captcha/", None),
            ("https://x.test/?https://hcaptcha.com/captcha/", None),
            ("about:blank", None),
        ] {
            assert_eq!(kind_of(url), kind, "{url}");
        }
    }

    #[test]
    fn a_place_has_no_query_no_port_and_unknown_name() {
        let place = |url| place(url);
        assert_eq!(place("https://u:p@Shop.test:8443/a/b?secret#x"), ("shop.test".to_owned(), "/a/b".to_owned()));
        assert_eq!(place("http://[::1]/"), ("[::1]".to_owned(), "/".to_owned()));
        assert_eq!(place("http://x.test?q"), ("x.test".to_owned(), "/".to_owned()));
    }
}
