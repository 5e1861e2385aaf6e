//! The Chrome policies that a caller sets for a browser.

use serde_json::{Map, Value, json};

use crate::field::{FieldCode, InvalidValue};
use crate::misspelling::misspelt;

/// Chrome policies by name, at most 5 MiB of JSON, without those that would weaken the isolation of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserPolicy(Map<String, Value>);

impl BrowserPolicy {
    /// The maximum number of bytes of the JSON.
    pub const MAX_BYTES: usize = 5 * 1024 * 1024;
    /// The maximum number of values, including nested ones, because each takes far more memory than its text.
    const MAX_VALUES: usize = 20_000;

    /// # Errors
    /// `blocked` with the policy's name; `not_allowed` for a misspelt name of a policy that restricts; `too_long`.
    pub fn parse(policies: Map<String, Value>) -> Result<Self, InvalidValue> {
        InvalidValue::any(policies.iter().filter_map(|(name, value)| refused(name, value)))?;
        if policies.values().map(count).sum::<usize>() > Self::MAX_VALUES {
            return Err(InvalidValue::new(FieldCode::TooMany, "must have at most 20000 values"));
        }
        let policy = Self(policies);
        if Value::Object(policy.0.clone()).to_string().len() > Self::MAX_BYTES {
            return Err(InvalidValue::new(FieldCode::TooLong, "must be at most 5 MiB of JSON"));
        }
        Ok(policy)
    }

    /// Takes policies that were checked when they were stored. What a later version blocks is left out.
    #[must_use]
    pub fn from_stored(mut policies: Map<String, Value>) -> Self {
        policies.retain(|name, _| !is_blocked(name));
        Self(policies)
    }

    /// Returns the policies of the browser of a login. A person in the live view has mouse and keyboard, but must not
    /// reach the cookies and files of the profile: developer tools, pages of the browser itself, local files, file
    /// choosers, downloads and printing are off. `DeveloperToolsAvailability` would also refuse the server's own
    /// connection, so only the pages of the tools are blocked.
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
            // All downloads are blocked.
            ("DownloadRestrictions", json!(3)),
            ("PrintingEnabled", json!(false)),
            // No incognito windows, and no other profile.
            ("IncognitoModeAvailability", json!(1)),
            ("BrowserAddPersonEnabled", json!(false)),
            ("BrowserGuestModeEnabled", json!(false)),
            ("TaskManagerEndProcessEnabled", json!(false)),
            ("NewTabPageLocation", json!("about:blank")),
        ]))
    }

    /// Returns the JSON for Chromium: the policies of the caller over the defaults.
    #[must_use]
    pub fn in_force(requested: Option<&Self>) -> String {
        let mut all = defaults();
        all.extend(requested.into_iter().flat_map(|policy| policy.0.clone()));
        Value::Object(all).to_string()
    }

    /// Returns whether some downloads are refused.
    #[must_use]
    pub fn restricts_downloads(&self) -> bool {
        self.0.get("DownloadRestrictions").is_some_and(|value| !value.is_null() && *value != 0)
    }

    /// Returns the policies.
    #[must_use]
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// Returns the default policies: the browser stores and offers nothing that is typed, and shows no prompts of its own
/// over a page.
fn defaults() -> Map<String, Value> {
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
        // All requests go through one proxy. By default a browser has 128 connections to it, and pages that hold so many
        // answers open, such as tabs of chats, block every further page.
        ("MaxConnectionsPerProxy", json!(256)),
        // Downloads of all windows, also of those in contexts of clients, go to the session's directory without a
        // question: where, whether several at once, whether from a page without TLS, whether a packed extension.
        ("PromptForDownloadLocation", json!(false)),
        ("DefaultAutomaticDownloadsSetting", json!(1)),
        // Pages without TLS have no mixed contents, so that this concerns their downloads only.
        ("InsecureContentAllowedForUrls", json!(["http://*"])),
        (
            "ExemptDomainFileTypePairsFromFileTypeDownloadWarnings",
            json!([{ "file_extension": "crx", "domains": ["*"] }]),
        ),
    ])
}

/// Returns the refusal of a policy, if it is blocked or a misspelt restriction, which Chromium would ignore.
fn refused(name: &str, value: &Value) -> Option<InvalidValue> {
    let refusal = if is_blocked(name) {
        InvalidValue::new(FieldCode::Blocked, "is never allowed")
    } else {
        let meant = misspelt(name, RESTRICTING).filter(|_| !value.is_null())?;
        let message = format!("is no policy of Chromium and would restrict nothing; {meant} is one");
        InvalidValue::new(FieldCode::NotAllowed, message)
    };
    Some(refusal.of(name))
}

