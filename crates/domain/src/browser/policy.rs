//! Chrome policies that a caller sets for its browser.

use serde_json::{Map, Value};

use crate::field::{Bad, FieldCode};

/// Chrome policy names and values, at most 5 MiB of JSON, without those that would reach out of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserPolicy(Map<String, Value>);

impl BrowserPolicy {
    /// How much JSON a policy may be, in bytes.
    pub const MAX_BYTES: usize = 5 * 1024 * 1024;

    /// # Errors
    /// `blocked` with the policy's name; `too_long`.
    pub fn parse(policies: Map<String, Value>) -> Result<Self, Bad> {
        if let Some(name) = policies.keys().find(|name| is_blocked(name)) {
            return Err(Bad::new(FieldCode::Blocked, "is never allowed").of(name));
        }
        let policy = Self(policies);
        if policy.to_json().len() > Self::MAX_BYTES {
            return Err(Bad::new(FieldCode::TooLong, "must be at most 5 MiB of JSON"));
        }
        Ok(policy)
    }

    /// The policies.
    #[must_use]
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The text that Chromium reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }
}

/// Extensions are loaded by this service alone, the way out is its egress, and the debugging port is its own.
fn is_blocked(name: &str) -> bool {
    const PREFIXES: [&str; 3] = ["Extension", "Proxy", "RemoteDebugging"];
    const NAMES: [&str; 4] = [
        "BlockExternalExtensions",
        "DeveloperToolsAvailability",
        "CommandLineFlagSecurityWarningsEnabled",
        "HeadlessMode",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b6_policies_that_reach_out_of_the_session_are_blocked() {
        for name in
            ["ExtensionInstallForcelist", "ProxySettings", "ProxyMode", "RemoteDebuggingAllowed", "HeadlessMode"]
        {
            let policies = Map::from_iter([("BookmarkBarEnabled".into(), true.into()), (name.into(), Value::Null)]);
            let bad = BrowserPolicy::parse(policies).expect_err(name);
            assert_eq!(
                (bad.code, bad.at("browser_policy").field),
                (FieldCode::Blocked, format!("browser_policy.{name}"))
            );
        }
    }
}
