//! The categories of events that are captured.

use casement_agent_protocol::telemetry::Category;

/// The captured categories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CapturedCategories {
    pub(super) console: bool,
    pub(super) network: bool,
    pub(super) page: bool,
    pub(super) interaction: bool,
    pub(super) system: bool,
    pub(super) screenshot: bool,
    pub(super) captcha: bool,
}

impl CapturedCategories {
    pub(super) fn of(categories: &[Category]) -> Self {
        let has = |category| categories.contains(&category);
        Self {
            console: has(Category::Console),
            network: has(Category::Network),
            page: has(Category::Page),
            interaction: has(Category::Interaction),
            system: has(Category::System),
            screenshot: has(Category::Screenshot),
            captcha: has(Category::Captcha),
        }
    }

    pub(super) fn any(self) -> bool {
        self != Self::default()
    }

    /// Returns true if the capture attaches to targets.
    pub(super) fn needs_targets(self) -> bool {
        Self { system: false, ..self }.any()
    }

    /// Returns true if the capture needs to know of crashed pages.
    pub(super) const fn page_crashes(self) -> bool {
        self.network || self.page
    }

    /// Returns true if the capture reports its own state.
    pub(super) const fn monitor(self) -> bool {
        self.console || self.network || self.page || self.interaction
    }
}

/// The requested capture.
#[derive(Debug, Clone, Default)]
pub(super) struct CaptureRequest {
    pub(super) categories: CapturedCategories,
    /// The number of the request.
    pub(super) number: u64,
    /// The time of the request for consoles, in milliseconds since 1970. The messages since then are captured, also of
    /// a page to which the capture attaches later.
    pub(super) console_since: f64,
}