/// Policies that restrict what pages or people may do. Chromium ignores a name that it does not know, so a misspelt one
/// of these would restrict nothing.
const RESTRICTING: &[&str] = &[
    "AllowDeletingBrowserHistory",
    "AllowFileSelectionDialogs",
    "AudioCaptureAllowed",
    "AutofillAddressEnabled",
    "AutofillCreditCardEnabled",
    "AutomaticDownloadsBlockedForUrls",
    "AutomaticFullscreenBlockedForUrls",
    "AutoplayAllowed",
    "BlockExternalExtensions",
    "BlockThirdPartyCookies",
    "BrowserAddPersonEnabled",
    "BrowserGuestModeEnabled",
    "BrowserSignin",
    "BuiltInDnsClientEnabled",
    "CACertificateManagementAllowed",
    "CADistrustedCertificates",
    "ClearBrowsingDataOnExitList",
    "ClipboardBlockedForUrls",
    "ControlledFrameBlockedForUrls",
    "CookiesBlockedForUrls",
    "CookiesSessionOnlyForUrls",
    "CopyPreventionSettings",
    "DataControlsRules",
    "DefaultAutomaticDownloadsSetting",
    "DefaultClipboardSetting",
    "DefaultControlledFrameSetting",
    "DefaultCookiesSetting",
    "DefaultDirectSocketsSetting",
    "DefaultFileSystemReadGuardSetting",
    "DefaultFileSystemWriteGuardSetting",
    "DefaultGeolocationSetting",
    "DefaultIdleDetectionSetting",
    "DefaultImagesSetting",
    "DefaultInsecureContentSetting",
    "DefaultJavaScriptJitSetting",
    "DefaultJavaScriptOptimizerSetting",
    "DefaultJavaScriptSetting",
    "DefaultLocalFontsSetting",
    "DefaultMediaStreamSetting",
    "DefaultNotificationsSetting",
    "DefaultPopupsSetting",
    "DefaultSensorsSetting",
    "DefaultSerialGuardSetting",
    "DefaultWebBluetoothGuardSetting",
    "DefaultWebHidGuardSetting",
    "DefaultWebUsbGuardSetting",
    "DefaultWindowManagementSetting",
    "DefaultWindowPlacementSetting",
    "DeveloperToolsAvailability",
    "DeveloperToolsAvailabilityBlocklist",
    "DeveloperToolsDisabled",
    "DirectSocketsBlockedForUrls",
    "Disable3DAPIs",
    "DisabledSchemes",
    "DisablePrintPreview",
    "DisableSafeBrowsingProceedAnyway",
    "DisableScreenshots",
    "DownloadRestrictions",
    "EditBookmarksEnabled",
    "FileSystemReadBlockedForUrls",
    "FileSystemWriteBlockedForUrls",
    "ForceEphemeralProfiles",
    "ForceGoogleSafeSearch",
    "ForceSafeSearch",
    "ForceYouTubeRestrict",
    "ForceYouTubeSafetyMode",
    "FullscreenAllowed",
    "GeolocationBlockedForUrls",
    "HttpsOnlyMode",
    "HttpsUpgradesEnabled",
    "IdleDetectionBlockedForUrls",
    "ImagesBlockedForUrls",
    "IncognitoEnabled",
    "IncognitoModeAvailability",
    "IncognitoModeUrlBlocklist",
    "InsecureContentBlockedForUrls",
    "InsecureFormsWarningsEnabled",
    "IsolateOrigins",
    "JavaScriptBlockedForUrls",
    "JavascriptEnabled",
    "JavaScriptJitBlockedForSites",
    "JavaScriptOptimizerBlockedForSites",
    "LocalFontsBlockedForUrls",
    "LocalNetworkAccessBlockedForUrls",
    "LocalNetworkBlockedForUrls",
    "LoopbackNetworkBlockedForUrls",
    "NetworkPredictionOptions",
    "NotificationsBlockedForUrls",
    "PasswordLeakDetectionEnabled",
    "PasswordManagerBlocklist",
    "PasswordManagerEnabled",
    "PasswordManagerPasskeysEnabled",
    "PasswordSharingEnabled",
    "PaymentMethodQueryEnabled",
    "PopupsBlockedForUrls",
    "PrintingEnabled",
    "QuicAllowed",
    "RestrictSigninToPattern",
    "SafeBrowsingEnabled",
    "SafeBrowsingProtectionLevel",
    "SafeSitesFilterBehavior",
    "SandboxExternalProtocolBlocked",
    "SavingBrowserHistoryDisabled",
    "ScreenCaptureAllowed",
    "SearchSuggestEnabled",
    "SensorsBlockedForUrls",
    "SerialBlockedForUrls",
    "SigninAllowed",
    "SitePerProcess",
    "SpellcheckEnabled",
    "SpellCheckServiceEnabled",
    "SSLErrorOverrideAllowed",
    "SSLVersionMin",
    "SubAppsWithoutPromptsBlockedForOrigins",
    "SuppressDifferentOriginSubframeDialogs",
    "SyncDisabled",
    "TaskManagerEndProcessEnabled",
    "TranslateEnabled",
    "URLBlocklist",
    "VideoCaptureAllowed",
    "WebHidBlockedForUrls",
    "WebRtcIPHandling",
    "WebRtcUdpPortRange",
    "WebUsbBlockedForUrls",
    "WindowManagementBlockedForUrls",
    "WindowPlacementBlockedForUrls",
];

