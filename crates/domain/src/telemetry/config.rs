//! The captured categories, and how callers request them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Delivery, ExportRequest, delivery};
use crate::field::{FieldCode, InvalidValue};
use crate::ids::TelemetryDestinationId;

/// The category of captured events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Messages of the page's console.
    Console,
    /// Requests and responses.
    Network,
    /// Navigation and rendering.
    Page,
    /// Clicks, keys and scrolls.
    Interaction,
    /// API calls on the session.
    Control,
    /// Begins and ends of connections.
    Connection,
    /// Starts, crashes, memory.
    System,
    /// Screenshots.
    Screenshot,
    /// Captchas.
    Captcha,
}

impl Category {
    /// All nine categories, in the order of the API.
    pub const ALL: [Self; 9] = [
        Self::Console,
        Self::Page,
        Self::Interaction,
        Self::Network,
        Self::Control,
        Self::Connection,
        Self::System,
        Self::Screenshot,
        Self::Captcha,
    ];

    /// Returns the text in the store and in the wire format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Network => "network",
            Self::Page => "page",
            Self::Interaction => "interaction",
            Self::Control => "control",
            Self::Connection => "connection",
            Self::System => "system",
            Self::Screenshot => "screenshot",
            Self::Captcha => "captcha",
        }
    }

    /// Parses the text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == text)
    }

    const DEFAULT: [Self; 4] = [Self::Control, Self::Connection, Self::System, Self::Captcha];
    const OF_CDP: [Self; 4] = [Self::Console, Self::Network, Self::Page, Self::Interaction];
}

/// An unchecked configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigRequest {
    /// Whether anything is captured.
    pub enabled: Option<bool>,
    /// Whether single categories are captured.
    pub browser: Option<BTreeMap<Category, bool>>,
    /// Whether the events are stored. Default: true.
    pub stored: Option<bool>,
    /// The destination to which the events are exported.
    pub export: ExportRequest,
}

/// The captured categories, which are never empty, and the delivery of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    categories: BTreeSet<Category>,
    delivery: Delivery,
}

impl Capture {
    /// Returns whether events of `category` are captured.
    #[must_use]
    pub fn includes(&self, category: Category) -> bool {
        self.categories.contains(&category)
    }

    /// Creates the capture of exactly these categories, whose events are only stored; `None` if there are none.
    #[must_use]
    pub fn only(categories: impl IntoIterator<Item = Category>) -> Option<Self> {
        let categories: BTreeSet<Category> = categories.into_iter().collect();
        (!categories.is_empty()).then_some(Self { categories, delivery: Delivery::default() })
    }

    /// Sets the delivery.
    #[must_use]
    pub fn delivered(self, delivery: Delivery) -> Self {
        Self { delivery, ..self }
    }

    /// Returns the delivery of the events.
    #[must_use]
    pub const fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Returns the categories, in no particular order.
    pub fn categories(&self) -> impl Iterator<Item = Category> + '_ {
        self.categories.iter().copied()
    }

    fn with(base: impl IntoIterator<Item = Category>, request: &BTreeMap<Category, bool>) -> Option<Self> {
        let stored = base.into_iter().filter(|category| request.get(category) != Some(&false));
        let added = request.iter().filter(|(_, on)| **on).map(|(category, _)| *category);
        Self::only(stored.chain(added))
    }
}

/// Returns the capture of a new session or pool; `None`: nothing is captured.
///
/// # Errors
/// See [`on_change`].
pub fn on_create(request: Option<&ConfigRequest>) -> Result<Option<Capture>, InvalidValue> {
    match request {
        Some(request @ ConfigRequest { enabled: None, browser: Some(browser), .. }) if browser.is_empty() => {
            delivery::delivered(request, Capture::only(Category::DEFAULT), None)
        }
        request => on_change(request, None),
    }
}

/// Returns the capture of a session or pool after a change of `current`; `None`: nothing is captured.
///
/// # Errors
/// `mutually_exclusive` if the request disables the capture but names categories, or contradicts itself about the
/// export; `required` for a missing destination, and for a destination or `stored: false` without capture;
/// `reference_not_found` for a destination that was not [found](ExportRequest::find).
pub fn on_change(request: Option<&ConfigRequest>, current: Option<&Capture>) -> Result<Option<Capture>, InvalidValue> {
    let Some(request) = request else { return Ok(current.cloned()) };
    delivery::delivered(request, captured(request, current)?, current.map(Capture::delivery))
}

/// Checks a change whose current capture is not known yet.
///
/// # Errors
/// See [`on_change`]; only what would be refused with every current capture.
pub fn check_change(request: Option<&ConfigRequest>) -> Result<(), InvalidValue> {
    // With every category and some destination, a change is refused only for what it says itself.
    let some_destination = TelemetryDestinationId::from_ulid(ulid::Ulid::nil());
    let delivery = Delivery { destination: Some(some_destination), stored: true };
    let everything = Capture::only(Category::ALL).map(|capture| capture.delivered(delivery));
    on_change(request, everything.as_ref()).map(drop)
}

