//! Arguments of a browser's command line, which clients send to services like this one. The few that have a meaning
//! here are translated, the ones of a container's set-up change nothing, and all others are refused by name.

use super::options::{BrowserOptions, set, size};
use crate::error::{ApiError, Code};

/// Arguments that ask for nothing that a session does not already do or have: work-arounds for containers and for
/// first starts. A session's sandbox stays on.
const WITHOUT_EFFECT: [&str; 12] = [
    "disable-dev-shm-usage",
    "disable-gpu",
    "disable-infobars",
    "disable-setuid-sandbox",
    "disable-software-rasterizer",
    "no-default-browser-check",
    "no-first-run",
    "no-sandbox",
    "no-zygote",
    "remote-allow-origins",
    "start-maximized",
    "test-type",
];

/// Applies an argument, with or without its dashes.
///
/// # Errors
/// `not_supported` for an argument without a meaning here; `invalid_input` for its value.
pub(crate) fn apply(argument: &str, options: &mut BrowserOptions) -> Result<(), ApiError> {
    let plain = argument.trim_start_matches('-');
    let (name, value) = plain.split_once('=').map_or((plain, None), |(name, value)| (name, Some(value)));
    match (name, value) {
        ("headless", value) => set(&mut options.headless, value != Some("false"), "--headless"),
        ("window-size", Some(value)) => set(&mut options.viewport, size("--window-size", value)?, "--window-size"),
        ("kiosk", _) => set(&mut options.kiosk_mode, true, "--kiosk"),
        ("disable-blink-features", Some("AutomationControlled")) => {
            set(&mut options.stealth, true, "--disable-blink-features")
        }
        // The id or name of a stored proxy holds neither of these.
        ("proxy-server", Some(value)) if !value.contains(['/', ':']) => {
            set(&mut options.proxy, value.to_owned(), "--proxy-server")
        }
        ("proxy-server", _) => Err(refused(name, "store the proxy with POST /proxies and give its name as proxy")),
        ("user-data-dir" | "profile-directory", _) => Err(refused(name, "use a profile")),
        ("load-extension", _) => Err(refused(name, "upload the extension and give its name as extensions")),
        (name, _) if WITHOUT_EFFECT.contains(&name) => Ok(()),
        (name, _) => Err(refused(name, "this server does not support it, and does not ignore it; leave it out")),
    }
}

fn refused(name: &str, instead: &str) -> ApiError {
    let shown: String = name.chars().take(64).collect();
    ApiError::new(Code::NotSupported, format!("--{shown}: {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(arguments: &[&str]) -> Result<BrowserOptions, String> {
        let mut options = BrowserOptions::default();
        for argument in arguments {
            apply(argument, &mut options).map_err(|error| error.to_string())?;
        }
        Ok(options)
    }

    #[test]
    fn arguments_with_a_meaning_become_options() {
        let arguments = ["--headless=new", "window-size=800,600", "--kiosk", "--proxy-server=office", "--no-sandbox"];
        let options = applied(&arguments).expect("accepted");
        assert_eq!((options.headless, options.kiosk_mode, options.stealth), (Some(true), Some(true), None));
        assert_eq!(options.viewport.map(|size| (size.width, size.height)), Some((Some(800), Some(600))));
        assert_eq!(options.proxy.as_deref(), Some("office"));
        let stealth = applied(&["--disable-blink-features=AutomationControlled"]).expect("accepted");
        assert_eq!(stealth.stealth, Some(true));
    }

    #[test]
    fn arguments_without_a_meaning_are_refused_by_name() {
        for argument in ["--proxy-server=http://h:1", "--user-data-dir=/x", "--lang=de", "--window-size", "--", "-x"] {
            let refusal = applied(&[argument]).expect_err(argument);
            let name = argument.trim_start_matches('-').split('=').next().unwrap_or_default();
            assert!(refusal.contains(&format!("--{name}:")), "{argument}: {refusal}");
        }
        assert!(applied(&["--window-size=wide"]).expect_err("no size").contains("--window-size"));
        assert!(applied(&["--headless", "--headless=false"]).expect_err("both").contains("contradicts"));
    }
}
