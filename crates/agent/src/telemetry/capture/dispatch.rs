//! Dispatches the browser's messages to the parts of the capture.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Capture, PendingQuery};
use crate::telemetry::event::monitor;
use crate::telemetry::redactor::RedactedMessage;

/// A message of the browser.
#[derive(Deserialize)]
struct Incoming<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, rename = "sessionId")]
    session: Option<Cow<'a, str>>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

impl Capture {
    pub(super) fn handle(&mut self, message: &RedactedMessage) {
        if message.is_lost {
            self.lose();
            return;
        }
        let Ok(incoming) = serde_json::from_slice::<Incoming<'_>>(&message.text) else {
            tracing::debug!("cannot parse a message of the browser");
            self.lose();
            return;
        };
        if let Some(id) = incoming.id {
            self.handle_reply(id, incoming.result);
        } else if let (Some(method), Some(params)) = (incoming.method, incoming.params) {
            self.handle_notice(incoming.session.as_deref(), &method, params, message.is_truncated);
        }
    }

    /// Parses the parameters of a message. A failure counts as a loss.
    pub(in crate::telemetry) fn read<'a, T: Deserialize<'a>>(&mut self, params: &'a RawValue) -> Option<T> {
        let parsed = serde_json::from_str(params.get());
        if let Err(error) = &parsed {
            tracing::debug!(%error, "cannot parse the parameters of a message of the browser");
            self.lose();
        }
        parsed.ok()
    }

    pub(super) fn handle_reply(&mut self, id: u64, result: Option<&RawValue>) {
        self.pending_setup.remove(&id);
        match (self.pending.remove(&id).map(|(_, query)| query), result) {
            (Some(PendingQuery::AutoAttach), Some(_)) => self.is_attached = true,
            (Some(PendingQuery::AutoAttach), None) => self.report_attach_failure(),
            (Some(PendingQuery::FrameTree { session }), Some(result)) => self.add_frame_tree(&session, result),
            (Some(PendingQuery::ResponseBody { session, id, request }), result) => {
                self.report_with_body(&session, &id, &request, result)
            }
            (Some(PendingQuery::CaptchaWorld { frame }), result) => self.set_captcha_world(&frame, result),
            (Some(PendingQuery::CaptchaToken { frame }), result) => self.check_captcha_token(&frame, result),
            (Some(PendingQuery::NewDocumentScript { session, stays }), Some(result)) => {
                self.add_script(&session, stays, result)
            }
            (
                Some(PendingQuery::FrameTree { .. } | PendingQuery::NewDocumentScript { .. } | PendingQuery::CatchUp)
                | None,
                _,
            ) => {}
        }
    }

    /// Reports that the browser refused to attach.
    fn report_attach_failure(&self) {
        if self.categories.monitor() {
            self.events.add(monitor("monitor_init_failed").with("step", "Target.setAutoAttach"));
        }
    }

    pub(super) fn handle_notice(&mut self, session: Option<&str>, method: &str, params: &RawValue, is_truncated: bool) {
        match method {
            "Target.attachedToTarget" => self.attached(session, params),
            "Target.detachedFromTarget" => self.detached(params),
            "Target.targetCrashed" => self.process_crashed(),
            "Inspector.targetCrashed" => self.page_crashed(session.unwrap_or_default()),
            _ => {}
        }
        let Some(session) = session else { return };
        match method {
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" if self.categories.console => {
                let began = std::time::Instant::now();
                match method {
                    "Runtime.consoleAPICalled" => self.console_called(session, params, is_truncated),
                    _ => self.exception_thrown(session, params, is_truncated),
                }
                self.console_throttle.record(began);
            }
            "Runtime.executionContextCreated" => self.add_context(session, params),
            "Runtime.executionContextDestroyed" => self.remove_context(session, params),
            "Runtime.executionContextsCleared" => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.contexts.clear();
                }
            }
            "Runtime.bindingCalled" if self.categories.interaction => {
                self.report_interaction(session, params, is_truncated)
            }
            "Network.requestWillBeSent" if self.categories.network => self.request_sent(session, params, is_truncated),
            "Network.responseReceived" if self.categories.network => self.response_received(params),
            "Network.dataReceived" if self.categories.network => self.data_received(params),
            "Network.loadingFinished" if self.categories.network => self.loading_finished(session, params),
            "Network.loadingFailed" if self.categories.network => self.loading_failed(session, params, is_truncated),
            "Page.frameNavigated" => self.frame_navigated(session, params, is_truncated),
            "Page.navigatedWithinDocument" => self.navigated_within_document(session, params),
            "Page.frameDetached" => self.frame_detached(session, params),
            "Page.domContentEventFired" | "Page.loadEventFired" => self.page_loaded(session, method, params),
            "PerformanceTimeline.timelineEventAdded" if self.categories.page => {
                self.rendered(session, params, is_truncated)
            }
            _ => {}
        }
    }
}
