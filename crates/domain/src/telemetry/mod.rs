//! Telemetry of a session: which categories are captured.

use std::collections::BTreeMap;

use crate::field::{Bad, FieldCode};

/// What kind of events.
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
    /// Calls of this service on the session.
    Control,
    /// Connects and disconnects.
    Connection,
    /// Starts, crashes, memory.
    System,
    /// Pictures.
    Screenshot,
    /// Captchas seen.
    Captcha,
}

impl Category {
    /// All nine, in the order of the record.
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
    const DEFAULT: [Self; 4] = [Self::Control, Self::Connection, Self::System, Self::Captcha];
    const OF_CDP: [Self; 4] = [Self::Console, Self::Network, Self::Page, Self::Interaction];
}

/// The wish as it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The whole, on or off.
    pub enabled: Option<bool>,
    /// Single categories, on or off.
    pub browser: Option<BTreeMap<Category, bool>>,
}

/// The categories that are captured; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture(BTreeMap<Category, bool>);

impl Capture {
    /// Whether events of `category` are captured.
    #[must_use]
    pub fn includes(&self, category: Category) -> bool {
        self.0.get(&category).copied().unwrap_or(false)
    }

    fn of(mut base: BTreeMap<Category, bool>, wish: &BTreeMap<Category, bool>) -> Option<Self> {
        base.extend(wish);
        base.values().any(|on| *on).then_some(Self(base))
    }
}

/// What a new session or pool captures; `None`: nothing.
///
/// # Errors
/// `mutually_exclusive` when it is off as a whole but names categories.
pub fn on_create(wish: Option<&Wish>) -> Result<Option<Capture>, Bad> {
    let Some(wish) = wish else { return Ok(None) };
    let default = || Category::DEFAULT.map(|category| (category, true)).into_iter().collect();
    match (wish.enabled, &wish.browser) {
        (Some(false), Some(browser)) if !browser.is_empty() => {
            Err(Bad::new(FieldCode::MutuallyExclusive, "cannot be off and name categories"))
        }
        (None | Some(false), None) | (Some(false), Some(_)) => Ok(None),
        (None, Some(browser)) if four_off(browser) => Ok(None),
        (None | Some(true), browser) => Ok(Capture::of(default(), browser.as_ref().unwrap_or(&BTreeMap::new()))),
    }
}

/// All four categories that need the browser's protocol are off and nothing is on: how older clients say "off".
fn four_off(browser: &BTreeMap<Category, bool>) -> bool {
    Category::OF_CDP.iter().all(|category| browser.get(category) == Some(&false)) && !browser.values().any(|on| *on)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(enabled: Option<bool>, browser: Option<&[(Category, bool)]>) -> Wish {
        Wish { enabled, browser: browser.map(|pairs| pairs.iter().copied().collect()) }
    }

    #[test]
    fn telemetry_is_off_unless_asked_for() {
        let four = Category::OF_CDP.map(|category| (category, false));
        for off in [wish(None, None), wish(Some(false), None), wish(Some(false), Some(&[])), wish(None, Some(&four))] {
            assert_eq!(on_create(Some(&off)), Ok(None), "{off:?}");
        }
        assert_eq!(on_create(None), Ok(None));
        let all_off = Category::ALL.map(|category| (category, false));
        assert_eq!(on_create(Some(&wish(Some(true), Some(&all_off)))), Ok(None));
    }

    #[test]
    fn what_is_asked_for_comes_on_top_of_the_default_set() {
        let got = on_create(Some(&wish(None, Some(&[(Category::Console, true), (Category::System, false)]))));
        let capture = got.expect("valid").expect("on");
        let on: Vec<_> = Category::ALL.into_iter().filter(|category| capture.includes(*category)).collect();
        assert_eq!(on, [Category::Console, Category::Control, Category::Connection, Category::Captcha]);
        assert!(on_create(Some(&wish(None, Some(&[])))).expect("valid").is_some());
        assert!(on_create(Some(&wish(Some(true), None))).expect("valid").is_some());
    }

    #[test]
    fn off_with_categories_contradicts_itself() {
        let refused = on_create(Some(&wish(Some(false), Some(&[(Category::Page, true)])))).expect_err("contradiction");
        assert_eq!(refused.code, FieldCode::MutuallyExclusive);
    }
}
