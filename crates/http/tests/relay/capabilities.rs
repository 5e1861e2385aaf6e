//! The filter of a caller's capabilities.

use casement_http::webdriver::{BadCapabilities, Bidi, bind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Returns capabilities that attempt to start another browser or to change the running one.
fn hostile() -> Vec<(&'static str, Value)> {
    let options = json!({
        "binary": "/bin/sh", "args": ["--no-sandbox", "--remote-debugging-port=1", "user-data-dir=/root"],
        "prefs": {"download.default_directory": "/etc"}, "extensions": ["AAAA"], "localState": {"x": 1},
        "mobileEmulation": {"deviceName": "Nexus 5"}, "userDataDir": "/root", "detach": true,
        "debuggerAddress": "169.254.169.254:80", "minidumpPath": "/etc", "logPath": "/etc/passwd",
        "androidPackage": "x", "excludeSwitches": ["enable-automation"], "perfLoggingPrefs": {}, "windowTypes": ["webview"],
    });
    vec![
        ("goog:chromeOptions", options.clone()),
        ("chromeOptions", options.clone()),
        ("ms:edgeOptions", options.clone()),
        ("ms:edgeChromium", json!(true)),
        ("moz:firefoxOptions", options),
        ("se:options", json!({"x": 1})),
        ("proxy", json!({"proxyType": "manual", "httpProxy": "127.0.0.1:1"})),
        ("wdpath", json!("/x")),
        ("goog:processId", json!(1)),
        ("android:deviceSocket", json!("x")),
    ]
}

fn bound_options() -> Value {
    json!({"debuggerAddress": "127.0.0.1:9222"})
}

#[test]
fn no_capability_affects_a_binary_an_argument_or_a_file() {
    for (name, value) in hostile() {
        let own = json!({ name: value.clone(), "acceptInsecureCerts": true });
        for given in [
            json!({"capabilities": {"alwaysMatch": own}}),
            json!({"capabilities": {"firstMatch": [{}, own]}}),
            json!({"capabilities": {"alwaysMatch": own, "firstMatch": [own, own]}}),
            json!({"desiredCapabilities": own}),
            json!({"capabilities": {}, "desiredCapabilities": own, "requiredCapabilities": own}),
            json!({name: value.clone(), "capabilities": {name: value.clone()}}),
        ] {
            let bound = bind(&given, Bidi::AsRequested).unwrap();
            let capabilities = &bound["capabilities"];
            assert_eq!(capabilities["alwaysMatch"]["goog:chromeOptions"], bound_options(), "{name}");
            let text = bound.to_string();
            for trace in ["no-sandbox", "/bin/sh", "/root", "/etc", "169.254", "deviceName", "AAAA", "127.0.0.1:1\""] {
                assert!(!text.contains(trace), "{name}: {trace} is left in {text}");
            }
            for first in capabilities["firstMatch"].as_array().unwrap() {
                assert!(first.get("goog:chromeOptions").is_none(), "twice is refused by chromedriver");
            }
            assert_eq!(bound.as_object().unwrap().len(), 1);
        }
    }
}

#[test]
fn protocol_capabilities_pass() {
    let given = json!({"capabilities": {
        "alwaysMatch": {"browserName": "chrome", "timeouts": {"script": 1}, "unhandledPromptBehavior": "ignore"},
        "firstMatch": [{"pageLoadStrategy": "eager"}, {"pageLoadStrategy": "none", "webSocketUrl": true}],
    }});
    let expected = json!({"capabilities": {
        "alwaysMatch": {
            "browserName": "chrome", "timeouts": {"script": 1}, "unhandledPromptBehavior": "ignore",
            "goog:chromeOptions": bound_options(),
        },
        "firstMatch": [{"pageLoadStrategy": "eager"}, {"pageLoadStrategy": "none", "webSocketUrl": true}],
    }});
    assert_eq!(bind(&given, Bidi::AsRequested).unwrap(), expected);
}

#[test]
fn a_session_opened_over_bidi_always_has_bidi() {
    let given =
        json!({"capabilities": {"alwaysMatch": {"webSocketUrl": false}, "firstMatch": [{"webSocketUrl": false}]}});
    let expected = json!({"capabilities": {
        "alwaysMatch": {"webSocketUrl": true, "goog:chromeOptions": bound_options()}, "firstMatch": [{}],
    }});
    assert_eq!(bind(&given, Bidi::Forced).unwrap(), expected);
    assert_eq!(bind(&json!({}), Bidi::Forced).unwrap(), expected);
}

#[test]
fn malformed_capabilities_are_refused_with_the_field() {
    for (given, error) in [
        (json!([]), BadCapabilities::Parameters),
        (json!(null), BadCapabilities::Parameters),
        (json!({"capabilities": 1}), BadCapabilities::Type("capabilities")),
        (json!({"capabilities": {"alwaysMatch": []}}), BadCapabilities::Type("alwaysMatch")),
        (json!({"capabilities": {"firstMatch": {}}}), BadCapabilities::Type("firstMatch")),
        (json!({"capabilities": {"firstMatch": [1]}}), BadCapabilities::Type("firstMatch")),
        (json!({"desiredCapabilities": "x"}), BadCapabilities::Type("desiredCapabilities")),
        (json!({"capabilities": {"firstMatch": vec![json!({}); 65]}}), BadCapabilities::TooMany),
    ] {
        assert_eq!(bind(&given, Bidi::AsRequested), Err(error), "{given}");
    }
}
