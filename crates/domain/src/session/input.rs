//! The inputs of sessions, unchecked, and their checks.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::browser::{BrowserPolicy, Shape, StartUrl, Viewport};
use crate::extension::references;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::ids::InvocationId;
use crate::name::LabelName;
use crate::profile::ProfileRequest;
use crate::reference::Reference;
use crate::telemetry;

/// The error of a valid request that this installation does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct NotSupported {
    /// The field.
    pub field: &'static str,
    /// The reason.
    pub why: &'static str,
}

/// An unchecked viewport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewportRequest {
    /// In pixels.
    pub width: Option<i64>,
    /// In pixels.
    pub height: Option<i64>,
    /// In hertz.
    pub refresh_rate: Option<i64>,
}

impl ViewportRequest {
    fn parse(self) -> Result<Viewport, InvalidValue> {
        Viewport::parse(self.width, self.height, self.refresh_rate)
    }
}

/// The caller's keys and values: at most 50 pairs; keys of 1 to 128 characters, values of up to 256.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(BTreeMap<String, String>);

impl Tags {
    /// # Errors
    /// Returns the bound that is exceeded, with the key.
    pub fn parse(pairs: BTreeMap<String, String>) -> Result<Self, InvalidValue> {
        if pairs.len() > 50 {
            return Err(InvalidValue::new(FieldCode::TooMany, "must have at most 50 pairs"));
        }
        for (key, value) in &pairs {
            let shown: String = key.chars().take(128).collect();
            if key.is_empty() {
                return Err(InvalidValue::new(FieldCode::TooShort, "a key must have at least 1 character"));
            }
            if key.chars().nth(128).is_some() {
                return Err(InvalidValue::new(FieldCode::TooLong, "a key must have at most 128 characters").of(shown));
            }
            if value.chars().nth(256).is_some() {
                return Err(InvalidValue::new(FieldCode::TooLong, "must have at most 256 characters").of(shown));
            }
            // PostgreSQL's text and terminals cannot hold NUL.
            if key.contains('\0') || value.contains('\0') {
                return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold NUL").of(shown.replace('\0', "")));
            }
        }
        Ok(Self(pairs))
    }

    /// The pairs.
    #[must_use]
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

/// The unchecked request for a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRequest {
    /// Default: false.
    pub headless: Option<bool>,
    /// Default: false.
    pub stealth: Option<bool>,
    /// Default: false.
    pub gpu: Option<bool>,
    /// Default: false.
    pub kiosk_mode: Option<bool>,
    /// Default: none.
    pub name: Option<String>,
    /// Default: 60.
    pub timeout_seconds: Option<i64>,
    /// Default: 1920 × 1080.
    pub viewport: Option<ViewportRequest>,
    /// Default: none.
    pub browser_policy: Option<Map<String, Value>>,
    /// Default: none.
    pub start_url: Option<String>,
    /// Default: none.
    pub tags: Option<BTreeMap<String, String>>,
    /// Default: off.
    pub telemetry: Option<telemetry::ConfigRequest>,
    /// A profile of the project.
    pub profile: Option<ProfileRequest>,
    /// A proxy of the project, by id or name.
    pub proxy: Option<String>,
    /// Extensions of the project, in the order they are loaded.
    pub extensions: Vec<Reference>,
    /// An invocation of the project that has not ended.
    pub invocation: Option<String>,
}

/// The checked request for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// The shape of its browser, without profile, extensions and proxy.
    pub shape: Shape,
    /// Resolved when the session is created.
    pub profile: Option<ProfileRequest>,
    /// Resolved when the session is created.
    pub extensions: Vec<Reference>,
    /// By id or name; resolved when the session is created.
    pub proxy: Option<String>,
    /// See [`Session`](super::Session).
    pub name: Option<LabelName>,
    /// See [`Session`](super::Session).
    pub timeout_seconds: u32,
    /// See [`Session`](super::Session).
    pub start_url: Option<StartUrl>,
    /// See [`Session`](super::Session).
    pub tags: Tags,
    /// See [`Session`](super::Session).
    pub telemetry: Option<telemetry::Capture>,
    /// See [`Session`](super::Session).
    pub invocation: Option<InvocationId>,
    /// See [`Session`](super::Session).
    pub for_login: bool,
}

/// The error of a check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// This installation does not support it.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
}

/// Idle timeout of a session or pool: 10 to 259200 seconds.
///
/// # Errors
/// `out_of_range`.
pub fn timeout_seconds(value: i64) -> Result<u32, InvalidValue> {
    within(value, 10, 259_200)
}

/// The shape that the fields common to sessions and pools ask for; refusals go into `fields`.
pub fn shape(
    fields: &mut Fields,
    (headless, stealth, kiosk_mode): (Option<bool>, Option<bool>, Option<bool>),
    viewport: Option<ViewportRequest>,
    policy: Option<Map<String, Value>>,
) -> Shape {
    let viewport = fields.take_optional("viewport", viewport, ViewportRequest::parse).unwrap_or_default();
    let policy = policy.filter(|map| !map.is_empty());
    Shape {
        headless: headless.unwrap_or(false),
        stealth: stealth.unwrap_or(false),
        kiosk_mode: kiosk_mode.unwrap_or(false),
        viewport,
        policy: fields.take_optional("browser_policy", policy, BrowserPolicy::parse),
        extensions: Vec::new(),
        proxy: None,
        profile: None,
    }
}

