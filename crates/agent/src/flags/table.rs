//! Every switch and every feature that Chromium is started with, for each kind of session, with its reason. The page
//! `docs/chromium-switches.md` is printed from these tables.

/// The kinds of sessions that start Chromium differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `--headless=new`.
    Headless,
    /// Without a display, but the browser reports the same values as one with a display.
    HeadlessStealth,
    /// On a private X server.
    Display,
    /// On a private X server, without what only automated browsers have.
    DisplayStealth,
}

impl Kind {
    pub(super) fn new(headless: bool, stealth: bool) -> Self {
        match (headless, stealth) {
            (true, false) => Self::Headless,
            (true, true) => Self::HeadlessStealth,
            (false, false) => Self::Display,
            (false, true) => Self::DisplayStealth,
        }
    }
}

const ALL: &[Kind] = &[Kind::Headless, Kind::HeadlessStealth, Kind::Display, Kind::DisplayStealth];
/// Sessions that do not have to look like the browser of a person.
const PLAIN: &[Kind] = &[Kind::Headless, Kind::Display];
const WITHOUT_DISPLAY: &[Kind] = &[Kind::Headless, Kind::HeadlessStealth];
const ON_DISPLAY: &[Kind] = &[Kind::Display, Kind::DisplayStealth];

/// The starts of a session's browser for which a switch is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    WithExtensions,
    WithoutExtensions,
    Restored,
    Kiosk,
}

/// A switch or a feature.
#[derive(Debug)]
pub(super) struct Switch {
    /// The argument, or the name of the feature. `<WIDTH>` and other such words are placeholders.
    pub(super) text: &'static str,
    pub(super) kinds: &'static [Kind],
    pub(super) when: When,
    #[cfg_attr(not(test), expect(dead_code, reason = "the page is printed from it"))]
    pub(super) reason: &'static str,
}

impl Switch {
    const fn new(text: &'static str, kinds: &'static [Kind], reason: &'static str) -> Self {
        Self { text, kinds, when: When::Always, reason }
    }

    const fn when(when: When, text: &'static str, kinds: &'static [Kind], reason: &'static str) -> Self {
        Self { text, kinds, when, reason }
    }

