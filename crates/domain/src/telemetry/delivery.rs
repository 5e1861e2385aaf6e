//! The delivery of captured events: stored, exported to a destination, or both.

use super::{Capture, ConfigRequest};
use crate::field::{FieldCode, InvalidValue};
use crate::ids::TelemetryDestinationId;
use crate::reference::Reference;

/// The fields in errors, below `telemetry`.
const OTLP: &str = "export.otlp";
const DESTINATION: &str = "export.otlp.destination";
const STORAGE: &str = "storage.enabled";

/// The delivery of a session's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The destination to which the events are exported.
    pub destination: Option<TelemetryDestinationId>,
    /// Whether the events are stored. If not, they have a destination.
    pub stored: bool,
}

impl Default for Delivery {
    fn default() -> Self {
        Self { destination: None, stored: true }
    }
}

/// The unchecked request for an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportRequest {
    /// Whether the events are exported. Default: true with a destination.
    pub enabled: Option<bool>,
    /// The requested destination.
    pub destination: Option<Reference>,
    /// The destination that was found; see [`choose`](crate::telemetry_destination::choose).
    pub found: Option<TelemetryDestinationId>,
    /// Why the caller may not use it.
    pub refused: Option<InvalidValue>,
}

impl ExportRequest {
    /// Returns the destination after a change of `current`.
    fn apply(&self, current: Option<TelemetryDestinationId>) -> Result<Option<TelemetryDestinationId>, InvalidValue> {
        let refuse = |code, rule: &str, field| Err(InvalidValue::new(code, rule).of(field));
        match (self.enabled, &self.destination) {
            (Some(false), Some(_)) => {
                refuse(FieldCode::MutuallyExclusive, "cannot be off and name a destination", OTLP)
            }
            (Some(false), None) => Ok(None),
            (None, None) => Ok(current),
            (Some(true), None) if current.is_some() => Ok(current),
            (Some(true), None) => refuse(FieldCode::Required, "is required", DESTINATION),
            (_, Some(requested)) => {
                let which = requested.parse().map_err(|bad| bad.of(DESTINATION))?;
                match (self.found, &self.refused) {
                    (_, Some(refused)) => Err(refused.clone().of(DESTINATION)),
                    (Some(found), None) => Ok(Some(found)),
                    (None, None) => {
                        let shown: String = which.chars().take(64).collect();
                        let rule = format!("{shown} is not among the organization's telemetry destinations");
                        refuse(FieldCode::ReferenceNotFound, &rule, DESTINATION)
                    }
                }
            }
        }
    }
}

/// Returns the capture with the delivery that a request sets; `current` is the delivery before.
pub(super) fn delivered(
    request: &ConfigRequest,
    captured: Option<Capture>,
    current: Option<Delivery>,
) -> Result<Option<Capture>, InvalidValue> {
    let before = current.unwrap_or_default();
    let destination = request.export.apply(before.destination)?;
    let Some(captured) = captured else {
        let named = match (&request.export.destination, request.stored) {
            (Some(_), _) => DESTINATION,
            (None, Some(false)) => STORAGE,
            (None, _) => return Ok(None),
        };
        return Err(InvalidValue::new(FieldCode::Required, "needs a capture: set enabled or categories").of(named));
    };
    let stored = request.stored.unwrap_or(before.stored);
    if !stored && destination.is_none() {
        let rule = "is required while the events are not stored";
        return Err(InvalidValue::new(FieldCode::Required, rule).of(DESTINATION));
    }
    Ok(Some(captured.delivered(Delivery { destination, stored })))
}

