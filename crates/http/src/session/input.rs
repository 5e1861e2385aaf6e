//! What callers send about sessions.

use std::collections::BTreeMap;

use casement_domain::{
    extension::ExtensionRef,
    field::{FieldCode, Fields, InvalidValue},
    profile::{ProfileRef, ProfileRequest},
    session::{self, CreateSession, Refusal, UpdateSession},
    telemetry::{Category, ConfigRequest},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{error::ApiError, json::nullable};

/// A session to create. Every field is optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateBrowser {
    /// Without a display. Default: false.
    pub(crate) headless: Option<bool>,
    /// Hides what tells an automated browser from a person's. Default: false.
    pub(crate) stealth: Option<bool>,
    /// Needs `headless: false` and an installation with a GPU. Default: false.
    pub(crate) gpu: Option<bool>,
    /// The page alone on the display, headful only. Default: false.
    pub(crate) kiosk_mode: Option<bool>,
    /// 1 to 255 characters, unique among the project's active sessions.
    pub(crate) name: Option<String>,
    /// How long it may be idle, 10 to 259200. Default: 60.
    pub(crate) timeout_seconds: Option<i64>,
    /// State to load.
    pub(crate) profile: Option<Profile>,
    /// A proxy of the project, by id or name.
    pub(crate) proxy_id: Option<String>,
    /// Extensions of the project, loaded in this order.
    pub(crate) extensions: Option<Vec<Reference>>,
    /// Size of the display. Default: 1920 × 1080.
    pub(crate) viewport: Option<ViewportInput>,
    /// Chrome policies by name, at most 5 MiB of JSON.
    pub(crate) browser_policy: Option<Map<String, Value>>,
    /// Another name of `browser_policy`.
    pub(crate) chrome_policy: Option<Map<String, Value>>,
    /// An absolute URL to open first; its navigation is not waited for.
    pub(crate) start_url: Option<String>,
    /// At most 50 pairs: keys of 1 to 128, values of up to 256 characters.
    pub(crate) tags: Option<BTreeMap<String, String>>,
    /// What is captured. Default: nothing.
    pub(crate) telemetry: Option<Telemetry>,
    /// An invocation of the project that the session belongs to.
    pub(crate) invocation_id: Option<String>,
}

/// Something of the project, by exactly one of both.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Reference {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
}

impl From<Reference> for ProfileRef {
    fn from(Reference { id, name }: Reference) -> Self {
        Self { id, name }
    }
}

impl From<Reference> for ExtensionRef {
    fn from(Reference { id, name }: Reference) -> Self {
        Self { id, name }
    }
}

/// The wish, unless fields were refused on the way to it. Then the answer names those that `parse`, the domain's own
/// look at the wish, refuses as well.
///
/// # Errors
/// `invalid_input`.
pub(crate) fn checked<W: Clone, T>(
    wish: W,
    fields: Fields,
    parse: impl FnOnce(W) -> Result<T, Refusal>,
) -> Result<W, ApiError> {
    let Err(ours) = fields.finish() else { return Ok(wish) };
    let theirs = match parse(wish) {
        Err(Refusal::Invalid(theirs)) => theirs.fields().to_vec(),
        Err(Refusal::NotSupported(_)) | Ok(_) => Vec::new(),
    };
    let mut all = Fields::new();
    for error in theirs.into_iter().chain(ours.fields().iter().cloned()) {
        all.refuse(&error.field, InvalidValue::new(error.code, error.message));
    }
    Err(all.finish().err().unwrap_or(ours).into())
}

/// A profile to load, by id or name.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ProfileReference)]
pub(crate) struct Profile {
    id: Option<String>,
    name: Option<String>,
    /// Whether what the session leaves is saved when it ends. Default: false.
    save_changes: Option<bool>,
}

impl From<Profile> for ProfileRequest {
    fn from(Profile { id, name, save_changes }: Profile) -> Self {
        Self { which: ProfileRef { id, name }, save_changes: save_changes.unwrap_or(false) }
    }
}

/// Size of the display in pixels.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ViewportInput {
    /// 1 to 16384. Required.
    #[schema(required, nullable = false)]
    width: Option<i64>,
    /// 1 to 16384. Required.
    #[schema(required, nullable = false)]
    height: Option<i64>,
    /// 1 to 1000, in hertz. Default: by the area.
    refresh_rate: Option<i64>,
    /// On update: whether the size may change while somebody watches. Default: false.
    force: Option<bool>,
}

