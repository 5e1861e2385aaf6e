//! The command lines of Chromium and of the X server.

use std::path::{Path, PathBuf};

use casement_agent_protocol::{AgentConfig, Location, Viewport};

use table::{FEATURES_OFF, FEATURES_ON, Kind, SWITCHES, When};

#[cfg(test)]
mod page;
mod table;

/// The height that a browser window adds above the page, in pixels: the tab strip and the toolbar of a window without a
/// window manager. This is only an estimate; the page is measured once it answers.
pub(crate) const WINDOW_FRAME: u32 = 87;

/// The locale of a browser for which none is set.
const DEFAULT_LOCALE: &str = "en-US";

/// The switches that a caller cannot add: the isolation depends on their absence or on the value given here.
const RESERVED: &[&str] = &[
    "--no-sandbox",
    "--disable-setuid-sandbox",
    "--disable-namespace-sandbox",
    "--disable-seccomp-filter-sandbox",
    "--disable-gpu-sandbox",
    "--single-process",
    "--no-zygote",
    "--proxy-server",
    "--proxy-bypass-list",
    "--proxy-pac-url",
    "--no-proxy-server",
    "--proxy-auto-detect",
    "--remote-debugging-address",
    "--remote-debugging-port",
    "--remote-debugging-pipe",
    "--remote-allow-origins",
    "--webrtc-ip-handling-policy",
    "--enable-quic",
    "--user-data-dir",
    "--renderer-cmd-prefix",
    "--utility-cmd-prefix",
    "--gpu-launcher",
    "--browser-subprocess-path",
];

/// Returns the first additional argument that is not allowed, if any.
pub(crate) fn reserved(extra: &[String]) -> Option<&str> {
    extra.iter().map(String::as_str).find(|arg| {
        let name = arg.split('=').next().unwrap_or(arg);
        // A word without dashes would be a URL to open, and two dashes end the switches.
        !arg.starts_with("--") || *arg == "--" || RESERVED.contains(&name)
    })
}

/// The parameters that differ between the starts of one session's browser.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) viewport: Viewport,
    pub(crate) location: &'a Location,
    /// The directories of the extensions, in the order they are loaded.
    pub(crate) extensions: &'a [PathBuf],
    /// The page that is opened beside the restored pages of the previous browser; `None` for the first start.
    pub(crate) first_page: Option<&'a str>,
    /// True if the pages of the previous browser are restored from the user data.
    pub(crate) restore: bool,
}

/// Returns the arguments of Chromium, without the name of the program.
pub(crate) fn chromium_args(config: &AgentConfig, plan: &Plan<'_>) -> Vec<String> {
    let kind = Kind::new(config.headless, config.stealth);
    let applies = |when: When| match when {
        When::Always => true,
        When::WithExtensions => !plan.extensions.is_empty(),
        When::WithoutExtensions => plan.extensions.is_empty(),
        When::Restored => plan.restore,
        When::Kiosk => config.kiosk_mode,
    };
    let mut args: Vec<String> = Vec::new();
    for switch in SWITCHES.iter().filter(|switch| switch.is_given(kind) && applies(switch.when)) {
        args.push(value_of(switch.text, config, plan));
    }
    for (name, features) in [("--disable-features", FEATURES_OFF), ("--enable-features", FEATURES_ON)] {
        let given = features.iter().filter(|feature| feature.is_given(kind) && applies(feature.when));
        let names: Vec<&str> = given.map(|feature| feature.text).collect();
        if !names.is_empty() {
            args.push(format!("{name}={}", names.join(",")));
        }
    }
    args.extend(config.extra_chromium_args.iter().cloned());
    args.push(plan.first_page.unwrap_or("about:blank").to_owned());
    args
}