/// Checks a change of the capture of a running session, whose storage is decided when its capture begins.
///
/// # Errors
/// `not_allowed` if the change would begin or end the storage of events.
pub fn check_storage_unchanged(current: Option<&Capture>, next: Option<&Capture>) -> Result<(), InvalidValue> {
    match (current, next) {
        (Some(current), Some(next)) if current.delivery().stored != next.delivery().stored => {
            let rule = "cannot be changed while a session is captured";
            Err(InvalidValue::new(FieldCode::NotAllowed, rule).of(STORAGE))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;
    use crate::telemetry::{Category, check_change, on_change, on_create};

    fn id(number: u128) -> TelemetryDestinationId {
        TelemetryDestinationId::from_ulid(Ulid(number))
    }

    fn to(found: Option<TelemetryDestinationId>) -> ExportRequest {
        let destination = Some(Reference { name: Some("grafana".to_owned()), id: None });
        ExportRequest { enabled: None, destination, found, refused: None }
    }

    fn on(export: ExportRequest, stored: Option<bool>) -> ConfigRequest {
        ConfigRequest { enabled: Some(true), stored, export, ..ConfigRequest::default() }
    }

    fn delivery(request: &ConfigRequest, current: Option<&Capture>) -> Delivery {
        on_change(Some(request), current).expect("valid").expect("on").delivery()
    }

    #[test]
    fn events_are_stored_exported_or_both() {
        let both = on(to(Some(id(1))), None);
        assert_eq!(delivery(&both, None), Delivery { destination: Some(id(1)), stored: true });
        let exported = on(to(Some(id(1))), Some(false));
        assert_eq!(delivery(&exported, None), Delivery { destination: Some(id(1)), stored: false });
        assert_eq!(delivery(&on(ExportRequest::default(), None), None), Delivery::default());
        assert_eq!(delivery(&on(ExportRequest::default(), Some(true)), None), Delivery::default());
    }

    #[test]
    fn a_change_keeps_the_destination_that_it_does_not_name() {
        let current = Capture::only([Category::Page])
            .map(|capture| capture.delivered(Delivery { destination: Some(id(1)), stored: true }));
        let categories = ConfigRequest {
            browser: Some([(Category::Console, true)].into_iter().collect()),
            ..ConfigRequest::default()
        };
        assert_eq!(delivery(&categories, current.as_ref()).destination, Some(id(1)));
        let again = ExportRequest { enabled: Some(true), ..ExportRequest::default() };
        assert_eq!(delivery(&on(again, None), current.as_ref()).destination, Some(id(1)));
        let other = ConfigRequest { export: to(Some(id(2))), ..ConfigRequest::default() };
        let changed = on_change(Some(&other), current.as_ref()).expect("valid").expect("on");
        assert!(changed.includes(Category::Page) && changed.delivery().destination == Some(id(2)));
        let off = ExportRequest { enabled: Some(false), ..ExportRequest::default() };
        assert_eq!(delivery(&on(off, None), current.as_ref()).destination, None);
        let nothing = ConfigRequest { enabled: Some(false), ..ConfigRequest::default() };
        assert_eq!(on_change(Some(&nothing), current.as_ref()), Ok(None));
    }

    #[test]
    fn what_cannot_be_delivered_is_refused_with_its_field() {
        let off_but_named = ExportRequest { enabled: Some(false), ..to(Some(id(1))) };
        let without_destination = ExportRequest { enabled: Some(true), ..ExportRequest::default() };
        let both = Some(Reference { id: Some("x".to_owned()), name: Some("y".to_owned()) });
        let empty = Some(Reference::default());
        let not_captured = |export, stored| ConfigRequest { export, stored, ..ConfigRequest::default() };
        for (request, code, field) in [
            (on(off_but_named, None), FieldCode::MutuallyExclusive, OTLP),
            (on(without_destination, None), FieldCode::Required, DESTINATION),
            (on(to(None), None), FieldCode::ReferenceNotFound, DESTINATION),
            (on(ExportRequest { destination: both, ..to(None) }, None), FieldCode::MutuallyExclusive, DESTINATION),
            (on(ExportRequest { destination: empty, ..to(None) }, None), FieldCode::Required, DESTINATION),
            (on(ExportRequest::default(), Some(false)), FieldCode::Required, DESTINATION),
            (not_captured(to(Some(id(1))), None), FieldCode::Required, DESTINATION),
            (not_captured(ExportRequest::default(), Some(false)), FieldCode::Required, STORAGE),
        ] {
            let refused = on_create(Some(&request)).expect_err(field).at("telemetry");
            assert_eq!((refused.code, refused.field), (code, format!("telemetry.{field}")), "{request:?}");
        }
    }

    #[test]
    fn a_change_is_refused_early_only_if_no_current_capture_allows_it() {
        let again = ExportRequest { enabled: Some(true), ..ExportRequest::default() };
        for allowed in [
            ConfigRequest { export: again, ..ConfigRequest::default() },
            ConfigRequest { export: to(Some(id(1))), ..ConfigRequest::default() },
            ConfigRequest { stored: Some(false), ..ConfigRequest::default() },
        ] {
            assert_eq!(check_change(Some(&allowed)), Ok(()), "{allowed:?}");
        }
        let unknown = ConfigRequest { export: to(None), ..ConfigRequest::default() };
        let off = ConfigRequest { enabled: Some(false), export: to(Some(id(1))), ..ConfigRequest::default() };
        for refused in [unknown, off] {
            assert!(check_change(Some(&refused)).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn the_storage_of_a_captured_session_does_not_change() {
        let capture = |stored| {
            let delivery = Delivery { destination: Some(id(1)), stored };
            Capture::only([Category::Page]).map(|capture| capture.delivered(delivery))
        };
        let refused = check_storage_unchanged(capture(true).as_ref(), capture(false).as_ref()).expect_err("changed");
        assert_eq!(refused.at("telemetry").field, "telemetry.storage.enabled");
        for (before, after) in [(capture(false), capture(false)), (None, capture(false)), (capture(false), None)] {
            assert_eq!(check_storage_unchanged(before.as_ref(), after.as_ref()), Ok(()));
        }
    }
}
