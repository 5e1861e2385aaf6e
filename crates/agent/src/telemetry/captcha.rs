//! Captchas that pages show, and their results.
//!
//! A captcha is a frame of a provider. It is solved when the field with its proof is filled in; only whether this field
//! is empty is read, and only while a captcha is open.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::capture::{Capture, PendingQuery, Timer};
use super::event::Event;
use super::open_captchas::{Captcha, kind_of, place};
use super::session::TreeFrame;
use casement_agent_protocol::telemetry::Category;

/// The maximum number of open captchas.
const MAX_COUNT: usize = 50;
/// The interval of the checks of open captchas.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);
/// The timeout of a captcha.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The isolated world of the check.
const WORLD: &str = "casement-captcha";
/// Checks whether a field with the proof is filled in.
const SOLVED: &str = "[...document.querySelectorAll('\
    [name=g-recaptcha-response],[name=h-captcha-response],[name=cf-turnstile-response],[name=geetest_validate],\
    [name=fc-token],[name=frc-captcha-solution],[name=smart-token],[name=mtcaptcha-verifiedtoken]')]\
    .some(field => typeof field.value === 'string' && field.value !== '')";

impl Capture {
    /// Tracks the captcha in a frame that has navigated, and ends the previous one.
    pub(super) fn track_captcha(&mut self, session: &str, frame: &TreeFrame) {
        if let Some(captcha) = self.captchas.0.get(&frame.id) {
            if frame.unreachable_url.is_some() {
                self.end_captcha(&frame.id, "failure", Some("frame_not_loaded"));
            } else if kind_of(&frame.url) != Some(captcha.kind) {
                self.end_captcha(&frame.id, "abandoned", None);
            }
        }
        // The captchas in the frame's previous document have ended.
        self.abandon_captchas(|_, captcha| captcha.parent == frame.id);
        let url = frame.unreachable_url.as_deref().unwrap_or(&frame.url);
        let (Some(kind), Some(parent)) = (kind_of(url), self.parent_of(session, frame)) else { return };
        // A provider may show several frames for one captcha.
        let known = self.captchas.0.values().any(|one| one.kind == kind && one.parent == parent.frame);
        if known || self.captchas.0.contains_key(&frame.id) {
            return;
        }
        if self.captchas.0.len() >= MAX_COUNT {
            return self.lose();
        }
        let (host, path) = place(&parent.url);
        let captcha = Captcha {
            kind,
            session: parent.session,
            parent: parent.frame,
            opened_at: Instant::now(),
            deadline: Instant::now() + TIMEOUT,
            host,
            path,
            context: None,
            is_pending: false,
        };
        if self.captchas.0.is_empty() {
            self.timers.set(Instant::now() + CHECK_INTERVAL, Timer::Captchas);
        }
        self.captchas.0.insert(frame.id.clone(), captcha);
        if frame.unreachable_url.is_some() {
            self.end_captcha(&frame.id, "failure", Some("frame_not_loaded"));
        }
    }

    /// Returns the frame that contains another, in any session.
    fn parent_of(&self, session: &str, frame: &TreeFrame) -> Option<ParentFrame> {
        let parent = match &frame.parent_id {
            Some(parent) => parent.clone(),
            // A frame in a process of its own does not always report its parent.
            None => self.sessions.get(session).filter(|one| one.id != one.root)?.parent_frame.clone()?,
        };
        let holds = |one: &&super::session::Session| one.frame(&parent).is_some() || one.target == parent;
        let holder = self.sessions.0.values().find(holds)?;
        let url = holder.frame(&parent).map_or(&holder.url, |known| &known.url).clone();
        Some(ParentFrame { session: holder.id.clone(), frame: parent, url })
    }

    /// Ends the captchas of a removed frame.
    pub(super) fn end_captcha_of_frame(&mut self, frame: &str) {
        self.end_captcha(frame, "abandoned", None);
        self.abandon_captchas(|_, captcha| captcha.parent == frame);
    }

    /// Ends the captchas of a session.
    pub(super) fn end_captchas_of_session(&mut self, session: &str) {
        let target = self.sessions.get(session).map(|session| session.target.clone());
        self.abandon_captchas(|frame, captcha| captcha.session == session || target.as_deref() == Some(frame));
    }

    /// Ends all captchas.
    pub(super) fn end_all_captchas(&mut self) {
        self.abandon_captchas(|_, _| true);
    }

    fn abandon_captchas(&mut self, matches: impl Fn(&str, &Captcha) -> bool) {
        let abandoned = self.captchas.frames(matches);
        abandoned.iter().for_each(|frame| self.end_captcha(frame, "abandoned", None));
    }