impl From<ViewportInput> for session::ViewportInput {
    fn from(input: ViewportInput) -> Self {
        Self { width: input.width, height: input.height, refresh_rate: input.refresh_rate }
    }
}

/// What is captured of a session.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Telemetry {
    /// The whole, on or off.
    enabled: Option<bool>,
    /// Single categories: `console`, `page`, `interaction`, `network`, `control`, `connection`, `system`, `screenshot`,
    /// `captcha`.
    #[schema(value_type = Option<BTreeMap<String, Toggle>>)]
    browser: Option<BTreeMap<String, Option<Toggle>>>,
}

/// On or off.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct Toggle {
    enabled: Option<bool>,
}

/// What is to be captured; a category that there is not is refused.
pub(crate) fn wish(telemetry: Option<Telemetry>, fields: &mut Fields) -> Option<ConfigRequest> {
    let Telemetry { enabled, browser } = telemetry?;
    let browser = browser.map(|map| map.into_iter().filter_map(|named| category(named, fields)).collect());
    Some(ConfigRequest { enabled, browser })
}

fn category((name, toggle): (String, Option<Toggle>), fields: &mut Fields) -> Option<(Category, bool)> {
    let Some(category) = Category::parse(&name) else {
        let known = Category::ALL.map(Category::as_str).join(", ");
        let shown: String = name.chars().take(64).collect();
        fields.refuse(
            "telemetry.browser",
            InvalidValue::new(FieldCode::NotAllowed, format!("is not one of {known}")).of(shown),
        );
        return None;
    };
    Some((category, toggle?.enabled?))
}

/// The policy under either name; both are refused if they differ.
pub(crate) fn policy(
    browser_policy: Option<Map<String, Value>>,
    chrome_policy: Option<Map<String, Value>>,
    fields: &mut Fields,
) -> Option<Map<String, Value>> {
    match (browser_policy, chrome_policy) {
        (Some(one), Some(other)) if one != other => {
            let message = "is another name of browser_policy and differs from it";
            fields.refuse("chrome_policy", InvalidValue::new(FieldCode::MutuallyExclusive, message));
            Some(one)
        }
        (one, other) => one.or(other),
    }
}

impl CreateBrowser {
    /// # Errors
    /// `invalid_input`, if anything is refused that the domain has no word for.
    pub(crate) fn wish(self) -> Result<CreateSession, ApiError> {
        let mut fields = Fields::new();
        let wish = CreateSession {
            headless: self.headless,
            stealth: self.stealth,
            gpu: self.gpu,
            kiosk_mode: self.kiosk_mode,
            name: self.name,
            timeout_seconds: self.timeout_seconds,
            viewport: self.viewport.map(Into::into),
            browser_policy: policy(self.browser_policy, self.chrome_policy, &mut fields),
            start_url: self.start_url,
            tags: self.tags,
            telemetry: wish(self.telemetry, &mut fields),
            profile: self.profile.map(Into::into),
            proxy: self.proxy_id,
            extensions: self.extensions.unwrap_or_default().into_iter().map(Into::into).collect(),
            invocation: self.invocation_id,
        };
        checked(wish, fields, CreateSession::parse)
    }
}

/// Changes of a session; what is absent stays as it is.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct UpdateBrowser {
    /// `""` or null clears.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    name: Option<Option<String>>,
    /// Replaces all of them; `{}` clears.
    tags: Option<BTreeMap<String, String>>,
    /// What is captured.
    telemetry: Option<Telemetry>,
    /// A proxy of the project, by id or name, for connections from now on; `""` or null takes it away.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    proxy_id: Option<Option<String>>,
    /// Whether a stealth session goes out directly, not by the installation's proxy.
    #[expect(dead_code, reason = "only its type is checked: there is no such proxy, so every session goes directly")]
    disable_default_proxy: Option<bool>,
    /// State to load, if none is loaded yet.
    profile: Option<Profile>,
    /// Another size.
    viewport: Option<ViewportInput>,
}

impl UpdateBrowser {
    /// # Errors
    /// `invalid_input`, if anything is refused that the domain has no word for.
    pub(crate) fn wish(self) -> Result<UpdateSession, ApiError> {
        let mut fields = Fields::new();
        let wish = UpdateSession {
            name: self.name,
            tags: self.tags,
            force_viewport: self.viewport.and_then(|viewport| viewport.force).unwrap_or(false),
            viewport: self.viewport.map(Into::into),
            telemetry: wish(self.telemetry, &mut fields),
            profile: self.profile.map(Into::into),
            proxy: self.proxy_id,
        };
        checked(wish, fields, UpdateSession::parse)
    }
}