fn members<const N: usize>(policies: [(&str, Value); N]) -> Map<String, Value> {
    policies.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the number of values in a value, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Returns whether a policy is blocked. Only this service may load extensions and set the egress and the debugging
/// port; no policy may name a program or a directory, or disable a part of Chromium's sandbox.
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
    fn stored_policies_are_taken_as_they_are_except_what_is_blocked_by_now() {
        let stored =
            json!({ "URLBlocklst": ["a.test"], "RemoteDebuggingAllowed": true, "HomepageLocation": "about:blank" });
        let Value::Object(stored) = stored else { unreachable!() };
        let policy = BrowserPolicy::from_stored(stored);
        assert_eq!(
            Value::Object(policy.as_map().clone()),
            json!({ "URLBlocklst": ["a.test"], "HomepageLocation": "about:blank" })
        );
    }

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
    fn nothing_that_is_typed_is_stored_unless_the_caller_sets_it() {
        let in_force = |requested: Option<&BrowserPolicy>| {
            serde_json::from_str::<Value>(&BrowserPolicy::in_force(requested)).expect("JSON")
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
        let requested = Map::from_iter([
            ("PasswordManagerEnabled".to_owned(), json!(true)),
            ("BookmarkBarEnabled".to_owned(), json!(true)),
        ]);
        let requested = in_force(Some(&BrowserPolicy::parse(requested).expect("good")));
        assert_eq!(
            [&requested["PasswordManagerEnabled"], &requested["BookmarkBarEnabled"], &requested["BrowserSignin"]],
            [&json!(true), &json!(true), &json!(0)]
        );
    }

    #[test]
    fn the_policies_of_a_login_can_also_be_set_by_a_caller() {
        let of_logins = BrowserPolicy::of_logins();
        assert_eq!(BrowserPolicy::parse(of_logins.as_map().clone()).expect("it is stored as a caller's is"), of_logins);
    }

    #[test]
    fn a_misspelt_policy_that_restricts_is_refused() {
        for (name, meant) in [
            ("URLBlackList", "URLBlocklist"),
            ("url_blocklist", "URLBlocklist"),
            ("DownloadRestriction", "DownloadRestrictions"),
            ("javascriptBlockedForUrls", "JavaScriptBlockedForUrls"),
            ("PasswordManagerEnable", "PasswordManagerEnabled"),
            ("SafeBrowsingEnable", "SafeBrowsingEnabled"),
            ("DeveloperToolAvailability", "DeveloperToolsAvailability"),
            ("BlockExternalExtension", "BlockExternalExtensions"),
        ] {
            let of = |value: Value| BrowserPolicy::parse(Map::from_iter([(name.to_owned(), value)]));
            let bad = of(json!(["*"])).expect_err(name);
            assert_eq!((bad.code, bad.below.as_deref()), (FieldCode::NotAllowed, Some(name)));
            assert!(bad.message.contains(meant), "{}", bad.message);
            assert!(of(Value::Null).is_ok(), "null restricts nothing");
        }
        let known = RESTRICTING.iter().chain(&["URLAllowlist", "PopupsAllowedForUrls", "AudioCaptureAllowedUrls"]);
        let policies =
            known.filter(|name| !is_blocked(name)).map(|name| ((*name).to_owned(), Value::Bool(true))).collect();
        assert!(BrowserPolicy::parse(policies).is_ok(), "no policy is a misspelling of another one");
    }

    #[test]
    fn policies_that_reach_out_of_the_session_are_blocked() {
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