/// What this installation cannot do yet; never accepted and ignored.
pub(crate) fn supported(gpu: Option<bool>, requested: &[(&'static str, bool)]) -> Result<(), NotSupported> {
    if gpu == Some(true) {
        return Err(NotSupported { field: "gpu", why: "this installation has no GPU for sessions" });
    }
    for &(field, requested) in requested {
        if requested {
            return Err(NotSupported { field, why: "this installation does not offer it" });
        }
    }
    Ok(())
}

/// The field names no invocation that could have a browser.
pub(crate) fn no_invocation() -> InvalidValue {
    InvalidValue::new(FieldCode::ReferenceNotFound, "names no invocation of the project that has not ended")
}

impl SessionRequest {
    /// # Errors
    /// The fields that break a rule, or what cannot be done here.
    pub fn parse(self) -> Result<NewSession, Refusal> {
        let mut fields = Fields::new();
        if self.gpu == Some(true) && self.headless == Some(true) {
            fields.refuse("gpu", InvalidValue::new(FieldCode::MutuallyExclusive, "needs headless to be false"));
        }
        let name = fields.take_optional("name", self.name, |text| LabelName::parse_in_path(&text));
        let timeout = fields.take_optional("timeout_seconds", self.timeout_seconds, timeout_seconds);
        let shape =
            shape(&mut fields, (self.headless, self.stealth, self.kiosk_mode), self.viewport, self.browser_policy);
        let start_url = fields.take_optional("start_url", self.start_url, |text| StartUrl::parse(&text));
        fields.take_optional("profile", self.profile.as_ref(), |profile| profile.which.parse());
        references(&self.extensions, &mut fields);
        let tags = fields.take_optional("tags", self.tags, Tags::parse);
        let capture = fields.take("telemetry", telemetry::on_create(self.telemetry.as_ref())).flatten();
        let invocation = fields.take_optional("invocation_id", self.invocation, |text| {
            text.parse::<InvocationId>().map_err(|_| no_invocation())
        });
        fields.finish()?;
        supported(self.gpu, &[])?;
        Ok(NewSession {
            shape,
            profile: self.profile,
            extensions: self.extensions,
            proxy: self.proxy,
            name,
            timeout_seconds: timeout.unwrap_or(60),
            start_url,
            tags: tags.unwrap_or_default(),
            telemetry: capture,
            invocation,
            for_login: false,
        })
    }
}

/// Changes of a session as asked for. The outer `None` leaves as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionUpdateRequest {
    /// `Some(None)` and the empty name clear.
    pub name: Option<Option<String>>,
    /// Replaces all of them.
    pub tags: Option<BTreeMap<String, String>>,
    /// Another size.
    pub viewport: Option<ViewportRequest>,
    /// Whether the size may change while somebody watches.
    pub force_viewport: bool,
    /// Telemetry as asked for.
    pub telemetry: Option<telemetry::ConfigRequest>,
    /// A profile of the project, for a session that has none.
    pub profile: Option<ProfileRequest>,
    /// A proxy of the project, by id or name; `Some(None)` and the empty one take it away.
    pub proxy: Option<Option<String>>,
}

/// Changes of a session, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionUpdate {
    /// The new name; `Some(None)` clears.
    pub name: Option<Option<LabelName>>,
    /// The new tags.
    pub tags: Option<Tags>,
    /// The new size, and whether it may change while somebody watches.
    pub viewport: Option<(Viewport, bool)>,
    /// The new proxy, by id or name; `Some(None)` takes it away. It is looked up when the session is changed.
    pub proxy: Option<Option<String>>,
    /// The profile to load. It is looked up when the session is changed.
    pub profile: Option<ProfileRequest>,
    /// What is to be captured, on top of what is.
    pub telemetry: Option<telemetry::ConfigRequest>,
}

impl SessionUpdateRequest {
    /// # Errors
    /// The fields that break a rule, or what cannot be done here.
    pub fn parse(self) -> Result<SessionUpdate, Refusal> {
        let mut fields = Fields::new();
        let name = fields.take_optional("name", self.name, |name| {
            name.filter(|text| !text.is_empty()).map(|text| LabelName::parse_in_path(&text)).transpose()
        });
        let tags = fields.take_optional("tags", self.tags, Tags::parse);
        let viewport = fields.take_optional("viewport", self.viewport, ViewportRequest::parse);
        fields.take_optional("profile", self.profile.as_ref(), |profile| profile.which.parse());
        // What it comes to depends on what is in force; whether it contradicts itself does not.
        fields.take("telemetry", telemetry::on_change(self.telemetry.as_ref(), None));
        fields.finish()?;
        Ok(SessionUpdate {
            name,
            tags,
            viewport: viewport.map(|size| (size, self.force_viewport)),
            proxy: self.proxy.map(|proxy| proxy.filter(|text| !text.is_empty())),
            profile: self.profile,
            telemetry: self.telemetry,
        })
    }
}
