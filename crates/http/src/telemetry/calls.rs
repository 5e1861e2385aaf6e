//! API calls on a session, recorded as its telemetry events.

use std::{collections::HashMap, sync::LazyLock};

use actix_web::{
    HttpMessage as _,
    dev::ServiceRequest,
    http::{Method, StatusCode},
};
use casement_domain::{
    MonotonicTime,
    telemetry::{Category, Event},
};
use time::OffsetDateTime;

use super::session_slot::SessionSlot;
use crate::{resources, state::Services};

/// A call that may belong to a session.
pub(crate) struct Call {
    slot: SessionSlot,
    method: Method,
    started_at: OffsetDateTime,
    started: MonotonicTime,
}

impl Call {
    pub(crate) fn begin(services: &Services, request: &ServiceRequest) -> Self {
        let slot = SessionSlot::default();
        request.extensions_mut().insert(slot.clone());
        Self {
            slot,
            method: request.method().clone(),
            started_at: services.clock.now(),
            started: services.monotonic.monotonic_now(),
        }
    }

    /// Records the telemetry event of a completed call, without waiting until it is stored.
    pub(crate) fn complete(&self, services: &Services, route: &str, status: StatusCode, request: &str) {
        let Some(session) = self.slot.session() else { return };
        if !services.recorder.captures(session, Category::Control) {
            return;
        }
        let Some(operation) = operation(&self.method, route) else { return };
        let elapsed = (services.monotonic.monotonic_now() - self.started).whole_milliseconds();
        let elapsed = u64::try_from(elapsed).unwrap_or(0);
        services.recorder.note(session, Event::api_call(self.started_at, operation, request, status.as_u16(), elapsed));
    }
}

/// Returns the operation's name in the API description. `None` for connections, which have events of their own, and
/// for reads of the web interface.
fn operation(method: &Method, route: &str) -> Option<&'static str> {
    static NAMES: LazyLock<HashMap<(String, String), &'static str>> = LazyLock::new(names);
    let route = match route.strip_prefix("/ui/api") {
        Some(_) if method == Method::GET => return None,
        Some(route) => route,
        None => route,
    };
    let route = route.replacen("/vm/{session_id}/", "/browsers/{id_or_name}/", 1);
    match route.as_str() {
        "/browsers/{id_or_name}/wd/{tail:.*}" | "/wd/hub/session/{id}/{tail:.*}" => Some("webdriver_command"),
        "/connect" | "/connect/webdriver" => None,
        "/browsers/{id_or_name}/curl/raw" => Some("curl_raw"),
        _ => NAMES.get(&(method.as_str().to_owned(), route)).copied(),
    }
}

/// Returns the name of each operation by its method and path.
fn names() -> HashMap<(String, String), &'static str> {
    let operations = resources::operations().all.into_iter();
    operations.map(|operation| ((operation.method.to_string(), operation.path.to_owned()), operation.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_the_same_name_under_both_of_its_paths() {
        for route in ["/browsers/{id_or_name}/computer/screenshot", "/vm/{session_id}/computer/screenshot"] {
            assert_eq!(operation(&Method::POST, route), Some("capture_screenshot"));
        }
        assert_eq!(operation(&Method::PATCH, "/browsers/{id_or_name}"), Some("update_browser"));
        assert_eq!(operation(&Method::GET, "/vm/{session_id}/cdp"), None);
        assert_eq!(operation(&Method::PATCH, "/ui/api/browsers/{id_or_name}"), Some("update_browser"));
        assert_eq!(operation(&Method::GET, "/ui/api/browsers/{id_or_name}"), None);
    }
}