/// Returns a switch of the table with the values of this start in place of its placeholders.
fn value_of(text: &str, config: &AgentConfig, plan: &Plan<'_>) -> String {
    let (width, height) = (plan.viewport.width, plan.viewport.height);
    // Chromium stores the languages in its profile, so the default is given too.
    let locale = plan.location.locale.as_deref().unwrap_or(DEFAULT_LOCALE);
    let value = |placeholder: &str| match placeholder {
        "WIDTH" => Some(width.to_string()),
        "HEIGHT" => Some(height.to_string()),
        "OUTER_HEIGHT" => Some(height.saturating_add(WINDOW_FRAME).to_string()),
        "FORWARDER_PORT" => Some(config.forwarder_port.to_string()),
        "DEBUGGING_PORT" => Some(config.debugging_port.to_string()),
        "PROFILE" => Some(config.profile.display().to_string()),
        "LANGUAGES" => Some(accept_languages(locale)),
        "EXTENSIONS" => {
            let paths: Vec<String> = plan.extensions.iter().map(|path| path.display().to_string()).collect();
            Some(paths.join(","))
        }
        _ => None,
    };
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, (placeholder, after))) =
        rest.split_once('<').and_then(|(before, from)| Some((before, from.split_once('>')?)))
    {
        filled.push_str(before);
        filled.push_str(&value(placeholder).unwrap_or_else(|| format!("<{placeholder}>")));
        rest = after;
    }
    filled + rest
}

/// Returns the environment of Chromium for a location. The language of Chromium's interface is the locale of its pages
/// and workers.
pub(crate) fn environment(location: &Location) -> impl Iterator<Item = (&'static str, &str)> {
    let time_zone = location.time_zone.as_deref().map(|zone| ("TZ", zone));
    time_zone.into_iter().chain(location.locale.as_deref().map(|locale| ("LANGUAGE", locale)))
}

/// Returns the preferred languages of a locale: itself, and its language.
fn accept_languages(locale: &str) -> String {
    match locale.split_once('-') {
        Some((language, _)) => format!("{locale},{language}"),
        None => locale.to_owned(),
    }
}

/// Returns the file without which Chromium does not take a language for its interface.
pub(crate) fn language_file(chromium: &Path, locale: &str) -> PathBuf {
    chromium.with_file_name("locales").join(format!("{locale}.pak"))
}

/// Returns the arguments of the X server, which picks a free display and writes its number to standard output.
pub(crate) fn xvfb_args(framebuffer: &Path, width: u32, height: u32) -> Vec<String> {
    let screen = format!("{width}x{height}x24");
    let framebuffer = framebuffer.display().to_string();
    // The caller that holds a key requests its repetitions, so the X server must not repeat it when the release arrives
    // late.
    let repeat = ["-ardelay", "65535", "-arinterval", "65535"];
    let display = ["-displayfd", "1", "-nolisten", "tcp", "-noreset", "-screen", "0", &screen, "-fbdir", &framebuffer];
    display.iter().chain(&repeat).map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(headless: bool) -> AgentConfig {
        AgentConfig::new("n", headless, Viewport { width: 800, height: 600, refresh_rate: 60 })
    }

    #[test]
    fn a_browser_never_runs_without_its_sandbox_and_shows_no_automation() {
        for headless in [true, false] {
            let config = config(headless);
            let location = Location::default();
            let plan = Plan {
                viewport: config.viewport,
                location: &location,
                extensions: &[],
                first_page: None,
                restore: false,
            };
            let args = chromium_args(&config, &plan);
            assert!(
                !args.iter().any(|arg| arg.contains("no-sandbox") || arg.contains("enable-automation")),
                "{args:?}"
            );
        }
    }

    #[test]
    fn a_locale_is_preferred_before_its_language() {
        for (locale, expected) in [("de-CH", "de-CH,de"), ("zh-Hant-TW", "zh-Hant-TW,zh"), ("fr", "fr")] {
            assert_eq!(accept_languages(locale), expected);
        }
    }

    #[test]
    fn pages_of_a_stealth_session_cannot_offer_tools() {
        for stealth in [true, false] {
            let config = AgentConfig { stealth, ..config(true) };
            let (viewport, location) = (config.viewport, &Location::default());
            let plan = Plan { viewport, location, extensions: &[], first_page: None, restore: false };
            assert_ne!(chromium_args(&config, &plan).iter().any(|arg| arg.contains("WebMCP")), stealth);
        }
    }

    #[test]
    fn switches_the_isolation_rests_on_are_refused() {
        let extra = |arg: &str| vec!["--lang=de".to_owned(), arg.to_owned()];
        for arg in ["--no-sandbox", "--proxy-server=direct://", "http://x", "--"] {
            assert_eq!(reserved(&extra(arg)), Some(arg));
        }
        assert_eq!(reserved(&extra("--mute-audio")), None);
    }
}
