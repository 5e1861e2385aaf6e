//! What a client asks of the browser that it connects to, whatever the form in which it asks.

use std::collections::BTreeMap;

use casement_domain::session::Sessions;
use casement_domain::{
    engine::Engines,
    field::FieldCode,
    pool::AcquireRequest,
    profile::ProfileRequest,
    reference::Reference,
    session::{Refusal, SessionRequest, ViewportRequest},
};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The options of a browser. An absent one has the default of sessions, or of the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct BrowserOptions {
    /// The pool that the browser is leased from, by id or name; `None`: a session on demand.
    pub(crate) pool: Option<String>,
    /// The longest wait for a browser of the pool.
    pub(crate) acquire_timeout_seconds: Option<i64>,
    /// The engine, by its name.
    pub(crate) engine: Option<String>,
    pub(crate) headless: Option<bool>,
    pub(crate) stealth: Option<bool>,
    pub(crate) kiosk_mode: Option<bool>,
    pub(crate) viewport: Option<ViewportRequest>,
    pub(crate) timeout_seconds: Option<i64>,
    /// The profile, by id or name.
    pub(crate) profile: Option<String>,
    /// Whether the state of the session is saved to the profile.
    pub(crate) save_changes: Option<bool>,
    /// The proxy, by id or name.
    pub(crate) proxy: Option<String>,
    /// Extensions, by id or name.
    pub(crate) extensions: Vec<String>,
    pub(crate) name: Option<String>,
    pub(crate) start_url: Option<String>,
    pub(crate) tags: Option<BTreeMap<String, String>>,
    /// The W3C capabilities of a WebDriver client, which an engine of a WebDriver server uses at the start.
    pub(crate) capabilities: Map<String, Value>,
}

/// How the browser is had.
pub(crate) enum Source {
    /// By a new session.
    New(Box<SessionRequest>),
    /// By a lease of this pool.
    Pool(String, Box<AcquireRequest>),
}

impl BrowserOptions {
    /// Returns the places of a new session; `None` for a lease of a pool.
    pub(crate) fn places(&self, sessions: &Sessions) -> Option<u32> {
        self.pool.is_none().then(|| sessions.places(None))
    }

    /// Returns the request for the browser.
    ///
    /// # Errors
    /// `invalid_input`: options that exclude each other, or values that break a rule; `not_supported`.
    pub(crate) fn into_source(self, engines: &dyn Engines) -> Result<Source, ApiError> {
        if let Some(pool) = self.pool.clone() {
            return self.into_lease(pool);
        }
        if self.acquire_timeout_seconds.is_some() {
            return Err(excluded("acquire_timeout_seconds", "is for a pool only"));
        }
        if self.save_changes.is_some() && self.profile.is_none() {
            return Err(excluded("save_changes", "is for a profile only"));
        }
        let profile = self.profile.as_deref().map(|which| ProfileRequest {
            which: Reference::id_or_name(which),
            save_changes: self.save_changes.unwrap_or(false),
        });
        let request = SessionRequest {
            engine: self.engine,
            headless: self.headless,
            stealth: self.stealth,
            kiosk_mode: self.kiosk_mode,
            viewport: self.viewport,
            timeout_seconds: self.timeout_seconds,
            profile,
            proxy: self.proxy,
            extensions: self.extensions.iter().map(|which| Reference::id_or_name(which)).collect(),
            name: self.name,
            start_url: self.start_url,
            tags: self.tags,
            capabilities: self.capabilities,
            ..SessionRequest::default()
        };
        request.clone().parse(engines).map_err(|refusal| match refusal {
            Refusal::Invalid(invalid) => ApiError::from(invalid),
            Refusal::NotSupported(unsupported) => unsupported.into(),
        })?;
        Ok(Source::New(Box::new(request)))
    }

    fn into_lease(self, pool: String) -> Result<Source, ApiError> {
        let of_the_pool = [
            ("engine", self.engine.is_some()),
            ("headless", self.headless.is_some()),
            ("stealth", self.stealth.is_some()),
            ("kiosk_mode", self.kiosk_mode.is_some()),
            ("viewport", self.viewport.is_some()),
            ("timeout_seconds", self.timeout_seconds.is_some()),
            ("profile", self.profile.is_some()),
            ("save_changes", self.save_changes.is_some()),
            ("proxy", self.proxy.is_some()),
            ("extensions", !self.extensions.is_empty()),
        ];
        if let Some((name, _)) = of_the_pool.into_iter().find(|(_, given)| *given) {
            return Err(excluded(name, "is decided by the pool: leave it or the pool out"));
        }
        let request = AcquireRequest {
            acquire_timeout_seconds: self.acquire_timeout_seconds,
            name: self.name,
            start_url: self.start_url,
            tags: self.tags,
            ..AcquireRequest::default()
        };
        request.check()?;
        Ok(Source::Pool(pool, Box::new(request)))
    }
}

/// Sets an option that several parameters can set.
///
/// # Errors
/// `invalid_input` if it has another value.
pub(crate) fn set<T: PartialEq>(option: &mut Option<T>, value: T, name: &str) -> Result<(), ApiError> {
    match option {
        Some(present) if *present != value => Err(excluded(name, "contradicts another parameter")),
        _ => {
            *option = Some(value);
            Ok(())
        }
    }
}

fn excluded(name: &str, message: &str) -> ApiError {
    ApiError::field(name, FieldCode::MutuallyExclusive, message)
}

/// Returns the pattern of the texts that [`size`] parses and that are sizes of displays.
#[cfg(any(test, feature = "openapi"))]
pub(crate) fn size_pattern() -> String {
    let white = format!("[{}]*", casement_domain::pattern::WHITE_SPACE);
    let up_to_16384 = "0*([1-9][0-9]{0,3}|1[0-5][0-9]{3}|16[0-2][0-9]{2}|163[0-7][0-9]|1638[0-4])";
    let side = format!(r"{white}\+?{up_to_16384}{white}");
    format!("^{side}[xX,]{side}([xX,]{white}[+-]?[0-9]+{white})?$")
}

/// Parses `WIDTHxHEIGHT` or `WIDTH,HEIGHT`, in pixels. A third number, the depth of colours, is ignored.
///
/// # Errors
/// `invalid_input`.
pub(crate) fn size(name: &str, text: &str) -> Result<ViewportRequest, ApiError> {
    let numbers: Option<Vec<i64>> = text.split(['x', 'X', ',']).map(|number| number.trim().parse().ok()).collect();
    match numbers.as_deref() {
        Some([width, height] | [width, height, _]) => {
            Ok(ViewportRequest { width: Some(*width), height: Some(*height), refresh_rate: None })
        }
        _ => Err(ApiError::field(name, FieldCode::InvalidFormat, "must be WIDTHxHEIGHT in pixels")),
    }
}