    pub(super) fn is_given(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// The switches, in the order of the command line.
pub(super) const SWITCHES: &[Switch] = &[
    Switch::new("--no-first-run", ALL, "no page of welcome instead of the caller's"),
    Switch::new("--no-default-browser-check", ALL, "no question in the window"),
    Switch::new("--disable-background-networking", ALL, "no requests that no page has made"),
    Switch::new("--disable-component-update", ALL, "no downloads of components"),
    Switch::new(
        "--disable-component-extensions-with-background-pages",
        ALL,
        "no pages in the background that no caller has opened",
    ),
    Switch::new("--disable-default-apps", ALL, "no extensions that no caller has loaded"),
    Switch::new("--disable-domain-reliability", ALL, "no reports to the maker of the browser"),
    Switch::new("--disable-gpu", ALL, "the machine's graphics device is not in the sandbox"),
    Switch::new(
        "--use-angle=swiftshader-webgl",
        ALL,
        "WebGL is drawn by the processor. `--headless=new` sets it by itself; elsewhere WebGL would be missing. Costs 7 MiB \
         of memory where no page uses it. `--use-angle=swiftshader` would draw all of the page this way, with twice the \
         processor time",
    ),
    Switch::new("--disable-breakpad", ALL, "no reports of crashes"),
    Switch::new("--disable-crash-reporter", ALL, "no process for reports of crashes"),
    Switch::new("--disable-search-engine-choice-screen", ALL, "no question in the window"),
    Switch::new("--disable-sync", ALL, "no account of the browser"),
    Switch::new("--metrics-recording-only", ALL, "measurements are not sent"),
    Switch::new("--no-pings", ALL, "links do not report clicks to further addresses"),
    Switch::new(
        "--allow-pre-commit-input",
        ALL,
        "input that arrives between a navigation and the first frame of its page is otherwise dropped without an error",
    ),
    Switch::new(
        "--disable-background-timer-throttling",
        ALL,
        "timers of a tab behind run at their full rate, instead of once a second and later once a minute: a client \
         drives several tabs at the same time",
    ),
    Switch::new("--disable-renderer-backgrounding", ALL, "the process of a tab behind keeps its priority"),
    Switch::new("--disable-backgrounding-occluded-windows", ALL, "a window below another one counts as visible"),
    Switch::new(
        "--disable-back-forward-cache",
        ALL,
        "a page to which a client goes back is loaded, with all events and interceptions: Playwright's `goBack` waits \
         for them and otherwise ends at its timeout",
    ),
    Switch::new(
        "--disable-auto-reload",
        ALL,
        "an error page stays: the browsers that Playwright and Puppeteer start load nothing again by themselves either",
    ),
    Switch::new("--disable-hang-monitor", ALL, "no dialog in the window about a page that is busy"),
    Switch::new("--disable-prompt-on-repost", ALL, "a form is sent again by a reload without a question in the window"),
    Switch::new(
        "--disable-ipc-flooding-protection",
        PLAIN,
        "more than 200 navigations of a page in 10 s, such as `history.pushState`, take effect. In a person's browser \
         they do not, so not in stealth",
    ),
    Switch::new(
        "--enable-aggressive-domstorage-flushing",
        ALL,
        "the `localStorage` of pages is written after one second instead of after five or more",
    ),
    Switch::new(
        r#"--gaia-config-contents={"urls":{"gaia_url":{"url":"http://127.0.0.1:1"}}}"#,
        ALL,
        "the accounts of Google's pages send requests at every start and cannot be disabled: Chromium refuses to open \
         this port, so nothing is sent. The shorter switch would show a warning in the window",
    ),
    Switch::new(
        "--component-updater=url-source=http://127.0.0.1:1/",
        ALL,
        "the same for the download of components on demand",
    ),
    Switch::new("--password-store=basic", ALL, "no keyring is in the sandbox"),
    Switch::new("--use-mock-keychain", ALL, "the same, on other systems"),
    Switch::new("--hide-crash-restore-bubble", ALL, "no question in the window after a restart"),
    Switch::new("--disable-quic", ALL, "isolation: no QUIC bypasses the proxy"),
    Switch::new(
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        ALL,
        "isolation: no datagrams of WebRTC bypass the proxy. Two pages of one browser cannot connect to each other \
         by WebRTC either",
    ),
    Switch::new(
        "--proxy-bypass-list=<-loopback>",
        ALL,
        "isolation: by default Chromium bypasses a proxy for loopback, and a page could then open the debugging port",
    ),
    Switch::new("--remote-debugging-address=127.0.0.1", ALL, "isolation: the debugging port is in the sandbox only"),
    Switch::when(When::WithoutExtensions, "--disable-extensions", ALL, "fewer processes"),
    Switch::when(When::WithExtensions, "--load-extension=<EXTENSIONS>", ALL, "the session's extensions"),
    Switch::when(
        When::WithExtensions,
        "--noerrdialogs",
        ALL,
        "a refused extension would block the start with a dialog",
    ),
    Switch::when(When::Restored, "--restore-last-session", ALL, "pages, their histories and session cookies return"),
    Switch::new("--proxy-server=http://127.0.0.1:<FORWARDER_PORT>", ALL, "the only way out of the sandbox"),
    Switch::new("--remote-debugging-port=<DEBUGGING_PORT>", ALL, "the connections of clients, which the server relays"),
    Switch::new("--user-data-dir=<PROFILE>", ALL, "the session's profile"),
    Switch::new("--window-position=0,0", WITHOUT_DISPLAY, "the window begins where the screen begins"),
    Switch::new("--window-size=<WIDTH>,<OUTER_HEIGHT>", WITHOUT_DISPLAY, "the page has the size of the viewport"),
    Switch::new("--headless=new", &[Kind::Headless], "no display"),
    Switch::new("--screen-info={<WIDTH>x<HEIGHT>}", &[Kind::Headless], "the screen has the size of the viewport"),
    Switch::new(
        "--ozone-platform=headless",
        &[Kind::HeadlessStealth],
        "no display. The headless mode is visible in the user agent, and an overridden user agent leaves half of the \
         client hints empty. The same browser on a display that draws nowhere reports the same values as any other \
         browser, in every kind of script",
    ),
    Switch::new(
        "--ozone-override-screen-size=<WIDTH>,<HEIGHT>",
        &[Kind::HeadlessStealth],
        "the screen has the size of the viewport",
    ),
    Switch::new(
        "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
        WITHOUT_DISPLAY,
        "`(hover: hover)` and `(pointer: fine)` match, as with a display, which has a mouse",
    ),
    Switch::new("--ozone-platform=x11", ON_DISPLAY, "the session's X server"),
    Switch::when(When::Kiosk, "--kiosk", ON_DISPLAY, "the page fills the display, without tabs and address bar"),
    Switch::new("--accept-lang=<LANGUAGES>", ALL, "the session's locale, otherwise English"),
];

/// The features that are switched off. Those that start renderers and requests of their own are needed by no automated
/// session: without them a browser starts a quarter faster, uses less than half the CPU time and 45 to 70 MiB less memory.
pub(super) const FEATURES_OFF: &[Switch] = &[
    Switch::new("SpareRendererForSitePerProcess", ALL, "no process for a page that nobody has opened"),
    Switch::new("WebUIOmniboxPopup", ALL, "no process for the suggestions of the address bar"),
    Switch::new("WebUIOmniboxAimPopup", ALL, "the same"),
    Switch::new("WebUIToolbar", ALL, "no process for the toolbar"),
    Switch::new("InitialWebUI", ALL, "the same"),
    Switch::new("WebUIPreload", ALL, "no pages of the browser loaded in advance"),
    Switch::new("PreloadTopChromeWebUI", ALL, "the same"),
    Switch::new("OptimizationHints", ALL, "no requests that no page has made"),
    Switch::new("MediaRouter", ALL, "no search for devices in the network"),
    Switch::new("Translate", ALL, "no question in the window"),
    Switch::new("NetworkTimeServiceQuerying", ALL, "no requests that no page has made"),
    Switch::new("AutofillServerCommunication", ALL, "forms are sent to no one but their site"),
    Switch::when(
        When::WithExtensions,
        "DisableLoadExtensionCommandLineSwitch",
        ALL,
        "with it, Chromium ignores `--load-extension`",
    ),
];

/// The features that are switched on.
pub(super) const FEATURES_ON: &[Switch] = &[Switch::new(
    "WebMCP",
    PLAIN,
    "pages offer tools to agents. A person's browser does not have it, so not in stealth",
)];
