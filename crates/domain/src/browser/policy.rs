//! Chrome policies that a caller sets for its browser.

use serde_json::{Map, Value, json};

use crate::field::{FieldCode, InvalidValue};

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
    pub fn parse(policies: Map<String, Value>) -> Result<Self, InvalidValue> {
        let blocked = policies.keys().filter(|name| is_blocked(name));
        InvalidValue::any(blocked.map(|name| InvalidValue::new(FieldCode::Blocked, "is never allowed").of(name)))?;
        if policies.values().map(count).sum::<usize>() > Self::MAX_VALUES {
            return Err(InvalidValue::new(FieldCode::TooMany, "must have at most 20000 values"));
        }
        let policy = Self(policies);
        if Value::Object(policy.0.clone()).to_string().len() > Self::MAX_BYTES {
            return Err(InvalidValue::new(FieldCode::TooLong, "must be at most 5 MiB of JSON"));
        }
        Ok(policy)
    }

    /// The policies of a browser in which a login goes on. Whoever is given its live view has mouse and keyboard, and the profile's cookies
    /// and files are not theirs: developer tools, pages of the browser itself, local files, choosers of files, downloads and printing
    /// are off. `DeveloperToolsAvailability` would also refuse our own connection; that no page of the tools opens is enough.
    #[must_use]
    pub fn of_logins() -> Self {
        Self(members([
            (
                "URLBlocklist",
                json!([
                    "devtools://*",
                    "view-source:*",
                    "file://*",
                    "chrome://*",
                    "chrome-untrusted://*",
                    "javascript://*"
                ]),
            ),
            ("AllowFileSelectionDialogs", json!(false)),
            // All of them.
            ("DownloadRestrictions", json!(3)),
            ("PrintingEnabled", json!(false)),
            // No windows without cookies, and no other profile.
            ("IncognitoModeAvailability", json!(1)),
            ("BrowserAddPersonEnabled", json!(false)),
            ("BrowserGuestModeEnabled", json!(false)),
            ("TaskManagerEndProcessEnabled", json!(false)),
            ("NewTabPageLocation", json!("about:blank")),
        ]))
    }

    /// The text that Chromium reads, for a caller that asked for these policies or for none: what it asked for, and what holds unless
    /// a caller says otherwise.
    #[must_use]
    pub fn in_force(asked: Option<&Self>) -> String {
        let mut all = unless_asked();
        all.extend(asked.into_iter().flat_map(|asked| asked.0.clone()));
        Value::Object(all).to_string()
    }

    /// The policies.
    #[must_use]
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// What holds in every browser unless its caller says otherwise: nothing that is typed is kept, offered or shown again by the browser, and
/// none of its own questions lies over a page.
fn unless_asked() -> Map<String, Value> {
    members([
        ("PasswordManagerEnabled", json!(false)),
        ("PasswordManagerPasskeysEnabled", json!(false)),
        ("PasswordLeakDetectionEnabled", json!(false)),
        ("AutofillAddressEnabled", json!(false)),
        ("AutofillCreditCardEnabled", json!(false)),
        ("BrowserSignin", json!(0)),
        ("SigninInterceptionEnabled", json!(false)),
        ("SyncDisabled", json!(true)),
        ("TranslateEnabled", json!(false)),
        ("DefaultBrowserSettingEnabled", json!(false)),
        ("PromotionsEnabled", json!(false)),
        ("FeedbackSurveysEnabled", json!(false)),
        ("MetricsReportingEnabled", json!(false)),
    ])
}

fn members<const N: usize>(policies: [(&str, Value); N]) -> Map<String, Value> {
    policies.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
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
    fn nothing_that_is_typed_is_kept_unless_the_caller_asks_for_it() {
        let in_force = |asked: Option<&BrowserPolicy>| {
            serde_json::from_str::<Value>(&BrowserPolicy::in_force(asked)).expect("JSON")
        };
        let none = in_force(None);
        for (name, off) in [
            ("PasswordManagerEnabled", json!(false)),
            ("AutofillAddressEnabled", json!(false)),
            ("AutofillCreditCardEnabled", json!(false)),
            ("BrowserSignin", json!(0)),
            ("TranslateEnabled", json!(false)),
            ("DefaultBrowserSettingEnabled", json!(false)),
        ] {
            assert_eq!(none[name], off, "{name}");
            assert_eq!(in_force(Some(&BrowserPolicy::of_logins()))[name], off, "{name} where a login goes on");
        }
        let asked = Map::from_iter([
            ("PasswordManagerEnabled".to_owned(), json!(true)),
            ("BookmarkBarEnabled".to_owned(), json!(true)),
        ]);
        let asked = in_force(Some(&BrowserPolicy::parse(asked).expect("good")));
        assert_eq!(
            [&asked["PasswordManagerEnabled"], &asked["BookmarkBarEnabled"], &asked["BrowserSignin"]],
            [&json!(true), &json!(true), &json!(0)]
        );
    }

    #[test]
    fn the_policies_of_a_login_are_ones_that_can_be_asked_for() {
        let of_logins = BrowserPolicy::of_logins();
        assert_eq!(BrowserPolicy::parse(of_logins.as_map().clone()).expect("it is stored as a caller's is"), of_logins);
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
