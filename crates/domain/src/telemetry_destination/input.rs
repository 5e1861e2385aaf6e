//! Requests that concern telemetry destinations, and their checks.

use url::Url;

use super::HeaderEdits;
use super::headers::Headers;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, check_max_length, check_no_control_characters};
use crate::name::LabelName;
use crate::web_url;

/// The maximum number of characters of a description, and of an endpoint.
const MAX_DESCRIPTION: usize = 1024;
const MAX_URL: usize = 2048;
/// The paths that an export appends itself.
const SIGNALS: [&str; 3] = ["/v1/logs", "/v1/traces", "/v1/metrics"];

/// The unchecked fields of a new destination.
#[derive(Clone, Debug, Default)]
pub struct DestinationRequest {
    /// The name; required.
    pub name: Option<String>,
    /// The URL of the collector; required.
    pub endpoint: Option<String>,
    /// The description. Default: none.
    pub description: Option<String>,
    /// The headers. Default: none.
    pub headers: Option<HeaderEdits>,
}

/// A new destination, checked but not yet sealed.
pub(super) struct NewDestination {
    pub(super) name: LabelName,
    pub(super) endpoint: Url,
    pub(super) description: Option<String>,
    pub(super) headers: Headers,
}

/// The unchecked changes of a destination; an absent field stays unchanged.
#[derive(Clone, Debug, Default)]
pub struct DestinationUpdateRequest {
    /// The new name.
    pub name: Option<String>,
    /// The new URL of the collector. Another one requires all headers again.
    pub endpoint: Option<String>,
    /// The new description; an empty one removes it.
    pub description: Option<String>,
    /// The edits of the headers.
    pub headers: Option<HeaderEdits>,
}

/// The checked changes of a destination.
pub(super) struct Changes {
    pub(super) name: Option<LabelName>,
    pub(super) endpoint: Option<Url>,
    pub(super) description: Option<Option<String>>,
    pub(super) headers: Option<Headers>,
}

impl DestinationRequest {
    pub(super) fn parse(self) -> Result<NewDestination, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_required("name", self.name.as_deref(), LabelName::parse_in_path);
        let endpoint = fields.take_required("endpoint", self.endpoint.as_deref(), endpoint);
        let description = fields.take_optional("description", self.description, description).flatten();
        let headers = fields.take("headers", Headers::default().edited(self.headers.unwrap_or_default()));
        fields.finish_with(|| Some(NewDestination { name: name?, endpoint: endpoint?, description, headers: headers? }))
    }
}

impl DestinationUpdateRequest {
    /// Checks the changes of a destination with this endpoint and these headers.
    pub(super) fn parse(self, present: &Url, current: Headers) -> Result<Changes, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_optional("name", self.name.as_deref(), LabelName::parse_in_path);
        let endpoint = fields.take_optional("endpoint", self.endpoint.as_deref(), endpoint);
        let description = fields.take_optional("description", self.description, description);
        if endpoint.as_ref().is_some_and(|endpoint| endpoint != present) {
            fields.take("headers", current.check_all_given(self.headers.as_ref().unwrap_or(&HeaderEdits::default())));
        }
        let headers = fields.take_optional("headers", self.headers, |edits| current.edited(edits));
        fields.finish()?;
        Ok(Changes { name, endpoint, description, headers })
    }
}

fn description(text: String) -> Result<Option<String>, InvalidValue> {
    check_max_length(&text, MAX_DESCRIPTION)?;
    check_no_control_characters(&text)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Parses the URL of a collector. Its address is checked separately.
fn endpoint(text: &str) -> Result<Url, InvalidValue> {
    let bad = |rule: &str| InvalidValue::new(FieldCode::InvalidFormat, rule);
    check_max_length(text, MAX_URL)?;
    let mut url = web_url::read(text).ok_or_else(|| bad("must be an http or https URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(bad("must be an http or https URL"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("may not hold a user name or password; use headers"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad("may not have a query or a fragment"));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if let Some(signal) = SIGNALS.iter().find(|signal| path.ends_with(*signal)) {
        return Err(bad(&format!("must be the URL before {signal}, which is appended")));
    }
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_plain_url_before_the_path_of_a_signal() {
        for (text, stored) in [
            ("https://otel.test", "https://otel.test/"),
            (" http://otel.test:4318/otlp/ ", "http://otel.test:4318/otlp"),
        ] {
            assert_eq!(endpoint(text).expect(text).as_str(), stored);
        }
        for text in [
            "",
            "otel.test",
            "grpc://otel.test",
            "http://user@otel.test",
            "http://otel.test/?key=1",
            "http://otel.test/#x",
            "https://otel.test/v1/logs",
            "https://otel.test/otlp/v1/traces/",
            &format!("http://otel.test/{}", "x".repeat(MAX_URL)),
        ] {
            endpoint(text).expect_err(text);
        }
    }

    #[test]
    fn every_field_that_breaks_a_rule_is_named() {
        let request = DestinationRequest {
            name: Some("01k9zk0000000000000000000a".to_owned()),
            description: Some("x".repeat(MAX_DESCRIPTION + 1)),
            headers: Some([("a b".to_owned(), None)].into_iter().collect()),
            ..DestinationRequest::default()
        };
        let refused = request.parse().err().expect("refused");
        let named: Vec<&str> = refused.fields().iter().map(|one| one.field.as_str()).collect();
        assert_eq!(named, ["name", "endpoint", "description", "headers.a b"]);
    }
}
