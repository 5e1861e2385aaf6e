//! Steps that need no person: banners, dialogs, links to the login.

use super::super::{Act, ButtonKind, Step, StepKind};
use super::page::{Page, Press};
use super::words::{self, says};

/// The maximum number of buttons of a page that has nothing but a way to continue.
const MAX_BUTTONS: usize = 6;

fn step(kind: StepKind, press: &Press<'_>) -> Step {
    Step { kind, acts: vec![Act::Click { what: press.button.handle.clone(), window: false }] }
}

/// Returns the step that dismisses a cookie banner.
pub(super) fn cookie_banner(page: &Page<'_>) -> Option<Step> {
    let layers = 0..page.reading.layers.len();
    layers.into_iter().find_map(|layer| {
        let presses: Vec<&Press<'_>> = page.presses.iter().filter(|press| press.button.layer == Some(layer)).collect();
        let marks = words::fold(&page.reading.layers.get(layer)?.marks);
        let named = page
            .texts
            .iter()
            .filter(|line| line.text.layer == Some(layer))
            .any(|line| says(&line.words, words::COOKIE));
        let about =
            named || says(&marks, words::COOKIE) || presses.iter().any(|press| says(&press.label, &["cookies"]));
        // A layer with inputs is a login, even if its text mentions cookies.
        let asks = page.entries.iter().any(|entry| entry.input.layer == Some(layer) && entry.input.kind != "checkbox");
        if !about || asks {
            return None;
        }
        let with = |phrases: &[&str]| {
            let fits = |press: &&&Press<'_>| {
                !press.button.covered && press.label.split_whitespace().count() <= 7 && says(&press.label, phrases)
            };
            let buttons = |press: &&&Press<'_>| press.button.kind != ButtonKind::Link;
            let all: Vec<&&Press<'_>> = presses.iter().filter(fits).collect();
            all.iter().find(|press| buttons(press)).or(all.first()).copied().copied()
        };
        let press =
            with(words::REFUSE_COOKIES).or_else(|| with(words::ACCEPT_COOKIES)).or_else(|| with(words::CLOSE))?;
        Some(step(StepKind::CookieBanner, press))
    })
}

/// Returns the step that dismisses a dialog over the form.
pub(super) fn dialog_over(page: &Page<'_>) -> Option<Step> {
    let away = |press: &&Press<'_>| {
        let layer = press.button.layer;
        let asks = page
            .entries
            .iter()
            .any(|entry| entry.input.layer == layer && matches!(entry.input.kind.as_str(), "password"));
        layer.is_some()
            && !press.button.covered
            && !asks
            && (says(&press.label, words::DECLINE)
                || says(&press.label, words::CLOSE)
                || words::is(&press.label, words::GO_ON))
    };
    page.presses.iter().find(away).map(|press| step(StepKind::Dialog, press))
}

/// Returns the step that answers "Stay signed in?" with yes.
pub(super) fn stay(page: &Page<'_>) -> Option<Step> {
    let asks = page.says(words::STAY) && page.presses.len() <= 12;
    let yes = |press: &&Press<'_>| words::is(&press.label, words::YES);
    asks.then(|| page.presses.iter().find(yes)).flatten().map(|press| step(StepKind::StaySignedIn, press))
}

/// Returns the step that declines an offer.
pub(super) fn decline(page: &Page<'_>) -> Option<Step> {
    let no = |press: &&Press<'_>| {
        !press.button.covered && press.label.split_whitespace().count() <= 5 && says(&press.label, words::DECLINE)
    };
    page.presses.iter().find(no).map(|press| step(StepKind::Decline, press))
}

/// Returns the step that continues from a page that requests nothing.
pub(super) fn go_on(page: &Page<'_>) -> Option<Step> {
    let buttons: Vec<&Press<'_>> = page.presses.iter().filter(|press| press.button.kind != ButtonKind::Link).collect();
    if buttons.len() > MAX_BUTTONS {
        return None;
    }
    let on = |press: &&Press<'_>| {
        !press.button.covered && press.label.split_whitespace().count() <= 4 && says(&press.label, words::GO_ON)
    };
    let found = buttons.iter().copied().find(on);
    let links = || page.presses.iter().filter(|_| page.presses.len() <= 3).find(on);
    found.or_else(links).map(|press| step(StepKind::Continue, press))
}

/// Returns the step from a public page to the login.
pub(super) fn to_login(page: &Page<'_>) -> Option<Step> {
    page.login_press().map(|press| step(StepKind::OpenLogin, press))
}
