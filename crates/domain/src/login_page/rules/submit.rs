//! The submission of a form: the checkboxes to tick and the button to press.

use super::super::{ButtonKind, Handle};
use super::choices::provider_of;
use super::groups::{Group, Purpose};
use super::page::{Entry, Press};
use super::words::{self, says};

/// Returns the checkboxes to tick: "remember me", and required terms.
pub(super) fn ticks(group: &Group<'_>) -> Vec<Handle> {
    let wanted = |entry: &&Entry<'_>| {
        let input = entry.input;
        let terms = says(&entry.all, words::AGREE_TERMS) && !says(&entry.all, words::NEWSLETTER);
        !input.filled && (says(&entry.all, words::REMEMBER) || (terms && input.required))
    };
    let ticks = group.entries.iter().filter(|(used, _)| *used == Purpose::Tick).map(|(_, entry)| *entry);
    ticks.filter(wanted).take(4).map(|entry| entry.input.handle.clone()).collect()
}

/// Returns the button that submits the group: the best by words and kind, then the nearest after the inputs.
pub(super) fn submit(group: &Group<'_>, last: usize) -> Option<Handle> {
    let rate = |press: &&Press<'_>| -> Option<(i32, usize)> {
        let button = press.button;
        let (label, words_) = (press.label.as_str(), press.label.split_whitespace().count());
        let another = [
            words::REGISTER,
            words::FORGOT,
            words::RESEND,
            words::BACK,
            words::SHOW,
            words::LEGAL,
            words::NEWSLETTER,
            words::SEARCH,
            words::KEY,
            words::OTHER_WAY,
        ];
        let other = another.iter().any(|phrases| says(label, phrases)) || provider_of(press).is_some();
        if other && !says(label, words::LOGIN) || provider_of(press).is_some() {
            return None;
        }
        let mut score = match button.kind {
            ButtonKind::Submit => 4,
            ButtonKind::Button => 1,
            ButtonKind::Link | ButtonKind::Item => -1,
            ButtonKind::Radio => return None,
        };
        let short = words_ <= 4;
        score += if short && says(label, words::LOGIN) {
            4
        } else if short && (says(label, words::NEXT) || says(label, words::VERIFY)) {
            3
        } else {
            0
        };
        if button.kind != ButtonKind::Submit && !(short && score >= 3) {
            // Of the buttons without words, only an arrow beside the field may submit it.
            let arrow = words_ == 0
                && says(&press.all, &["submit", "next", "arrow", "go", "login", "signin", "continue", "sign in"]);
            if !arrow && score < 3 {
                return None;
            }
        }
        let distance = if button.place > last { button.place - last } else { 500 + last - button.place };
        Some((score, usize::MAX - distance))
    };
    let best = group
        .presses
        .iter()
        .filter_map(|press| rate(press).map(|rated| (rated, *press)))
        .max_by_key(|(rated, _)| *rated);
    best.map(|(_, press)| press.button.handle.clone())
}
