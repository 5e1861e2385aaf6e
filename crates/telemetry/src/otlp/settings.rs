//! The settings of the export.

use std::collections::HashMap;
use std::fmt;

use casement_domain::telemetry_destination::OpenDestination;
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

/// The path of log records, appended to the collector's URL.
const LOGS_PATH: &str = "v1/logs";
/// The path of spans.
const TRACES_PATH: &str = "v1/traces";

/// The setting that is invalid. Messages contain no secret.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSettings {
    /// The URL is invalid.
    #[error(
        "the address must be an http or https URL with a host, and without a name, a password, a query or a fragment"
    )]
    Endpoint,
    /// The header of this number, counted from 1, is invalid.
    #[error("header {0} must be NAME=VALUE, both as HTTP takes them")]
    Header(usize),
    /// TLS is not usable here.
    #[error("TLS cannot be used here")]
    Tls(#[source] tokio_rustls::rustls::Error),
    /// The exporter rejects the settings.
    #[error("the exporter cannot be built")]
    OtlpExporter(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The destination and the identity of the exporter.
#[derive(Clone)]
pub struct Settings {
    endpoint: Url,
    traces: Url,
    headers: HashMap<String, String>,
    pub(crate) instance: String,
    pub(crate) version: String,
    /// Whether the destination is one of a caller, which gets nothing of the operator's environment.
    pub(crate) of_caller: bool,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("Settings").field("endpoint", &self.endpoint.as_str()).field("headers", &names).finish()
    }
}

impl Settings {
    /// Creates the settings. `endpoint`: the collector's URL, without `/v1/logs`. `headers`: each `NAME=VALUE`.
    /// `instance` and `version`: the identity of the exporter.
    ///
    /// # Errors
    /// [`InvalidSettings::Endpoint`] for an invalid URL, [`InvalidSettings::Header`] for an invalid header.
    pub fn new(
        endpoint: &Url,
        headers: &[SecretString],
        instance: &str,
        version: &str,
    ) -> Result<Self, InvalidSettings> {
        let headers = headers.iter().enumerate().map(|(at, text)| header(text).ok_or(InvalidSettings::Header(at + 1)));
        Ok(Self {
            endpoint: below(endpoint, LOGS_PATH).ok_or(InvalidSettings::Endpoint)?,
            traces: below(endpoint, TRACES_PATH).ok_or(InvalidSettings::Endpoint)?,
            headers: headers.collect::<Result<_, _>>()?,
            instance: instance.to_owned(),
            version: version.to_owned(),
            of_caller: false,
        })
    }

    /// Creates the settings of a destination of a caller, whose headers the transport adds. See [`new`](Self::new).
    pub(crate) fn of_destination(
        destination: &OpenDestination,
        instance: &str,
        version: &str,
    ) -> Result<Self, InvalidSettings> {
        Ok(Self { of_caller: true, ..Self::new(&destination.endpoint, &[], instance, version)? })
    }

    /// Returns the URL for log records.
    pub(crate) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    /// Returns the URL for spans.
    pub(crate) fn traces(&self) -> &Url {
        &self.traces
    }

    pub(crate) fn headers(&self) -> HashMap<String, String> {
        self.headers.clone()
    }
}

/// Returns the URL of a path below that of the collector; `None` if that one is invalid.
fn below(endpoint: &Url, path: &str) -> Option<Url> {
    let spoken = matches!(endpoint.scheme(), "http" | "https") && endpoint.host().is_some();
    let anonymous = endpoint.username().is_empty() && endpoint.password().is_none();
    if !(spoken && anonymous && endpoint.query().is_none() && endpoint.fragment().is_none()) {
        return None;
    }
    let mut url = endpoint.clone();
    url.set_path(&format!("{}/{path}", endpoint.path().trim_end_matches('/')));
    Some(url)
}

/// Returns the headers of a destination of a caller, marked as secrets.
///
/// # Errors
/// [`InvalidSettings::Header`] for an invalid header.
pub(crate) fn destination_headers(destination: &OpenDestination) -> Result<HeaderMap, InvalidSettings> {
    let header = |(at, (name, value)): (usize, (&String, &SecretString))| {
        let invalid = InvalidSettings::Header(at + 1);
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { return Err(invalid) };
        let Ok(mut value) = HeaderValue::from_str(value.expose_secret()) else { return Err(invalid) };
        value.set_sensitive(true);
        Ok((name, value))
    };
    destination.headers.iter().enumerate().map(header).collect()
}

fn header(text: &SecretString) -> Option<(String, String)> {
    let (name, value) = text.expose_secret().split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    HeaderName::from_bytes(name.as_bytes()).ok()?;
    HeaderValue::from_str(value).ok()?;
    Some((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoint: &str, headers: &[&str]) -> Result<Settings, InvalidSettings> {
        let headers: Vec<SecretString> = headers.iter().map(|text| SecretString::from(*text)).collect();
        Settings::new(&Url::parse(endpoint).expect("an address"), &headers, "one", "1")
    }

    #[test]
    fn the_logs_path_is_appended_to_the_endpoint() {
        for (endpoint, place) in [
            ("http://c:4318", "http://c:4318/v1/logs"),
            ("https://c/otlp/", "https://c/otlp/v1/logs"),
            ("https://c/otlp", "https://c/otlp/v1/logs"),
        ] {
            assert_eq!(settings(endpoint, &[]).expect("good").endpoint().as_str(), place);
        }
    }

    #[test]
    fn invalid_settings_are_refused_without_showing_secrets() {
        for endpoint in ["ftp://c", "http://u:swordfish@c", "http://u@c", "http://c/?key=swordfish", "http://c/#x"] {
            let refused = settings(endpoint, &[]).expect_err(endpoint);
            assert!(matches!(refused, InvalidSettings::Endpoint) && !format!("{refused:?}").contains("swordfish"));
        }
        for header in ["swordfish", "=swordfish", "a b=swordfish", "a=sword\nfish", ""] {
            let refused = settings("http://c", &["x=1", header]).expect_err(header);
            assert!(
                matches!(refused, InvalidSettings::Header(2)) && !refused.to_string().contains("swordfish"),
                "{refused}"
            );
        }
        let good = settings("http://c", &["authorization = Bearer sword=fish"]).expect("good");
        assert_eq!(good.headers()["authorization"], "Bearer sword=fish");
        assert!(!format!("{good:?}").contains("fish"));
    }
}