/// Returns the captured categories after a change of `current`, with the default delivery.
fn captured(request: &ConfigRequest, current: Option<&Capture>) -> Result<Option<Capture>, InvalidValue> {
    let nothing = BTreeMap::new();
    match (request.enabled, &request.browser) {
        (Some(false), Some(browser)) if !browser.is_empty() => {
            Err(InvalidValue::new(FieldCode::MutuallyExclusive, "cannot be off and name categories"))
        }
        (Some(false), _) => Ok(None),
        (None, None) => Ok(current.cloned()),
        (None, Some(browser)) if four_off(browser) => Ok(None),
        (None, Some(browser)) => Ok(match current {
            Some(current) => Capture::with(current.categories(), browser),
            None => Capture::with(Category::DEFAULT, browser),
        }),
        (Some(true), browser) => Ok(Capture::with(Category::DEFAULT, browser.as_ref().unwrap_or(&nothing))),
    }
}

/// Returns whether the four categories of the DevTools protocol are off and none is on: "off" for older clients.
fn four_off(browser: &BTreeMap<Category, bool>) -> bool {
    Category::OF_CDP.iter().all(|category| browser.get(category) == Some(&false)) && !browser.values().any(|on| *on)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(enabled: Option<bool>, browser: Option<&[(Category, bool)]>) -> ConfigRequest {
        let browser = browser.map(|pairs| pairs.iter().copied().collect());
        ConfigRequest { enabled, browser, ..ConfigRequest::default() }
    }

    #[test]
    fn telemetry_is_off_by_default() {
        let four = Category::OF_CDP.map(|category| (category, false));
        for off in [
            request(None, None),
            request(Some(false), None),
            request(Some(false), Some(&[])),
            request(None, Some(&four)),
        ] {
            assert_eq!(on_create(Some(&off)), Ok(None), "{off:?}");
        }
        assert_eq!(on_create(None), Ok(None));
        let all_off = Category::ALL.map(|category| (category, false));
        assert_eq!(on_create(Some(&request(Some(true), Some(&all_off)))), Ok(None));
    }

    #[test]
    fn requested_categories_are_added_to_the_default_set() {
        let got = on_create(Some(&request(None, Some(&[(Category::Console, true), (Category::System, false)]))));
        let capture = got.expect("valid").expect("on");
        let on: Vec<_> = Category::ALL.into_iter().filter(|category| capture.includes(*category)).collect();
        assert_eq!(on, [Category::Console, Category::Control, Category::Connection, Category::Captcha]);
        assert!(on_create(Some(&request(None, Some(&[])))).expect("valid").is_some());
        assert!(on_create(Some(&request(Some(true), None))).expect("valid").is_some());
    }

    #[test]
    fn off_with_categories_contradicts_itself() {
        let refused =
            on_create(Some(&request(Some(false), Some(&[(Category::Page, true)])))).expect_err("contradiction");
        assert_eq!(refused.code, FieldCode::MutuallyExclusive);
    }
    #[test]
    fn a_change_is_merged_onto_what_is_in_force_unless_it_begins_afresh() {
        let current = Capture::only([Category::Console, Category::Page]);
        let of = |request: &ConfigRequest| {
            let changed = on_change(Some(request), current.as_ref()).expect("valid");
            changed.map(|capture| Category::ALL.into_iter().filter(|category| capture.includes(*category)).collect())
        };
        assert_eq!(on_change(None, current.as_ref()), Ok(current.clone()));
        assert_eq!(of(&request(None, None)), Some(vec![Category::Console, Category::Page]));
        assert_eq!(of(&request(None, Some(&[]))), Some(vec![Category::Console, Category::Page]));
        let merged = request(None, Some(&[(Category::Page, false), (Category::Network, true)]));
        assert_eq!(of(&merged), Some(vec![Category::Console, Category::Network]));
        let afresh = request(Some(true), Some(&[(Category::Control, false)]));
        assert_eq!(of(&afresh), Some(vec![Category::Connection, Category::System, Category::Captcha]));
        assert_eq!(of(&request(Some(false), None)), None);
        assert_eq!(of(&request(None, Some(&[(Category::Console, false), (Category::Page, false)]))), None);
        assert_eq!(of(&request(None, Some(&Category::OF_CDP.map(|category| (category, false))))), None);
        let onto_off =
            on_change(Some(&request(None, Some(&[(Category::Page, true)]))), None).expect("valid").expect("on");
        assert!(onto_off.includes(Category::Page) && onto_off.includes(Category::System));
        assert!(on_change(Some(&request(Some(false), Some(&[(Category::Page, true)]))), None).is_err());
    }
}
