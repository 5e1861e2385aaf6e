//! The keys of Chromium's window whose effect is only in that window: no picture of a session without a display shows it.
//! A page that handles such a key itself gets it as any other key.

use super::us_keys::{ALT, CONTROL, SHIFT};

const ADDRESS: &str = "the address bar";
const FIND: &str = "the find bar";
const FILES: &str = "a file dialog";
const MENU: &str = "the browser's menu";
const TOOLBAR: &str = "the toolbar";
const BOOKMARKS: &str = "the bookmarks";
const TOOLS: &str = "the developer tools";
const PRINT: &str = "the print preview";
const BOTH: u8 = CONTROL | SHIFT;

/// The modifiers and the `code` of each key, and what it leads to.
const KEYS: &[(u8, &str, &str)] = &[
    (CONTROL, "KeyL", ADDRESS),
    (CONTROL, "KeyK", ADDRESS),
    (CONTROL, "KeyE", ADDRESS),
    (ALT, "KeyD", ADDRESS),
    (CONTROL, "KeyF", FIND),
    (CONTROL, "KeyG", FIND),
    (BOTH, "KeyG", FIND),
    (0, "F3", FIND),
    (SHIFT, "F3", FIND),
    (CONTROL, "KeyO", FILES),
    (CONTROL, "KeyS", FILES),
    (CONTROL, "KeyP", PRINT),
    (BOTH, "KeyP", PRINT),
    (CONTROL, "KeyD", BOOKMARKS),
    (BOTH, "KeyD", BOOKMARKS),
    (BOTH, "KeyB", BOOKMARKS),
    (ALT | SHIFT, "KeyB", BOOKMARKS),
    (0, "F12", TOOLS),
    (BOTH, "KeyI", TOOLS),
    (BOTH, "KeyJ", TOOLS),
    (BOTH, "KeyC", TOOLS),
    (ALT, "KeyF", MENU),
    (ALT, "KeyE", MENU),
    (0, "F10", MENU),
    (BOTH, "KeyM", "the menu of profiles"),
    (BOTH, "KeyA", "the search for tabs"),
    (0, "F6", TOOLBAR),
    (SHIFT, "F6", TOOLBAR),
    (ALT | SHIFT, "KeyT", TOOLBAR),
    (ALT | SHIFT, "KeyA", TOOLBAR),
    (ALT | SHIFT, "KeyI", "a form for feedback"),
    (0, "F7", "a question about caret browsing"),
    (SHIFT, "Escape", "the task manager"),
];

/// Returns what a key with these pressed modifiers leads to, if no picture of the page shows it.
pub(super) fn not_drawn(modifiers: u8, code: &str) -> Option<&'static str> {
    KEYS.iter().find(|(held, key, _)| *held == modifiers && *key == code).map(|(.., what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_whose_effect_is_not_drawn_are_known_with_exactly_their_modifiers() {
        assert_eq!(not_drawn(CONTROL, "KeyL"), Some(ADDRESS));
        assert_eq!(not_drawn(CONTROL | SHIFT, "KeyI"), Some(TOOLS));
        assert_eq!(not_drawn(0, "F12"), Some(TOOLS));
        for (modifiers, code) in [(0, "KeyL"), (CONTROL | ALT, "KeyL"), (CONTROL, "KeyT"), (0, "F5"), (0, "Escape")] {
            assert_eq!(not_drawn(modifiers, code), None, "{modifiers} {code}");
        }
    }
}
