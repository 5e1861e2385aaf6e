//! Chrome policies that a caller sets for its browser.

use serde_json::{Map, Value};

use crate::field::{Bad, FieldCode};

/// Chrome policy names and values, at most 5 MiB of JSON, without those that would reach out of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserPolicy(Map<String, Value>);

impl BrowserPolicy {
    /// How much JSON a policy may be, in bytes.
    pub const MAX_BYTES: usize = 5 * 1024 * 1024;
    /// How many values it may hold, members of members included: in memory each costs far more than its text.
    const MAX_VALUES: usize = 20_000;

    /// # Errors
    /// `blocked` with the policy's name; `too_long`.
    pub fn parse(policies: Map<String, Value>) -> Result<Self, Bad> {
        let blocked = policies.keys().filter(|name| is_blocked(name));
        Bad::any(blocked.map(|name| Bad::new(FieldCode::Blocked, "is never allowed").of(name)))?;
        if policies.values().map(count).sum::<usize>() > Self::MAX_VALUES {
            return Err(Bad::new(FieldCode::TooMany, "must have at most 20000 values"));
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

/// How many values there are in one, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Extensions are loaded by this service alone, the way out is its egress, the debugging port is its own; no policy names
/// a program or a directory of Chromium's, and none takes a part of its sandbox away.
fn is_blocked(name: &str) -> bool {
    const PREFIXES: [&str; 6] =
        ["Extension", "Proxy", "RemoteDebugging", "AlternativeBrowser", "BrowserSwitcher", "NativeMessaging"];
    const SUFFIXES: [&str; 1] = ["SandboxEnabled"];
    const NAMES: [&str; 6] = [
        "BlockExternalExtensions",
        "DeveloperToolsAvailability",
        "CommandLineFlagSecurityWarningsEnabled",
        "HeadlessMode",
        "UserDataDir",
        "DiskCacheDir",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_very_many_small_values_is_refused() {
        let of = |items: usize| {
            let list = Value::Array(vec![Value::Array(vec![0.into(); items])]);
            BrowserPolicy::parse(Map::from_iter([("URLBlocklist".into(), list)]))
        };
        assert!(of(10_000).is_ok());
        assert_eq!(of(20_000).expect_err("many").code, FieldCode::TooMany);
    }

    #[test]
    fn b6_policies_that_reach_out_of_the_session_are_blocked() {
        for name in [
            "ExtensionInstallForcelist",
            "ProxySettings",
            "ProxyMode",
            "RemoteDebuggingAllowed",
            "HeadlessMode",
            "AlternativeBrowserPath",
            "BrowserSwitcherEnabled",
            "NativeMessagingAllowlist",
            "AudioSandboxEnabled",
            "UserDataDir",
        ] {
            let policies = Map::from_iter([("BookmarkBarEnabled".into(), true.into()), (name.into(), Value::Null)]);
            let bad = BrowserPolicy::parse(policies).expect_err(name);
            assert_eq!(
                (bad.code, bad.at("browser_policy").field),
                (FieldCode::Blocked, format!("browser_policy.{name}"))
            );
        }
    }
}