    /// Checks which captchas are solved.
    pub(super) fn check_captchas(&mut self) {
        let late = self.captchas.frames(|_, captcha| captcha.deadline <= Instant::now());
        late.iter().for_each(|frame| self.end_captcha(frame, "timeout", None));
        let open: Vec<(String, String, String, Option<i64>)> = self
            .captchas
            .0
            .iter_mut()
            .filter(|(_, one)| !one.is_pending)
            .map(|(frame, one)| {
                one.is_pending = true;
                (frame.clone(), one.session.clone(), one.parent.clone(), one.context)
            })
            .collect();
        for (frame, session, around, context) in open {
            match context {
                None => {
                    let world = json!({ "frameId": around, "worldName": WORLD });
                    self.ask(Some(&session), "Page.createIsolatedWorld", world, PendingQuery::CaptchaWorld { frame });
                }
                Some(context) => {
                    let check = json!({
                        "expression": SOLVED, "contextId": context, "returnByValue": true, "silent": true, "timeout": 100,
                    });
                    self.ask(Some(&session), "Runtime.evaluate", check, PendingQuery::CaptchaToken { frame });
                }
            }
        }
        if !self.captchas.0.is_empty() {
            self.timers.set(Instant::now() + CHECK_INTERVAL, Timer::Captchas);
        }
    }

    /// Handles the reply of `Page.createIsolatedWorld`.
    pub(super) fn set_captcha_world(&mut self, frame: &str, result: Option<&RawValue>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct World {
            execution_context_id: i64,
        }
        let Some(captcha) = self.captchas.0.get_mut(frame) else { return };
        captcha.is_pending = false;
        let world = result.and_then(|result| serde_json::from_str::<World>(result.get()).ok());
        captcha.context = world.map(|world| world.execution_context_id);
    }

    /// Handles the reply of `Runtime.evaluate`.
    pub(super) fn check_captcha_token(&mut self, frame: &str, result: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Evaluation {
            result: RemoteValue,
        }
        #[derive(Deserialize)]
        struct RemoteValue {
            #[serde(default)]
            value: serde_json::Value,
        }
        let Some(captcha) = self.captchas.0.get_mut(frame) else { return };
        captcha.is_pending = false;
        match result.and_then(|result| serde_json::from_str::<Evaluation>(result.get()).ok()) {
            Some(evaluation) if evaluation.result.value == true => self.end_captcha(frame, "success", None),
            Some(_) => {}
            None => captcha.context = None,
        }
    }

    fn end_captcha(&mut self, frame: &str, status: &str, error: Option<&str>) {
        let Some(captcha) = self.captchas.0.remove(frame) else { return };
        let mut event = Event::from_browser("captcha_solve_result", Category::Captcha, "Page.frameNavigated");
        event.put("captcha_type", captcha.kind);
        event.put("status", status);
        event.put("duration_ms", u64::try_from(captcha.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX));
        event.put_text("error_code", error.unwrap_or_default());
        event.put_text("website_host", &captcha.host);
        event.put_text("website_path", &captcha.path);
        self.events.add(event);
    }
}

/// The frame that contains another one.
struct ParentFrame {
    session: String,
    frame: String,
    url: String,
}

#[cfg(test)]
mod tests {
    use super::super::fake_browser::{capture, event_after};
    use super::*;

    #[tokio::test]
    async fn the_timeout_of_a_captcha_is_reported_once() {
        let (mut capture, events) = capture(&[]).await;
        let now = Instant::now();
        let parent = || "around".to_owned();
        let open = |deadline| Captcha {
            kind: "turnstile",
            session: "session".to_owned(),
            parent: parent(),
            opened_at: now,
            deadline,
            host: "shop.test".to_owned(),
            path: "/pay".to_owned(),
            context: None,
            is_pending: false,
        };
        capture.captchas.0.insert("late".to_owned(), open(now));
        capture.captchas.0.insert("early".to_owned(), open(now + TIMEOUT));
        capture.check_captchas();
        capture.check_captchas();
        let event = event_after(&events, 0).await;
        let mut data = event["data"].clone();
        data["duration_ms"] = 0.into();
        let expected = json!({
            "captcha_type": "turnstile", "status": "timeout", "duration_ms": 0, "website_host": "shop.test", "website_path": "/pay",
        });
        assert_eq!((&event["type"], data), (&json!("captcha_solve_result"), expected));
        // The frame that contains the captcha is removed.
        capture.end_captcha_of_frame("around");
        let event = event_after(&events, 1).await;
        assert_eq!((&event["seq"], &event["data"]["status"]), (&json!(2), &json!("abandoned")));
    }
}
