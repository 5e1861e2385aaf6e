//! The command lines of Chromium and of the X server.

use std::path::{Path, PathBuf};

use casement_agent_protocol::{AgentConfig, Location, Viewport};

/// The height that a browser window adds above the page, in pixels: the tab strip and the toolbar of a window without a
/// window manager. This is only an estimate; the page is measured once it answers.
pub(crate) const WINDOW_FRAME: u32 = 87;

/// The features of the browser that start renderers and requests of their own, which no automated session needs.
/// Without them a browser starts a quarter faster, uses less than half the CPU time and 45 to 70 MiB less memory.
const FEATURES_OFF: &str = "SpareRendererForSitePerProcess,WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIToolbar,InitialWebUI,\
     WebUIPreload,PreloadTopChromeWebUI,OptimizationHints,MediaRouter,Translate,NetworkTimeServiceQuerying,\
     AutofillServerCommunication";

/// The locale of a browser for which none is set.
const DEFAULT_LOCALE: &str = "en-US";

/// The features that are switched on, unless the session shall look like a person's browser, which does not have them:
/// pages offer tools to agents.
const FEATURES_ON: &str = "WebMCP";

/// The switches of every session.
const COMMON: &[&str] = &[
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-component-extensions-with-background-pages",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-gpu",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-pings",
    // Input that arrives between a navigation and the first frame of its page is otherwise dropped without an error.
    "--allow-pre-commit-input",
    // The `localStorage` of pages is written after one second instead of after five or more.
    "--enable-aggressive-domstorage-flushing",
    // Two services send requests at every start and cannot be disabled: the accounts of Google's pages, and the
    // download of browser components on demand. Their URLs have a port that Chromium refuses to open, so that nothing
    // is sent. The shorter switch for the first would show a warning in the window.
    r#"--gaia-config-contents={"urls":{"gaia_url":{"url":"http://127.0.0.1:1"}}}"#,
    "--component-updater=url-source=http://127.0.0.1:1/",
    "--password-store=basic",
    "--use-mock-keychain",
    "--hide-crash-restore-bubble",
    // All traffic goes through the proxy: no QUIC and no WebRTC datagrams bypass it.
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    // By default Chromium bypasses a proxy for loopback, and a page could then open the debugging port.
    "--proxy-bypass-list=<-loopback>",
    "--remote-debugging-address=127.0.0.1",
];

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
    let mut args: Vec<String> = COMMON.iter().map(|flag| (*flag).to_owned()).collect();
    if plan.extensions.is_empty() {
        args.push(format!("--disable-features={FEATURES_OFF}"));
        args.push("--disable-extensions".to_owned());
    } else {
        // Chrome disables `--load-extension` by this feature.
        args.push(format!("--disable-features={FEATURES_OFF},DisableLoadExtensionCommandLineSwitch"));
        let paths: Vec<String> = plan.extensions.iter().map(|path| path.display().to_string()).collect();
        args.push(format!("--load-extension={}", paths.join(",")));
        // A refused extension would block the start with a dialog.
        args.push("--noerrdialogs".to_owned());
    }
    if !config.stealth {
        args.push(format!("--enable-features={FEATURES_ON}"));
    }
    if plan.restore {
        // Restores pages, their histories and session cookies.
        args.push("--restore-last-session".to_owned());
    }
    args.push(format!("--proxy-server=http://127.0.0.1:{}", config.forwarder_port));
    args.push(format!("--remote-debugging-port={}", config.debugging_port));
    args.push(format!("--user-data-dir={}", config.profile.display()));
    let (width, height) = (plan.viewport.width, plan.viewport.height);
    if config.headless {
        let outer = height.saturating_add(WINDOW_FRAME);
        args.push(format!("--window-size={width},{outer}"));
        args.push("--window-position=0,0".to_owned());
        if config.stealth {
            // The headless mode is visible in the user agent, and an overridden user agent leaves half of the client
            // hints empty. The same browser on a display that draws nowhere reports the same values as any other
            // browser, in every kind of script.
            args.push("--ozone-platform=headless".to_owned());
            args.push(format!("--ozone-override-screen-size={width},{height}"));
        } else {
            args.push("--headless=new".to_owned());
            args.push(format!("--screen-info={{{width}x{height}}}"));
        }
    } else {
        args.push("--ozone-platform=x11".to_owned());
        args.push("--window-position=0,0".to_owned());
        args.push(format!("--window-size={width},{height}"));
        if config.kiosk_mode {
            args.push("--kiosk".to_owned());
        }
    }
    // Chromium stores the languages in its profile, so the default is given too.
    let locale = plan.location.locale.as_deref().unwrap_or(DEFAULT_LOCALE);
    args.push(format!("--accept-lang={}", accept_languages(locale)));
    args.extend(config.extra_chromium_args.iter().cloned());
    args.push(plan.first_page.unwrap_or("about:blank").to_owned());
    args
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
